// SPDX-License-Identifier: MPL-2.0

// Package slot keeps named files in a directory that only we may enter. Whoever has the kernel's lock
// (flock(2)) on a file holds that slot, and the kernel frees it when the holder's process dies.
//
// It is what makes one set of display numbers, memory promises and start slots per node, however many
// plugin processes run there (docs: wire, section 5, `<run_dir>/node/`).
package slot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

// ErrHeld says that another holder, in this process or another one, has the slot.
var ErrHeld = errors.New("held by another process")

// Dir is a directory of slots. It is safe for concurrent use.
type Dir struct {
	root *os.Root
	path string
}

// Open opens the directory at path and makes it, mode 0700, when it is missing; its parent must exist.
//
// A directory that is a link, belongs to another user, or lets anybody else in is refused, and so is a parent
// that others may write to: a lock that others can open is a lock they can hold for ever.
func Open(path string) (*Dir, error) {
	parent, err := os.OpenRoot(filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("open slots %s: %w", path, err)
	}
	defer parent.Close()
	info, err := parent.Stat(".")
	if err != nil {
		return nil, fmt.Errorf("open slots %s: %w", path, err)
	}
	if info.Mode().Perm()&0o022 != 0 {
		return nil, fmt.Errorf("open slots %s: others may write to its parent (mode %04o)", path, info.Mode().Perm())
	}
	return openIn(parent, filepath.Base(path), path)
}

// Sub opens the directory name inside d and makes it, mode 0700, when it is missing. It checks what [Open] checks.
func (d *Dir) Sub(name string) (*Dir, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	return openIn(d.root, name, filepath.Join(d.path, name))
}

func openIn(parent *os.Root, name, path string) (*Dir, error) {
	if err := parent.Mkdir(name, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, fmt.Errorf("make slots %s: %w", path, err)
	}
	info, err := parent.Lstat(name)
	if err != nil {
		return nil, fmt.Errorf("open slots %s: %w", path, err)
	}
	if why := notPrivate(info); why != "" {
		return nil, fmt.Errorf("open slots %s: %s", path, why)
	}
	root, err := parent.OpenRoot(name)
	if err != nil {
		return nil, fmt.Errorf("open slots %s: %w", path, err)
	}
	return &Dir{root: root, path: path}, nil
}

// notPrivate says why a directory is not ours alone, or "".
func notPrivate(info fs.FileInfo) string {
	stat, ok := info.Sys().(*syscall.Stat_t)
	switch {
	case !info.IsDir():
		return "not a directory"
	case ok && int(stat.Uid) != os.Geteuid():
		return fmt.Sprintf("owned by uid %d, want %d", stat.Uid, os.Geteuid())
	case info.Mode().Perm()&0o077 != 0:
		return fmt.Sprintf("mode %04o lets others in, want 0700", info.Mode().Perm())
	}
	return ""
}

// Path is where the directory was opened, for error texts.
func (d *Dir) Path() string { return d.path }

// Close closes the directory. Slots taken from it stay held.
func (d *Dir) Close() error { return d.root.Close() }

// Names lists the files in d, held or not, in no order.
func (d *Dir) Names() ([]string, error) {
	f, err := d.root.Open(".")
	if err != nil {
		return nil, fmt.Errorf("list slots %s: %w", d.path, err)
	}
	defer f.Close()
	names, err := f.Readdirnames(-1)
	if err != nil {
		return nil, fmt.Errorf("list slots %s: %w", d.path, err)
	}
	return names, nil
}

// Try takes the slot name if nobody has it. It never waits; a slot that is held is [ErrHeld].
func (d *Dir) Try(name string) (*Slot, error) {
	s, err := d.open(name)
	if err != nil {
		return nil, err
	}
	if err := flock(s.file, syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		s.file.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			err = ErrHeld
		}
		return nil, fmt.Errorf("take slot %s: %w", s.path(), err)
	}
	return s, nil
}

// Wait takes the slot name as soon as it is free or returns the context's cause.
//
// flock(2) cannot be called off. A wait that is given up leaves one sleeping thread behind, which takes the
// slot when it falls free and lets it go at once.
func (d *Dir) Wait(ctx context.Context, name string) (*Slot, error) {
	s, err := d.Try(name)
	if !errors.Is(err, ErrHeld) {
		return s, err
	}
	taken := make(chan waited)
	go func() {
		s, err := d.Block(name)
		select {
		case taken <- waited{s, err}:
		case <-ctx.Done():
			if s != nil {
				s.Release()
			}
		}
	}()
	select {
	case w := <-taken:
		return w.slot, w.err
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for slot %s: %w", filepath.Join(d.path, name), context.Cause(ctx))
	}
}

type waited struct {
	slot *Slot
	err  error
}

// Block takes the slot name and sleeps in the kernel until it is free, however long that is. Callers that must
// be able to give up use [Dir.Wait].
func (d *Dir) Block(name string) (*Slot, error) {
	s, err := d.open(name)
	if err != nil {
		return nil, err
	}
	if err := flock(s.file, syscall.LOCK_EX); err != nil {
		s.file.Close()
		return nil, fmt.Errorf("take slot %s: %w", s.path(), err)
	}
	return s, nil
}

// Gone sleeps in the kernel until nobody holds the slot name. A slot without a file is held by nobody.
func (d *Dir) Gone(name string) error {
	f, err := d.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("watch slot %s: %w", filepath.Join(d.path, name), err)
	}
	defer f.Close()
	// A shared lock: several may watch the same holder, and none of them delays another one.
	if err := flock(f, syscall.LOCK_SH); err != nil {
		return fmt.Errorf("watch slot %s: %w", filepath.Join(d.path, name), err)
	}
	return nil
}

// Held reports whether somebody holds the slot name now.
func (d *Dir) Held(name string) (bool, error) {
	f, err := d.root.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("look at slot %s: %w", filepath.Join(d.path, name), err)
	}
	defer f.Close()
	switch err := flock(f, syscall.LOCK_SH|syscall.LOCK_NB); {
	case err == nil:
		return false, nil
	case errors.Is(err, syscall.EWOULDBLOCK):
		return true, nil
	default:
		return false, fmt.Errorf("look at slot %s: %w", filepath.Join(d.path, name), err)
	}
}

// Read returns at most limit bytes of what the holder of the slot name wrote into it.
func (d *Dir) Read(name string, limit int64) ([]byte, error) {
	f, err := d.root.Open(name)
	if err != nil {
		return nil, fmt.Errorf("read slot %s: %w", filepath.Join(d.path, name), err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit))
	if err != nil {
		return nil, fmt.Errorf("read slot %s: %w", filepath.Join(d.path, name), err)
	}
	return data, nil
}

// Remove unlinks the file of the slot name; a missing one is no error.
//
// Only for names that are never used twice: somebody who waits for the old file and somebody who makes the new
// one would both hold the slot.
func (d *Dir) Remove(name string) error {
	if err := d.root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove slot %s: %w", filepath.Join(d.path, name), err)
	}
	return nil
}

func (d *Dir) open(name string) (*Slot, error) {
	if err := checkName(name); err != nil {
		return nil, err
	}
	// Go opens with O_CLOEXEC: a desktop we start must not inherit the lock and keep it.
	f, err := d.root.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("open slot %s: %w", filepath.Join(d.path, name), err)
	}
	return &Slot{dir: d, name: name, file: f}, nil
}

func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") {
		return fmt.Errorf("slot name %q: not a file name", name)
	}
	return nil
}

// flock repeats the call when a signal interrupts it; the runtime sends itself signals all the time.
func flock(f *os.File, how int) error {
	for {
		err := syscall.Flock(int(f.Fd()), how)
		if !errors.Is(err, syscall.EINTR) {
			return err
		}
	}
}

// Slot is a slot that this process holds until [Slot.Release] or its death.
type Slot struct {
	dir  *Dir
	name string
	file *os.File
}

// Name is the slot's name in its directory.
func (s *Slot) Name() string { return s.name }

// Set replaces what stands in the slot's file.
func (s *Slot) Set(data []byte) error {
	if err := s.file.Truncate(0); err != nil {
		return fmt.Errorf("write slot %s: %w", s.path(), err)
	}
	if _, err := s.file.WriteAt(data, 0); err != nil {
		return fmt.Errorf("write slot %s: %w", s.path(), err)
	}
	return nil
}

// Release gives the slot back. Further calls do nothing.
func (s *Slot) Release() {
	// Closing the only descriptor drops the lock; an error leaves nothing to do, the descriptor is gone either way.
	_ = s.file.Close()
}

func (s *Slot) path() string { return filepath.Join(s.dir.path, s.name) }
