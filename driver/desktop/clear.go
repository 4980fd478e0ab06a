// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/jezek/xgb/res"
	"github.com/jezek/xgb/xproto"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
)

// EndMarked kills what was started marked, with all that it started, and returns when
// nobody of it is left (rule X20). A *SurvivorsError names who is.
func (d *Desktop) EndMarked(ctx context.Context) error {
	return d.endChosen(ctx, marked())
}

// Clear leaves the desktop and the job's own command, and nothing else (threats.md X3):
// every other process below this one is killed, and then every X client is cut off that
// does not belong to one of those. The error says what could not be done.
func (d *Desktop) Clear(ctx context.Context) error {
	// The self-test of the fence is a process of ours; ended, it would call the fence weak.
	if _, err := d.Fence(ctx); err != nil {
		return fmt.Errorf("clear desktop: %w", err)
	}
	err := d.endChosen(ctx, func(pid int) bool {
		_, ours := d.own()[pid]
		return !ours
	})
	if err != nil {
		return err
	}
	return d.cutClients(ctx)
}

// endChosen kills until no chosen process is left: who dies hands its children to us, and
// somebody may fork meanwhile.
func (d *Desktop) endChosen(ctx context.Context, chosen func(pid int) bool) error {
	for {
		if len(living(chosen)) == 0 {
			return nil
		}
		if ctx.Err() != nil {
			return survivorsError(living(chosen))
		}
		const round = 500 * time.Millisecond
		signalAll(unix.SIGKILL, round, chosen)
	}
}

// own are the processes of the plan, by pid: the desktop's components, and the job's
// command with what it started.
func (d *Desktop) own() map[int]struct{} {
	own := d.ofDesktop()
	d.mu.Lock()
	command := d.command
	d.mu.Unlock()
	if command != nil {
		own[command.pid] = struct{}{}
		for _, pid := range below(command.pid) {
			own[pid] = struct{}{}
		}
	}
	return own
}

// ofDesktop are Xvnc, bus, xfconfd and the Xfce components with the panel's plugins, by
// pid.
func (d *Desktop) ofDesktop() map[int]struct{} {
	d.mu.Lock()
	programs := slices.Concat(d.core, d.parts)
	d.mu.Unlock()
	own := map[int]struct{}{}
	for _, c := range programs {
		own[c.pid] = struct{}{}
		if c.name != namePanel {
			continue
		}
		for _, pid := range below(c.pid) {
			if isPanelPlugin(pid) {
				own[pid] = struct{}{}
			}
		}
	}
	return own
}

func below(pid int) []int {
	pids, err := process.Descendants(pid)
	if err != nil {
		return nil
	}
	return pids
}

// isPanelPlugin knows the program that runs the panel's plugins by the file it runs.
func isPanelPlugin(pid int) bool {
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && strings.HasPrefix(filepath.Base(path), "wrapper-") && strings.Contains(path, "/xfce4/panel/") && strings.HasPrefix(path, "/usr/")
}

// cutClients ends the X connections of everybody who is not of the plan, such as a
// program outside that was given a cookie or a connection.
func (d *Desktop) cutClients(ctx context.Context) error {
	_, err := watched(ctx, d, "cut X clients off", func() (struct{}, error) { return struct{}{}, d.view.cutClients(d.ownClients()) })
	return err
}

// ownClients are whose connections stay: the plan's, and ours.
func (d *Desktop) ownClients() map[int]struct{} {
	own := maps.Clone(d.own())
	own[os.Getpid()] = struct{}{}
	return own
}

// cutClients ends the connection of every client whose process, by the X server's word, is
// not one of these (X-Resource 1.2). It fails while one is left.
func (x *xclient) cutClients(keep map[int]struct{}) error {
	if err := x.extension(extensionResource); err != nil {
		return fmt.Errorf("cut X clients off: %w", err)
	}
	if _, err := res.QueryVersion(x.conn, 1, 2).Reply(); err != nil {
		return fmt.Errorf("cut X clients off: %w", err)
	}
	const rounds = 3 // a program that ends takes a moment to be gone
	var left []string
	for range rounds {
		strangers, err := x.strangers(keep)
		if err != nil {
			return fmt.Errorf("cut X clients off: %w", err)
		}
		left = nil
		for client, pid := range strangers {
			if err := x.cut(client, pid); err != nil {
				left = append(left, fmt.Sprintf("of pid %d: %v", pid, err))
			}
		}
		if len(strangers) == 0 {
			return nil
		}
	}
	if len(left) == 0 {
		return errors.New("cut X clients off: new ones come")
	}
	return fmt.Errorf("cut X clients off: %s", strings.Join(left, ", "))
}

// strangers are the clients of other processes, with those. One of which the server does
// not know the process, 0, is none of ours.
func (x *xclient) strangers(keep map[int]struct{}) (map[uint32]int, error) {
	clients, err := res.QueryClients(x.conn).Reply()
	if err != nil {
		return nil, err
	}
	strangers := map[uint32]int{}
	for _, client := range clients.Clients {
		if client.ResourceBase == 0 {
			continue // the server itself
		}
		pid, err := x.clientPID(client.ResourceBase)
		if isXError(err) {
			continue // it has left meanwhile
		}
		if err != nil {
			return nil, err
		}
		if _, stays := keep[pid]; !stays {
			strangers[client.ResourceBase] = pid
		}
	}
	return strangers, nil
}

// clientPID is the process of a client, 0 where the server does not know it.
func (x *xclient) clientPID(client uint32) (int, error) {
	reply, err := res.QueryClientIds(x.conn, 1, []res.ClientIdSpec{{Client: client, Mask: res.ClientIdMaskLocalClientPID}}).Reply()
	if err != nil {
		return 0, err
	}
	for _, id := range reply.Ids {
		if id.Spec.Mask&res.ClientIdMaskLocalClientPID != 0 && len(id.Value) > 0 {
			return int(int32(id.Value[0])), nil
		}
	}
	return 0, nil
}

// cut ends a client by one of its resources, as the X protocol has it (KillClient). One
// that has none, such as a program that only polls the keyboard, ends with its process.
func (x *xclient) cut(client uint32, pid int) error {
	reply, err := res.QueryResourceBytes(x.conn, client, 1, []res.ResourceIdSpec{{}}).Reply()
	if err != nil && !isXError(err) {
		return err
	}
	if err == nil {
		for _, r := range reply.Sizes {
			if id := r.Size.Spec.Resource; id != 0 && xproto.KillClientChecked(x.conn, id).Check() == nil {
				return nil
			}
		}
	}
	if pid <= 0 {
		return errors.New("it has no resource and no known process")
	}
	if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
		return err
	}
	return nil
}
