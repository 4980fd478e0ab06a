// SPDX-License-Identifier: MPL-2.0

package task

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/screen"
)

// maxTLSFile bounds a certificate or key file in bytes.
const maxTLSFile = 256 << 10

// ViewerError says why a screen cannot have its viewer listener. It never holds what is
// in a file.
type ViewerError struct {
	What string
	Err  error
}

func (e *ViewerError) Error() string { return "open viewer listener: " + e.What + ": " + e.Err.Error() }
func (e *ViewerError) Unwrap() error { return e.Err }

// Sentence says it to the author of the job.
func (e *ViewerError) Sentence() string {
	return fmt.Sprintf("The viewer listener cannot be opened: %s: %v.", e.What, e.Err)
}

// CheckViewerAddress refuses an address that others can reach without TLS (X43).
func CheckViewerAddress(v *screen.ViewerListener, at netip.AddrPort) error {
	if v == nil || v.TLSCert != "" || at.Addr().Unmap().IsLoopback() {
		return nil
	}
	var faults screen.Faults
	faults.Add("viewer.tls_cert", "", fmt.Sprintf("is required, with viewer.tls_key: port %q is at %s, which others can reach", v.Port, at))
	return faults.Err()
}

// viewerTLS is the certificate and key of a listener as PEM, both nil where the job names
// none.
type viewerTLS struct{ cert, key []byte }

// checkViewer reads the job's files once before anything is started for it.
func (s *start) checkViewer(context.Context) error {
	_, err := s.record.readViewerTLS()
	return err
}

// readViewerTLS reads the files with the rights of the desktop's account, beneath the
// task's directory, and follows no link there: the job names them, and the desktop may
// have changed what is in its directories (X22).
func (r *runRecord) readViewerTLS() (viewerTLS, error) {
	if r.Viewer == nil || r.Viewer.TLSCert == "" {
		return viewerTLS{}, nil
	}
	task := filepath.Join(r.AllocDir, r.TaskName)
	var files viewerTLS
	for _, f := range []struct {
		option, name string
		into         *[]byte
	}{{"viewer.tls_cert", r.Viewer.TLSCert, &files.cert}, {"viewer.tls_key", r.Viewer.TLSKey, &files.key}} {
		text, err := readTaskFile(task, f.name, r.Account.UID, r.Account.GID)
		if err != nil {
			return viewerTLS{}, &ViewerError{fmt.Sprintf("%s = %q", f.option, screen.Distrust(f.name).String()), err}
		}
		*f.into = text
	}
	return files, nil
}

var errOutside = errors.New("is not below the task's directory")

// readTaskFile reads a regular file beneath a task's directory as uid and gid.
func readTaskFile(task, name string, uid, gid uint32) ([]byte, error) {
	if filepath.IsAbs(name) {
		below, ok := strings.CutPrefix(filepath.Clean(name), task+"/")
		if !ok {
			return nil, errOutside
		}
		name = below
	}
	dir, err := openDir(task) // Nomad's own directory, whose parents are root's
	if err != nil {
		return nil, errors.New("the task's directory cannot be opened")
	}
	defer dir.Close()
	var text []byte
	err = asAccount(uid, gid, func() error {
		text, err = readBeneath(dir, name)
		return err
	})
	return text, err
}

func readBeneath(dir *os.File, name string) ([]byte, error) {
	fd, err := unix.Openat2(int(dir.Fd()), name, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK | unix.O_NOCTTY,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	})
	switch {
	case errors.Is(err, unix.EXDEV):
		return nil, errOutside
	case errors.Is(err, unix.ELOOP):
		return nil, errors.New("is behind a symbolic link")
	case err != nil:
		return nil, err // an errno alone
	}
	f := os.NewFile(uintptr(fd), name)
	defer f.Close()
	info, err := f.Stat()
	switch {
	case err != nil || !info.Mode().IsRegular():
		return nil, errors.New("is no regular file")
	case info.Size() > maxTLSFile:
		return nil, fmt.Errorf("has more than %d bytes", maxTLSFile)
	}
	text, err := io.ReadAll(io.LimitReader(f, maxTLSFile))
	if err != nil {
		return nil, errors.New("cannot be read")
	}
	return text, nil
}

// asAccount runs f on a thread whose rights to files are the account's alone.
func asAccount(uid, gid uint32, f func() error) error {
	if !privileged() {
		return f()
	}
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		result <- func() error {
			// Of this thread alone: the wrappers of the library would change all.
			if _, _, errno := unix.RawSyscall(unix.SYS_SETGROUPS, 0, 0, 0); errno != 0 {
				return os.NewSyscallError("setgroups", errno)
			}
			for call, id := range map[uintptr]uint32{unix.SYS_SETFSGID: gid, unix.SYS_SETFSUID: uid} {
				unix.RawSyscall(call, uintptr(id), 0, 0) // tells of no failure, see setfsuid(2)
				if now, _, _ := unix.RawSyscall(call, ^uintptr(0), 0, 0); uint32(now) != id {
					return errors.New("the desktop's account cannot be taken on")
				}
			}
			return f()
		}()
	}()
	return <-result
}

// viewerDoor is the socket of the listener and what it is served with.
type viewerDoor struct {
	listener *os.File
	tls      viewerTLS
}

// of is what the supervisor is told: nil where it gets no socket.
func (d viewerDoor) of(r *runRecord) *screen.ViewerListener {
	if d.listener == nil {
		return nil
	}
	return r.Viewer
}

// openViewerDoor binds the listener where Nomad put the port. A screen that runs goes on
// without it when that fails; the warning is for its status.
func (r *runRecord) openViewerDoor(runs bool) (door viewerDoor, warning string, err error) {
	if r.Viewer == nil {
		return viewerDoor{}, "", nil
	}
	files, err := r.readViewerTLS()
	if err == nil {
		door, err = bindViewer(r.ViewerAddress, files)
	}
	var refused *ViewerError
	if runs && errors.As(err, &refused) {
		return viewerDoor{}, refused.Sentence(), nil
	}
	return door, "", err
}

func bindViewer(at netip.AddrPort, files viewerTLS) (viewerDoor, error) {
	listener, err := net.ListenTCP("tcp", net.TCPAddrFromAddrPort(at))
	if err != nil {
		return viewerDoor{}, &ViewerError{at.String(), err}
	}
	defer listener.Close()
	f, err := listener.File()
	if err != nil {
		return viewerDoor{}, &ViewerError{at.String(), err}
	}
	return viewerDoor{f, files}, nil
}
