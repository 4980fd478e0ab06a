// SPDX-License-Identifier: MPL-2.0

package lease

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Names in the control directory (wire.md section 5).
const (
	leaseFile = "lease.json"
	markFile  = "lease.epoch"
	lockFile  = "lease.lock"
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
func lock(dir *os.Root, how int) (unlock func(), err error) {
	f, err := dir.OpenFile(lockFile, os.O_RDWR|os.O_CREATE, fileMode)
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
		return nil, fmt.Errorf("flock %s: %w", lockFile, err)
	}
	return func() { f.Close() }, nil
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
	text, err := io.ReadAll(io.LimitReader(f, fileSize+1))
	if err == nil && len(text) > fileSize {
		err = fmt.Errorf("is larger than %d bytes", fileSize)
	}
	return text, err
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

// write replaces a file whole and durably. The new content goes into a spare file,
// which then changes places with the old one: so a full disk does not keep a
// person from taking over. Readers must hold the lock.
func write(dir *os.Root, name string, text []byte) error {
	if len(text) > fileSize {
		return fmt.Errorf("%d bytes, at most %d", len(text), fileSize)
	}
	padding := bytes.Repeat([]byte(" "), fileSize-len(text))
	if err := writeSpare(dir, name+spareEnd, append(text[:len(text):len(text)], padding...)); err != nil {
		return err
	}
	if err := swap(dir, name+spareEnd, name); err != nil {
		return err
	}
	if _, err := dir.Lstat(name + spareEnd); errors.Is(err, fs.ErrNotExist) {
		// The first write, or a file system without exchange. Only a full disk needs it.
		writeSpare(dir, name+spareEnd, append(padding, text...))
	}
	return nil
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
	if err := errors.Join(f.Truncate(int64(len(content))), f.Chmod(fileMode)); err != nil {
		return err
	}
	return f.Sync()
}

// swap puts the spare in the place of name and makes that durable.
func swap(dir *os.Root, spare, name string) error {
	d, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer d.Close()
	fd := int(d.Fd())
	switch err := unix.Renameat2(fd, spare, fd, name, unix.RENAME_EXCHANGE); err {
	case nil:
	case unix.ENOENT, unix.EINVAL, unix.ENOSYS, unix.EOPNOTSUPP:
		if err := dir.Rename(spare, name); err != nil {
			return err
		}
	default:
		return &os.LinkError{Op: "exchange", Old: spare, New: name, Err: err}
	}
	return d.Sync()
}
