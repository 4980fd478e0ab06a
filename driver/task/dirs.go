// SPDX-License-Identifier: MPL-2.0

package task

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/screen"
)

// places are one screen's directories (wire.md section 5). Every parent belongs to
// root; only the leaves belong to a screen's accounts, and root never opens a path
// below a leaf.
type places struct {
	control string // the supervisor's: lease, record, log
	data    string // the session's: HOME
	run     string // this run's, root's
	dial    string // the supervisor's dial-home socket and nothing else
	x       string // the session's: Xauthority, sockets
	op      string // the operator socket
	scratch string // root-only files of the boundary
}

func (s Settings) places(id screen.ID) places {
	run := filepath.Join(s.RunDir, id.Hash())
	return places{
		control: filepath.Join(s.StateDir, "control", id.NamespaceDir(), id.ProfileDir()),
		data:    filepath.Join(s.StateDir, "data", id.NamespaceDir(), id.ProfileDir()),
		run:     run,
		dial:    filepath.Join(run, "dial"),
		x:       filepath.Join(run, "x"),
		op:      filepath.Join(run, "op"),
		scratch: filepath.Join(run, "boundary"),
	}
}

// maxSocketPath is sun_path without its NUL, see unix(7).
const maxSocketPath = 107

// check refuses paths a socket cannot have, before anything is made.
func (p places) check() error {
	longest := filepath.Join(p.x, "rfb.sock")
	if len(longest) > maxSocketPath {
		return fmt.Errorf("socket path %s has %d bytes, at most %d: use a shorter run_dir", longest, len(longest), maxSocketPath)
	}
	return nil
}

// ensureParents makes the root-owned directories above a screen's leaves.
func (s Settings) ensureParents(p places) error {
	errs := []error{ensureDir(s.StateDir, 0o711), ensureDir(s.RunDir, 0o711)}
	for _, tree := range []string{p.control, p.data} {
		namespace := filepath.Dir(tree)
		errs = append(errs, ensureDir(filepath.Dir(namespace), 0o711), ensureDir(namespace, 0o711))
	}
	return errors.Join(errs...)
}

// ensureLeaf makes a directory that belongs to uid:gid, 0700. Its parent is root's, so
// nobody can swap it between the calls; an existing one is given to the account only
// as itself, never what is in it.
func ensureLeaf(path string, uid, gid uint32) error {
	if err := os.Mkdir(path, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("make directory: %w", err)
	}
	fd, err := unix.Open(path, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_RDONLY, 0)
	if err != nil {
		return fmt.Errorf("make directory %s: %w", path, err)
	}
	defer unix.Close(fd)
	if privileged() {
		if err := unix.Fchown(fd, int(uid), int(gid)); err != nil {
			return fmt.Errorf("make directory %s: %w", path, err)
		}
	}
	if err := unix.Fchmod(fd, 0o700); err != nil {
		return fmt.Errorf("make directory %s: %w", path, err)
	}
	return nil
}

// makeRun makes the run directory anew: whatever an earlier run left is gone.
func (p places) makeRun(uid, gid uint32) error {
	if err := p.removeRun(); err != nil {
		return err
	}
	err := errors.Join(
		ensureDir(p.run, 0o711),
		ensureDir(p.dial, 0o711),
		ensureDir(p.scratch, 0o700),
		ensureLeaf(p.x, uid, gid),
	)
	if err != nil {
		return fmt.Errorf("make run directory: %w", err)
	}
	return nil
}

// removeRun deletes the run directory. os.RemoveAll walks by descriptors and follows
// no link, so what the session left in x cannot lead it elsewhere.
func (p places) removeRun() error {
	if err := isolation.Unbind(p.run); err != nil { // what a job bound is not ours to delete
		return fmt.Errorf("remove run directory: %w", err)
	}
	if err := os.RemoveAll(p.run); err != nil {
		return fmt.Errorf("remove run directory: %w", err)
	}
	return nil
}

// listenOperator makes the operator socket: root's alone.
func (p places) listenOperator() (*os.File, error) {
	return listen("unix", p.op, 0o600)
}

// listenDial makes the dial-home socket. Everybody may connect to the inode, because
// that is what a session in a read-only mount needs; who is let in is the kernel's
// word (X13).
func (p places) listenDial() (*os.File, error) {
	return listen("unixpacket", filepath.Join(p.dial, "s"), 0o666)
}

// listen binds a socket in a root-owned directory and returns it as a file to hand on.
func listen(network, path string, mode os.FileMode) (*os.File, error) {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	listener, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	listener.SetUnlinkOnClose(false)
	defer listener.Close()
	if err := os.Chmod(path, mode); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	f, err := listener.File()
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return f, nil
}

func uidOf(info fs.FileInfo) uint32 {
	if stat, ok := info.Sys().(*syscall.Stat_t); ok {
		return stat.Uid
	}
	return 0
}
