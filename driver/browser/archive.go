// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

// regrown are folders of a profile that the browser makes anew by itself: caches, and what
// was written down about crashes. They are most of its size and none of its logins.
var regrown = []string{
	"Cache", "Code Cache", "GPUCache", "DawnGraphiteCache", "DawnWebGPUCache", "GrShaderCache", "GraphiteDawnCache", "ShaderCache",
	"Crash Reports", "Crashpad", "component_crx_cache", "extensions_crx_cache", "BrowserMetrics", "optimization_guide_model_store",
}

const (
	// maxArchiveBytes and maxArchiveFiles bound what an import writes.
	maxArchiveBytes = 4 << 30
	maxArchiveFiles = 200_000
	// archiveMark is the first entry of an archive: what it is, and of which form. The last
	// one says that it is whole: a tar that was cut off between two files reads well.
	archiveMark = "botscreen-profile-1"
	archiveEnd  = "botscreen-profile-end"
)

// Export writes the profile in dir as a tar, without what the browser makes anew. It is
// refused while a browser uses it.
func Export(dir string, env []string, w io.Writer) error {
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		return errors.New("the browser of this profile has never run")
	}
	p, err := holdIdle(dir, env)
	if err != nil {
		return err
	}
	defer p.release()
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	out := tar.NewWriter(w)
	if err := out.WriteHeader(&tar.Header{Name: archiveMark, Mode: 0o600, Format: tar.FormatPAX}); err != nil {
		return err
	}
	err = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && slices.Contains(regrown, d.Name()):
			return fs.SkipDir
		case name == "." || slices.Contains(leftovers, name) || name == lockFile || !d.IsDir() && !d.Type().IsRegular():
			return nil
		}
		return add(out, root, name, d)
	})
	if err != nil {
		return fmt.Errorf("export profile: %w", err)
	}
	if err := out.WriteHeader(&tar.Header{Name: archiveEnd, Mode: 0o600, Format: tar.FormatPAX}); err != nil {
		return err
	}
	return out.Close()
}

// holdIdle is a profile that no browser uses, and that none starts on until its release.
func holdIdle(dir string, env []string) (*profile, error) {
	const running = "the browser runs: close it first, with `botscreen browser close`"
	p, err := openProfile(dir, env)
	if errors.Is(err, errInUse) {
		return nil, errors.New(running)
	}
	if err != nil {
		return nil, err
	}
	if p.user() != 0 {
		p.release()
		return nil, errors.New(running)
	}
	return p, nil
}

func add(out *tar.Writer, root *os.Root, name string, d fs.DirEntry) error {
	info, err := d.Info()
	if err != nil {
		return err
	}
	header := &tar.Header{Name: name, Mode: 0o600, ModTime: info.ModTime(), Format: tar.FormatPAX}
	if d.IsDir() {
		header.Name, header.Mode, header.Typeflag = name+"/", 0o700, tar.TypeDir
		return out.WriteHeader(header)
	}
	f, err := root.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return err
	}
	header.Size = info.Size()
	if err := out.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.CopyN(out, f, header.Size) // nobody writes to it: no browser runs
	return err
}

// Import puts the profile of an archive in the place of the one in o.Profile, whose folder
// is kept beside it until the next import. It is refused while a browser uses that, and
// where the archive's is newer than the browser that is to have it (rule W4).
func Import(ctx context.Context, o Options, r io.Reader) error {
	found, err := find(ctx, o)
	if err != nil {
		return err
	}
	p, err := holdIdle(o.Profile, o.Env)
	if err != nil {
		return err
	}
	defer p.release()
	home, err := os.OpenRoot(filepath.Dir(o.Profile))
	if err != nil {
		return err
	}
	defer home.Close()
	name := filepath.Base(o.Profile)
	arriving, replaced := name+".arriving", name+".before-import"
	if err := home.RemoveAll(arriving); err != nil {
		return fmt.Errorf("import profile: %w", err)
	}
	if err := home.Mkdir(arriving, 0o700); err != nil {
		return fmt.Errorf("import profile: %w", err)
	}
	defer home.RemoveAll(arriving)
	into, err := home.OpenRoot(arriving)
	if err != nil {
		return fmt.Errorf("import profile: %w", err)
	}
	defer into.Close()
	if err := unpack(into, r); err != nil {
		return fmt.Errorf("import profile: %w", err)
	}
	if err := checkVersion(filepath.Join(filepath.Dir(o.Profile), arriving), found.Version.Number); err != nil {
		return err
	}
	err = home.RemoveAll(replaced)
	if err == nil {
		err = home.Rename(name, replaced)
	}
	if err == nil {
		err = home.Rename(arriving, name)
	}
	if err != nil {
		return fmt.Errorf("import profile: %w", err)
	}
	return nil
}

// errNotArchive says that what was read is none of ours, or not all of it.
var errNotArchive = errors.New("this is no whole export of a profile")

// unpack writes an archive's files and folders, and nothing else, below into.
func unpack(into *os.Root, r io.Reader) error {
	in := tar.NewReader(r)
	if first, err := in.Next(); err != nil || first.Name != archiveMark {
		return errNotArchive
	}
	room := int64(maxArchiveBytes)
	for files := 0; ; files++ {
		header, err := in.Next()
		switch {
		case err != nil:
			return errNotArchive
		case header.Name == archiveEnd:
			if _, err := in.Next(); !errors.Is(err, io.EOF) {
				return errNotArchive
			}
			return ended(r)
		}
		if room -= header.Size; room < 0 || files > maxArchiveFiles {
			return fmt.Errorf("the profile has more than %d bytes or %d files", int64(maxArchiveBytes), maxArchiveFiles)
		}
		if err := unpackOne(into, in, header); err != nil {
			return err
		}
	}
}

// ended wants nothing behind the archive: a writer that failed would say so there.
func ended(r io.Reader) error {
	var rest [512]byte
	for {
		n, err := r.Read(rest[:])
		if strings.Trim(string(rest[:n]), "\x00") != "" {
			return errNotArchive
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

func unpackOne(into *os.Root, in io.Reader, header *tar.Header) error {
	name := path.Clean(header.Name)
	if !filepath.IsLocal(name) || slices.Contains(leftovers, name) || name == lockFile {
		return errNotArchive
	}
	switch header.Typeflag {
	case tar.TypeDir:
		return into.MkdirAll(name, 0o700)
	case tar.TypeReg:
	default:
		return errNotArchive // a link would lead elsewhere
	}
	if err := into.MkdirAll(path.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := into.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(f, in)
	return errors.Join(err, f.Close())
}
