// SPDX-License-Identifier: MPL-2.0

package task

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"regexp"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/screen"
)

// agentDoorDir is the directory of agents' sockets in an alloc's shared directory.
const agentDoorDir = "botscreen"

// agentDoor is the socket <alloc>/alloc/botscreen/<task>.sock (wire.md, section 5): every
// task of the alloc can reach it, and change the directory above it. Nothing there is
// opened, made or given away by path (X6, X33).
type agentDoor struct {
	listener *os.File
	dir      *os.File // holds the socket; root's alone
	shared   *os.File // the alloc's shared directory, which everybody in the alloc may change
	name     string   // of the socket in dir
}

// socket is the name of the socket, empty where there is none.
func (d *agentDoor) socket() string {
	if d == nil {
		return ""
	}
	return d.name
}

// files are what the supervisor inherits, in the order of its descriptors.
func (d *agentDoor) files() []*os.File {
	if d == nil {
		return []*os.File{nil, nil, nil} // their numbers stay free, see FDAgent of driver/supervise
	}
	return []*os.File{d.listener, d.dir, d.shared}
}

// PlantedError says that something of somebody else's stands where the agent's socket
// belongs.
type PlantedError struct{ Path, What string }

func (e *PlantedError) Error() string { return fmt.Sprintf("%s %s", e.Path, e.What) }

// Sentence says it to an operator.
func (e *PlantedError) Sentence() string {
	return fmt.Sprintf("The agent's socket cannot be made: %s %s.", e.Path, e.What)
}

// openAgentDoor makes the socket anew. What stands in its way fails it: a link, a
// directory that others can change, anything but a socket.
func (r *runRecord) openAgentDoor() (door *agentDoor, err error) {
	if r.AllocDir == "" {
		return nil, nil
	}
	uid, gid, err := doorOwner(r.AgentSocket)
	if err != nil {
		return nil, err
	}
	path := filepath.Join(r.AllocDir, "alloc")
	d := &agentDoor{name: socketName(r.TaskName)}
	defer func() {
		if err != nil {
			closeAll(d.files())
			door = nil
			err = fmt.Errorf("make agent's socket: %w", err)
		}
	}()
	d.shared, err = openDir(path) // its parents are Nomad's, thus root's
	if errors.Is(err, unix.ENOENT) {
		return nil, nil // an agent without shared directories has no agents' sockets
	}
	if err != nil {
		return nil, err
	}
	path = filepath.Join(path, agentDoorDir)
	if d.dir, err = ensureDoorDir(d.shared, path); err != nil {
		return nil, err
	}
	if err = removeSocket(d.dir, d.name, filepath.Join(path, d.name)); err != nil {
		return nil, err
	}
	d.listener, err = bindIn(d.dir, d.name, func(inode int) error {
		return giveSocket(inode, uid, gid, uint32(r.AgentSocket.Mode.Perm()))
	})
	return d, err
}

// removeAgentDoor removes the socket of a run that is over, and its directory with the
// last one.
func (r *runRecord) removeAgentDoor() error {
	if r.AllocDir == "" {
		return nil
	}
	shared, err := openDir(filepath.Join(r.AllocDir, "alloc"))
	if errors.Is(err, unix.ENOENT) {
		return nil // the alloc is gone, and all of it
	}
	if err != nil {
		return err
	}
	defer shared.Close()
	dir, err := openDoorDir(shared, agentDoorDir)
	if err != nil {
		return nil // not ours (any more): nothing of it is touched
	}
	defer dir.Close()
	name := socketName(r.TaskName)
	if err := removeSocket(dir, name, name); err != nil {
		return err
	}
	_ = unix.Unlinkat(int(shared.Fd()), agentDoorDir, unix.AT_REMOVEDIR) // fails while another task has one
	return nil
}

var plainName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// socketName is the task's name, or a hash of one that is no plain file name (X42).
func socketName(task string) string {
	if !plainName.MatchString(task) {
		sum := sha256.Sum256([]byte(task))
		task = hex.EncodeToString(sum[:6])
	}
	return task + ".sock"
}

// doorOwner is whom the socket belongs to: the first uid that is accepted, so that it can
// connect, and the group.
func doorOwner(s screen.AgentSocket) (uid, gid int, err error) {
	uid, gid = os.Geteuid(), os.Getegid()
	if len(s.UIDs) > 0 {
		uid = int(s.UIDs[0])
	}
	if s.Group == "" {
		return uid, gid, nil
	}
	id, err := parseID(s.Group)
	if err != nil {
		found, lookup := user.LookupGroup(s.Group)
		if lookup == nil {
			id, lookup = parseID(found.Gid)
		}
		if lookup != nil {
			return 0, 0, screen.Faults{{Field: "agent_socket.group", Value: s.Group, Want: "is not a group of this node"}}
		}
	}
	return uid, int(id), nil
}

// ensureDoorDir makes the directory in the shared one, or takes one that is root's alone.
func ensureDoorDir(shared *os.File, path string) (*os.File, error) {
	err := unix.Mkdirat(int(shared.Fd()), agentDoorDir, 0o755)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	dir, err := openDoorDir(shared, path)
	if err != nil {
		return nil, err
	}
	if err := unix.Fchmod(int(dir.Fd()), 0o755); err != nil { // whatever this process' umask is
		_ = dir.Close()
		return nil, fmt.Errorf("make %s: %w", path, err)
	}
	return dir, nil
}

func openDoorDir(shared *os.File, path string) (*os.File, error) {
	fd, err := unix.Openat(int(shared.Fd()), agentDoorDir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ELOOP) || errors.Is(err, unix.ENOTDIR) {
		return nil, &PlantedError{path, "is a link or a file that a task of this allocation made; remove it"}
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	dir := os.NewFile(uintptr(fd), path)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		_ = dir.Close()
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	if int(stat.Uid) != os.Geteuid() || stat.Mode&0o022 != 0 {
		_ = dir.Close()
		return nil, &PlantedError{path, fmt.Sprintf("is a directory of uid %d with mode %04o that a task of this allocation made; remove it", stat.Uid, stat.Mode&0o7777)}
	}
	return dir, nil
}

// removeSocket removes an earlier run's socket from a directory that only we can change.
func removeSocket(dir *os.File, name, path string) error {
	var stat unix.Stat_t
	err := unix.Fstatat(int(dir.Fd()), name, &stat, unix.AT_SYMLINK_NOFOLLOW)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err == nil && stat.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return &PlantedError{path, "is not a socket; remove it"}
	}
	if err == nil {
		err = unix.Unlinkat(int(dir.Fd()), name, 0)
	}
	if err != nil {
		return fmt.Errorf("remove %s: %w", path, err)
	}
	return nil
}

// bindIn makes a listening socket in a directory, however long its path is. prepare gets
// the inode before anybody can connect.
func bindIn(dir *os.File, name string, prepare func(inode int) error) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	listener := os.NewFile(uintptr(fd), name)
	err = unix.Fchmod(fd, 0o600) // bind gives the inode the mode of the socket, see unix(7)
	if err == nil {
		err = unix.Bind(fd, &unix.SockaddrUnix{Name: fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), name)})
	}
	inode := -1
	if err == nil {
		inode, err = unix.Openat(int(dir.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	}
	if err == nil {
		defer unix.Close(inode)
		err = prepare(inode)
	}
	if err == nil {
		err = unix.Listen(fd, 64)
	}
	if err != nil {
		_ = listener.Close()
		return nil, err
	}
	return listener, nil
}

// giveSocket gives the inode away. It is the one that was bound: nobody else can change
// its directory.
func giveSocket(inode, uid, gid int, mode uint32) error {
	if uid != os.Geteuid() || gid != os.Getegid() {
		if err := unix.Fchownat(inode, "", uid, gid, unix.AT_EMPTY_PATH|unix.AT_SYMLINK_NOFOLLOW); err != nil {
			return fmt.Errorf("give it to uid %d, gid %d: %w", uid, gid, err)
		}
	}
	return unix.Chmod(fmt.Sprintf("/proc/self/fd/%d", inode), mode) // fchmod(2) refuses O_PATH
}
