// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/screen"
)

// doorLookEvery is how often it is looked whether the socket is still the one that is
// served (X33).
const doorLookEvery = 2 * time.Second

// agentDirName is the directory's name in the alloc's shared directory.
const agentDirName = "botscreen"

// agentDoor is the agent's socket, which the plugin bound, and where it is.
type agentDoor struct {
	listener *net.UnixListener
	dir      *os.File // holds the socket
	shared   *os.File // holds dir; other tasks can change it
	name     string
}

func inheritedAgentDoor(c Config) (*agentDoor, error) {
	if c.AgentDoor == "" {
		return nil, nil
	}
	listener, err := inheritedListener[*net.UnixListener](FDAgent)
	if err != nil {
		return nil, err
	}
	listener.SetUnlinkOnClose(false) // the path is the plugin's
	return &agentDoor{
		listener: listener, dir: os.NewFile(FDAgentDir, agentDirName), shared: os.NewFile(FDAgentShared, "shared directory"), name: c.AgentDoor,
	}, nil
}

// serveAgents answers those that the job names, and root, who could act in any case. The
// mode of the socket is no protection: a group can be large (X33).
func (s *supervisor) serveAgents(api *controlserver.Server, d *agentDoor) error {
	return api.ServeDoor(d.listener, controlserver.Door{Role: screen.RoleAgent, Accept: s.refusalOfAgent})
}

func (s *supervisor) refusalOfAgent(c controlserver.Caller) *control.Error {
	if c.UID == 0 || c.UID > 0 && slices.Contains(s.config.AgentSocket.UIDs, uint32(c.UID)) {
		return nil
	}
	return &control.Error{Kind: control.Forbidden,
		Message: fmt.Sprintf("This is the door of the screen's agent, and uid %d is not among those that the job accepts.", c.UID),
		Next:    "Name it in the job: agent_socket { uids = [...] }."}
}

// watchAgentDoor says when the path of the socket leads to another one: a task of the
// alloc can rename the directory and play the screen to the agent (X33). It is never
// opened by path again, and what is served stays what it was.
func (s *supervisor) watchAgentDoor(ctx context.Context, d *agentDoor) {
	at := d.place()
	ticker := time.NewTicker(doorLookEvery)
	defer ticker.Stop()
	for was := true; ; {
		is := d.leadsTo(at)
		if was && !is {
			const text = "The agent's socket in the alloc directory was replaced by another task: what connects there does not reach this screen"
			s.log.Warn(text)
			s.note(control.EventAgentDoor, text)
		}
		s.mu.Lock()
		s.doorLost = !is
		s.mu.Unlock()
		was = is
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
	}
}

// doorPlace is what the path has to lead to.
type doorPlace struct{ dir, socket inode }

type inode struct{ dev, number uint64 }

func inodeOf(s unix.Stat_t) inode { return inode{uint64(s.Dev), s.Ino} }

// place is where the socket is now; zero where that cannot be seen.
func (d *agentDoor) place() (p doorPlace) {
	var stat unix.Stat_t
	if unix.Fstat(int(d.dir.Fd()), &stat) == nil {
		p.dir = inodeOf(stat)
	}
	if unix.Fstatat(int(d.dir.Fd()), d.name, &stat, unix.AT_SYMLINK_NOFOLLOW) == nil {
		p.socket = inodeOf(stat)
	}
	return p
}

func (d *agentDoor) leadsTo(at doorPlace) bool {
	var stat unix.Stat_t
	err := unix.Fstatat(int(d.shared.Fd()), agentDirName, &stat, unix.AT_SYMLINK_NOFOLLOW)
	return err == nil && inodeOf(stat) == at.dir && d.place().socket == at.socket
}
