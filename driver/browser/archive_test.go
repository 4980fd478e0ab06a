// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"archive/tar"
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// archiveOf is a tar of these entries, the mark first.
func archiveOf(t *testing.T, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, h := range slices.Concat([]tar.Header{{Name: archiveMark}}, entries, []tar.Header{{Name: archiveEnd}}) {
		text := []byte("text")
		if h.Size = 0; h.Typeflag == 0 || h.Typeflag == tar.TypeReg {
			h.Typeflag, h.Size = tar.TypeReg, int64(len(text))
		}
		h.Mode = 0o600
		must(t, w.WriteHeader(&h))
		if h.Size > 0 {
			_, err := w.Write(text)
			must(t, err)
		}
	}
	must(t, w.Close())
	return b.Bytes()
}

func importer(t *testing.T, version string) (Options, string) {
	t.Helper()
	home := t.TempDir()
	return Options{
		Executable: script(t, filepath.Join(home, "chrome"), "echo Chromium "+version), Starter: plain{}, Profile: Folder(home),
	}, home
}

// What an export has, an import brings: files and folders, without caches, locks and links.
func TestExportImport(t *testing.T) {
	from := filepath.Join(t.TempDir(), "browser")
	for name, text := range map[string]string{
		"Last Version": "100.0.0.0", "Default/Cookies": "the cookies", "Default/Cache/x": "a cache", "SingletonLock": "", "Default/a b/ü": "odd",
	} {
		must(t, os.MkdirAll(filepath.Dir(filepath.Join(from, name)), 0o700))
		must(t, os.WriteFile(filepath.Join(from, name), []byte(text), 0o600))
	}
	must(t, os.Symlink("/etc/passwd", filepath.Join(from, "link")))
	var archive bytes.Buffer
	must(t, Export(from, nil, &archive))

	o, home := importer(t, "100.0.0.0")
	must(t, os.MkdirAll(o.Profile, 0o700))
	must(t, os.WriteFile(filepath.Join(o.Profile, "old"), nil, 0o600))
	must(t, Import(t.Context(), o, bytes.NewReader(archive.Bytes())))
	for name, want := range map[string]string{
		"browser/Default/Cookies": "the cookies", "browser/Default/a b/ü": "odd", "browser/Last Version": "100.0.0.0", "browser.before-import/old": "",
	} {
		if text, err := os.ReadFile(filepath.Join(home, name)); err != nil || string(text) != want {
			t.Errorf("%s: %q, %v", name, text, err)
		}
	}
	for _, name := range []string{"browser/link", "browser/Default/Cache", "browser/SingletonLock", "browser/old", "browser.arriving"} {
		if _, err := os.Lstat(filepath.Join(home, name)); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("%s is there: %v", name, err)
		}
	}
	must(t, Import(t.Context(), o, bytes.NewReader(archive.Bytes()))) // and again
}

// W4: an older browser gets no newer profile, and the profile that was there stays.
func TestW4Import(t *testing.T) {
	from := filepath.Join(t.TempDir(), "browser")
	must(t, os.MkdirAll(from, 0o700))
	must(t, os.WriteFile(filepath.Join(from, "Last Version"), []byte("100.0.0.1"), 0o600))
	var archive bytes.Buffer
	must(t, Export(from, nil, &archive))
	o, home := importer(t, "100.0.0.0")
	must(t, os.MkdirAll(o.Profile, 0o700))
	must(t, os.WriteFile(filepath.Join(o.Profile, "old"), nil, 0o600))
	var older *OlderError
	if err := Import(t.Context(), o, &archive); !errors.As(err, &older) {
		t.Errorf("the answer is %v", err)
	}
	if _, err := os.Stat(filepath.Join(home, "browser/old")); err != nil {
		t.Errorf("the profile there was: %v", err)
	}
}

// A profile in use is neither read nor replaced.
func TestArchiveOfARunningBrowser(t *testing.T) {
	o, _ := importer(t, "1.0")
	p, err := openProfile(o.Profile, nil)
	must(t, err)
	defer p.release()
	if err := Export(o.Profile, nil, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "the browser runs") {
		t.Errorf("export: %v", err)
	}
	if err := Import(t.Context(), o, bytes.NewReader(archiveOf(t, tar.Header{Name: "x"}))); err == nil || !strings.Contains(err.Error(), "the browser runs") {
		t.Errorf("import: %v", err)
	}
	if err := Export(o.Profile+"-never", nil, &bytes.Buffer{}); err == nil || !strings.Contains(err.Error(), "never run") {
		t.Errorf("export of nothing: %v", err)
	}
}

// X6: an archive writes below its folder or is refused; half of one is none.
func TestX6HostileArchives(t *testing.T) {
	good := archiveOf(t, tar.Header{Name: "a"})
	for name, archive := range map[string][]byte{
		"nothing":             nil,
		"another tar":         archiveOf(t)[512:],
		"cut off":             good[:len(good)-1024-1024],
		"behind its end":      archiveOf(t, tar.Header{Name: archiveEnd}, tar.Header{Name: "a"}),
		"more behind":         append(bytes.Clone(good), "x"...),
		"above":               archiveOf(t, tar.Header{Name: "../x"}),
		"absolute":            archiveOf(t, tar.Header{Name: "/tmp/x"}),
		"a link":              archiveOf(t, tar.Header{Name: "l", Typeflag: tar.TypeSymlink, Linkname: "/etc"}),
		"a hard link":         archiveOf(t, tar.Header{Name: "l", Typeflag: tar.TypeLink, Linkname: "/etc/passwd"}),
		"a device":            archiveOf(t, tar.Header{Name: "d", Typeflag: tar.TypeBlock}),
		"a lock":              archiveOf(t, tar.Header{Name: "SingletonLock"}),
		"a name twice":        archiveOf(t, tar.Header{Name: "a"}, tar.Header{Name: "a"}),
		"a file below a file": archiveOf(t, tar.Header{Name: "a"}, tar.Header{Name: "a/b"}),
	} {
		o, home := importer(t, "1.0")
		if err := Import(t.Context(), o, bytes.NewReader(archive)); err == nil {
			t.Errorf("%s was imported", name)
		}
		if _, err := os.Stat(filepath.Join(home, "browser.arriving")); err == nil {
			t.Errorf("%s left something", name)
		}
	}
}

func FuzzUnpack(f *testing.F) {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	_ = w.WriteHeader(&tar.Header{Name: archiveMark})
	_ = w.WriteHeader(&tar.Header{Name: "a/b", Size: 1})
	_, _ = w.Write([]byte("x"))
	_ = w.Close()
	f.Add(b.Bytes())
	f.Fuzz(func(t *testing.T, archive []byte) {
		dir := t.TempDir()
		must(t, os.Mkdir(filepath.Join(dir, "into"), 0o700))
		root, err := os.OpenRoot(filepath.Join(dir, "into"))
		must(t, err)
		defer root.Close()
		_ = unpack(root, bytes.NewReader(archive))
		entries, err := os.ReadDir(dir)
		if err != nil || len(entries) != 1 {
			t.Fatalf("beside the folder there are %v, %v", entries, err)
		}
	})
}
