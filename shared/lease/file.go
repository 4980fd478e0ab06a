// SPDX-License-Identifier: MPL-2.0

package lease

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Names in the control directory (wire.md section 5).
const (
	leaseFile = "lease.json"
	markFile  = "lease.epoch"
	lockFile  = "lease.lock"
	turnFile  = "lease.turn"
	spareEnd  = ".spare"
)

const (
	fileMode = 0o600
	// fileSize is what every file here is padded to, so that a rewrite needs no new
	// block.
	fileSize = 4 << 10
)

// lock takes the sibling lock file, shared or exclusive, and returns what gives it
// back. It also excludes other goroutines of this process.
//
// Whoever wants it holds the turn while waiting, so that it comes to all in their order:
// flock(2) alone lets one that has just given it back take it again before the one that
// waits has woken, wakes all that wait each time that happens, and lets readers that
// follow each other keep a writer out.
func lock(dir *os.Root, how int) (unlock func(), err error) {
	if turn, err := hold(dir, turnFile, unix.LOCK_EX); err == nil { // a full disk costs the order only
		defer turn.Close()
	}
	f, err := hold(dir, lockFile, how)
	if err != nil {
		return nil, err
	}
	return func() { f.Close() }, nil
}

// hold opens a file and locks it until it is closed.
func hold(dir *os.Root, name string, how int) (*os.File, error) {
	f, err := dir.OpenFile(name, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	for {
		err = unix.Flock(int(f.Fd()), how)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("flock %s: %w", name, err)
	}
	return f, nil
}

// read returns a file's content, fs.ErrNotExist when there is none, and an error
// when it is not a plain file that only the directory's owner can have written.
func read(dir *os.Root, name string) ([]byte, error) {
	info, err := dir.Lstat(name)
	if err != nil {
		return nil, err
	}
	if err := trusted(dir, info); err != nil {
		return nil, err
	}
	f, err := dir.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text := make([]byte, fileSize+1)
	switch n, err := io.ReadFull(f, text); err {
	case nil:
		return nil, fmt.Errorf("is larger than %d bytes", fileSize)
	case io.EOF, io.ErrUnexpectedEOF:
		return text[:n], nil
	default:
		return nil, err
	}
}

func trusted(dir *os.Root, info fs.FileInfo) error {
	if !info.Mode().IsRegular() {
		return fmt.Errorf("is no regular file: %s", info.Mode())
	}
	if info.Mode()&0o022 != 0 {
		return fmt.Errorf("others may write it: %s", info.Mode())
	}
	parent, err := dir.Stat(".")
	if err != nil {
		return err
	}
	file, ok := info.Sys().(*syscall.Stat_t)
	owner, ok2 := parent.Sys().(*syscall.Stat_t)
	if !ok || !ok2 || file.Uid != owner.Uid && file.Uid != 0 {
		return errors.New("belongs to somebody else than its directory")
	}
	return nil
}

// file is a file that is to be.
type file struct {
	name string
	text []byte
}

// write replaces files whole and durably, and none before the one in front of it. The
// new content goes into spare files, which then change places with the old ones: so a
// full disk does not keep a person from taking over. Readers must hold the lock.
//
// The directory is synced once for all: a file system that orders its metadata never
// has a later one's change without an earlier one's.
func write(dir *os.Root, files ...file) error {
	for _, f := range files {
		if len(f.text) > fileSize {
			return fmt.Errorf("%s: %d bytes, at most %d", f.name, len(f.text), fileSize)
		}
		if err := writeSpare(dir, f.name+spareEnd, f.padded()); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	for _, f := range files {
		if err := swap(d, dir, f.name+spareEnd, f.name); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	if err := d.Sync(); err != nil {
		return err
	}
	for _, f := range files {
		if _, err := dir.Lstat(f.name + spareEnd); errors.Is(err, fs.ErrNotExist) {
			// The first write, or a file system without exchange. Only a full disk needs it.
			writeSpare(dir, f.name+spareEnd, f.padded())
		}
	}
	return nil
}

func (f file) padded() []byte {
	return slices.Concat(f.text, bytes.Repeat([]byte(" "), fileSize-len(f.text)))
}

func writeSpare(dir *os.Root, spare string, content []byte) error {
	info, err := dir.Lstat(spare)
	if err == nil && trusted(dir, info) != nil {
		// What stood in the lease's place and was no file has come here.
		if err := dir.RemoveAll(spare); err != nil {
			return err
		}
	}
	f, err := dir.OpenFile(spare, os.O_WRONLY|os.O_CREATE, fileMode)
	if errors.Is(err, fs.ErrPermission) { // its mode was taken away
		if err := dir.Remove(spare); err != nil {
			return err
		}
		f, err = dir.OpenFile(spare, os.O_WRONLY|os.O_CREATE, fileMode)
	}
	if err != nil {
		return err
	}
	defer f.Close()
	if _, err := f.WriteAt(content, 0); err != nil {
		return err
	}
	if info, err = f.Stat(); err != nil {
		return err
	}
	if info.Size() != int64(len(content)) {
		err = f.Truncate(int64(len(content)))
	}
	if info.Mode().Perm() != fileMode {
		err = errors.Join(err, f.Chmod(fileMode))
	}
	if err != nil {
		return err
	}
	// A rewrite in place changes nothing of the file but its content and times, and the
	// times need not be kept: that takes a tenth of what a sync of all does.
	return os.NewSyscallError("fdatasync", unix.Fdatasync(int(f.Fd())))
}

// swap puts the spare in the place of name; d is the directory.
func swap(d *os.File, dir *os.Root, spare, name string) error {
	fd := int(d.Fd())
	switch err := unix.Renameat2(fd, spare, fd, name, unix.RENAME_EXCHANGE); err {
	case nil:
		return nil
	case unix.ENOENT, unix.EINVAL, unix.ENOSYS, unix.EOPNOTSUPP:
		return dir.Rename(spare, name)
	default:
		return &os.LinkError{Op: "exchange", Old: spare, New: name, Err: err}
	}
}
