// SPDX-License-Identifier: MPL-2.0

package isolation

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// Volume is a directory or file of the node that is seen inside.
type Volume struct {
	Base     string // a directory that is root's or Nomad's
	Path     string // below Base, where others may write
	Target   string // absolute, inside
	ReadOnly bool
}

// Open takes hold of the source: below its base and over no link, so whoever swaps a
// name on the way between check and use gains nothing (X5, openat2(2)).
func (v Volume) Open() (*os.File, error) {
	base, err := unix.Open(v.Base, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: v.Base, Err: err}
	}
	defer unix.Close(base)
	fd, err := unix.Openat2(base, v.Path, &unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	path := filepath.Join(v.Base, v.Path)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	info, err := f.Stat()
	if err == nil && !info.IsDir() && !info.Mode().IsRegular() {
		// A socket would be somebody's door, a device the node's.
		err = &fs.PathError{Op: "bind", Path: path, Err: errors.New("it is neither a directory nor a regular file")}
	}
	if err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
