// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/isolation"
)

// registryScheme stands before images that come from a registry.
const registryScheme = "docker://"

// fileKey is a file as long as nobody changes it: its change time is the kernel's.
type fileKey struct {
	device, inode uint64
	size          int64
	changed       syscall.Timespec
}

type digestKey = fileKey

func keyOf(path string) (fileKey, error) {
	info, err := os.Stat(path)
	if err != nil {
		return fileKey{}, err
	}
	return keyOfInfo(info)
}

func keyOfInfo(info fs.FileInfo) (fileKey, error) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return fileKey{}, errors.New("the system does not say which file it is")
	}
	return fileKey{uint64(stat.Dev), stat.Ino, stat.Size, stat.Ctim}, nil
}

// Resolve finds the file or directory of a reference beneath the image_dirs, else what
// was fetched for it from a registry, and fetches only what is not there: a tag that
// moved never changes a screen behind its owner's back (P5).
func (b *Boundary) Resolve(ctx context.Context, wanted isolation.ImageOrder, pulling func()) (isolation.Image, error) {
	found, err := b.Find(ctx, wanted.Reference)
	if errors.Is(err, isolation.ErrNoImage) && !isPath(nameOf(wanted.Reference)) {
		return b.fetched(ctx, wanted, pulling)
	}
	return found, err
}

// Find looks on this node alone.
func (b *Boundary) Find(ctx context.Context, reference string) (isolation.Image, error) {
	if reference == "" {
		return isolation.Image{}, &RefusedError{Reason: "apptainer isolation needs an image. Name one with `image` in the job, or `default_image` in the plugin's config"}
	}
	name, digest := splitDigest(reference)
	path, err := b.find(name)
	if errors.Is(err, fs.ErrNotExist) && !isPath(name) {
		path, err = b.kept(reference)
		digest = "" // it says what was fetched, not what file was made of it
	}
	if err != nil {
		return isolation.Image{}, b.explainImage(name, err)
	}
	image, err := b.described(ctx, path)
	if err != nil {
		return isolation.Image{}, b.explainImage(name, err)
	}
	if digest != "" && digest != image.Digest {
		return isolation.Image{}, &RefusedError{Reason: fmt.Sprintf("the image %s is not the one that its digest names: it is %s. Correct the digest, or put the right file there", reference, digestWord(image.Digest))}
	}
	return image, nil
}

// described is an image at its path, with the digest of its file.
func (b *Boundary) described(ctx context.Context, path string) (isolation.Image, error) {
	digest, err := b.digest(ctx, path)
	return isolation.Image{Reference: path, Digest: digest}, err
}

// Fetch brings an image of a registry anew; a file of the image_dirs is what is there by
// now.
func (b *Boundary) Fetch(ctx context.Context, wanted isolation.ImageOrder) (isolation.Image, error) {
	if name := nameOf(wanted.Reference); !isPath(name) {
		if _, err := b.find(name); errors.Is(err, fs.ErrNotExist) {
			return b.pulled(ctx, wanted)
		}
	}
	return b.Find(ctx, wanted.Reference)
}

// Latest is the digest of a file. What a registry has by now is not known before it is
// fetched: apptainer makes a file of its own of it.
func (b *Boundary) Latest(ctx context.Context, wanted isolation.ImageOrder) (string, error) {
	name := nameOf(wanted.Reference)
	if _, err := b.find(name); errors.Is(err, fs.ErrNotExist) && !isPath(name) {
		return "", nil
	}
	found, err := b.Find(ctx, name)
	return found.Digest, err
}

func nameOf(reference string) string {
	name, _ := splitDigest(reference)
	return name
}

func digestWord(digest string) string {
	if digest == "" {
		return "a directory, which has none"
	}
	return digest
}

// splitDigest parts "desk.sif@sha256:…".
func splitDigest(reference string) (name, digest string) {
	if strings.HasPrefix(reference, registryScheme) {
		return reference, ""
	}
	name, digest, _ = strings.Cut(reference, "@")
	return name, digest
}

// isPath reports whether a reference can only be a file of this node.
func isPath(name string) bool {
	return strings.HasPrefix(name, "/") || strings.HasPrefix(name, "./") || strings.HasSuffix(name, ".sif")
}

// find is the path of a file or directory beneath the image_dirs.
func (b *Boundary) find(name string) (string, error) {
	if strings.HasPrefix(name, registryScheme) {
		return "", fs.ErrNotExist
	}
	var candidates []string
	for _, dir := range b.options.ImageDirs {
		candidates = append(candidates, path.Join(dir, path.Clean("/"+name)))
	}
	if path.IsAbs(name) {
		candidates = []string{path.Clean(name)}
	}
	if path.IsAbs(name) && b.dirOf(path.Clean(name)) == "" {
		return "", &RefusedError{Reason: fmt.Sprintf("the image %s lies outside of this node's image_dirs (%s). Put it there, or add its folder to `apptainer { image_dirs }` in the plugin's config", name, orNone(b.options.ImageDirs))}
	}
	for _, candidate := range candidates {
		f, err := b.open(candidate)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		_ = f.Close()
		return candidate, nil
	}
	return "", fs.ErrNotExist
}

func orNone(words []string) string {
	if len(words) == 0 {
		return "none"
	}
	return strings.Join(words, ", ")
}

// dirOf is the directory of ours that path lies beneath.
func (b *Boundary) dirOf(path string) string {
	dirs := b.options.ImageDirs
	if b.options.StateDir != "" {
		dirs = append([]string{b.imagesDir()}, dirs...)
	}
	for _, dir := range dirs {
		if strings.HasPrefix(path, strings.TrimSuffix(filepath.Clean(dir), "/")+"/") {
			return filepath.Clean(dir)
		}
	}
	return ""
}

// open opens an image beneath its directory: no link leads out of it (X5).
func (b *Boundary) open(path string) (*os.File, error) {
	dir := b.dirOf(path)
	if dir == "" {
		return nil, &RefusedError{Reason: fmt.Sprintf("the image %s lies outside of this node's image_dirs", path)}
	}
	root, err := unix.Open(dir, unix.O_DIRECTORY|unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: dir, Err: err}
	}
	defer unix.Close(root)
	fd, err := unix.Openat2(root, strings.TrimPrefix(path, dir+"/"), &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	info, err := f.Stat()
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		err = &RefusedError{Reason: fmt.Sprintf("the image %s is neither a file nor a directory", path)}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// checkImage says in words what apptainer would say after a while.
func (b *Boundary) checkImage(path string) error {
	f, err := b.open(path)
	if err != nil {
		return b.explainImage(path, err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if reason := fuseOff(); !info.IsDir() && reason != "" {
		return &RefusedError{Reason: reason}
	}
	return nil
}

// digest is the SHA-256 of an image file; a directory has none.
func (b *Boundary) digest(ctx context.Context, path string) (string, error) {
	f, err := b.open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		return "", err
	}
	key, err := keyOfInfo(info)
	if err != nil {
		return "", err
	}
	b.mu.Lock()
	known, ok := b.digests[key]
	b.mu.Unlock()
	if ok {
		return known, nil
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, &reader{ctx, f}); err != nil {
		return "", fmt.Errorf("read %s: %w", path, err)
	}
	digest := "sha256:" + hex.EncodeToString(sum.Sum(nil))
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.digests) >= maxDigests {
		clear(b.digests)
	}
	b.digests[key] = digest
	return digest, nil
}

// maxDigests bounds what is remembered.
const maxDigests = 256

// reader ends with its context: images are large.
type reader struct {
	ctx context.Context
	r   io.Reader
}

func (r *reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}

// explainImage gives the failures to find an image their words.
func (b *Boundary) explainImage(name string, err error) error {
	var refused *RefusedError
	switch {
	case errors.As(err, &refused):
		return err
	case errors.Is(err, fs.ErrNotExist):
		return &RefusedError{Err: errors.Join(isolation.ErrNoImage, err), Reason: fmt.Sprintf("the image %s is not in this node's image_dirs (%s). Put it there, or correct its name", name, orNone(b.options.ImageDirs))}
	case errors.Is(err, unix.EXDEV), errors.Is(err, unix.ELOOP):
		return &RefusedError{Err: err, Reason: fmt.Sprintf("the image %s is a link that leads out of this node's image_dirs. Put the image itself there", name)}
	}
	return fmt.Errorf("image %s: %w", name, err)
}
