// SPDX-License-Identifier: MPL-2.0

// Package host runs a session directly on the node, under an account of its own, in a
// cgroup and a mount namespace of its own. It is no sandbox: it is refused unless the
// plugin's configuration says allow_unsandboxed_host and the job asks for it.
package host

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/namespace"
	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/shared/screen"
)

// sessionPath is the PATH of everything a session starts; the node's own does not
// matter (X8).
const sessionPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Boundary is the host isolation.
type Boundary struct {
	// Cgroups makes a group for each screen; nil where none can be made, so that a
	// screen has no limits and is found by its processes alone.
	Cgroups *cgroup.Tree
}

var _ isolation.Boundary = (*Boundary)(nil)

// Kind is screen.Host.
func (b *Boundary) Kind() screen.Isolation { return screen.Host }

// Intent names the cgroup: whatever a half launch started is in it.
func (b *Boundary) Intent(order isolation.Order) isolation.Record {
	r := isolation.Record{Isolation: screen.Host, Instance: order.Instance, Scratch: order.Scratch}
	if b.Cgroups != nil {
		r.Cgroup = isolation.GroupName(order)
	}
	return r
}

// Launch starts the session. It gets no privilege, no environment of the plugin and no
// descriptor but its log; the plan reaches it from its supervisor.
func (b *Boundary) Launch(ctx context.Context, order isolation.Order) (isolation.Sandbox, error) {
	group, err := isolation.CreateGroup(b.Cgroups, isolation.GroupName(order), order.Limits)
	if err != nil {
		return nil, fmt.Errorf("launch session: %w", err)
	}
	cmd := command(order)
	if err := start(cmd, order); err != nil {
		removeGroup(ctx, group)
		return nil, fmt.Errorf("launch session: %w", err)
	}
	s, err := b.admit(cmd, group, order)
	if err != nil {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		removeGroup(ctx, group)
		return nil, fmt.Errorf("launch session: %w", err)
	}
	go s.reap()
	return s, nil
}

func command(order isolation.Order) *exec.Cmd {
	cmd := exec.Command(order.Binary, "session", "--dial", order.DialDir+"/s")
	cmd.Env = []string{"PATH=" + sessionPath, "LANG=C.UTF-8"}
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = order.Log, order.ErrorLog
	// No parent-death signal: it is tied to a thread (DSP-19), and a session outlives
	// the plugin.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if !order.Account.Inherited {
		cmd.SysProcAttr.Credential = &syscall.Credential{
			Uid: order.Account.UID, Gid: order.Account.GID, Groups: order.Account.Groups,
		}
	}
	return cmd
}

// admit puts the new process into its cgroup and checks who it really is. It waits for
// its plan meanwhile, so nothing of it runs outside.
func (b *Boundary) admit(cmd *exec.Cmd, group *cgroup.Group, order isolation.Order) (*sandbox, error) {
	if group != nil {
		if err := group.Add(cmd.Process.Pid); err != nil {
			return nil, err
		}
	}
	isolation.ExposeToOOM(cmd.Process.Pid)
	for _, dir := range order.JoinCgroups {
		if err := namespace.JoinCgroup(dir, cmd.Process.Pid); err != nil {
			return nil, err
		}
	}
	if !order.Account.Inherited {
		if err := namespace.CheckIdentity(cmd.Process.Pid, order.Account); err != nil {
			return nil, err
		}
	}
	id, err := process.Observe(cmd.Process.Pid)
	if err != nil {
		return nil, err
	}
	record := b.Intent(order)
	record.Session = id
	return &sandbox{cmd: cmd, group: group, record: record, done: make(chan struct{})}, nil
}

func removeGroup(ctx context.Context, group *cgroup.Group) {
	if group == nil {
		return
	}
	_ = group.Kill(ctx)
	_ = group.Remove()
}

// Adopt finds the sandbox again by the record, never by a pid alone.
func (b *Boundary) Adopt(_ context.Context, record isolation.Record) (isolation.Sandbox, error) {
	group, err := isolation.OpenGroup(b.Cgroups, record)
	if err != nil {
		return nil, fmt.Errorf("adopt session: %w", err)
	}
	s := &sandbox{record: record, group: group, done: make(chan struct{})}
	handle, err := process.Open(record.Session)
	if errors.Is(err, process.ErrGone) {
		close(s.done)
		return s, nil
	}
	if err != nil {
		return nil, fmt.Errorf("adopt session: %w", err)
	}
	s.handle = handle
	go func() {
		<-handle.Done()
		close(s.done)
	}()
	return s, nil
}

// sandbox is one session on the host.
type sandbox struct {
	record isolation.Record
	group  *cgroup.Group // nil where no cgroup can be made
	cmd    *exec.Cmd     // nil where another process launched the session
	handle *process.Handle
	done   chan struct{}
	status isolation.Status // final once done is closed
}

var _ isolation.Warner = (*sandbox)(nil)

// Warnings say which limits this node could not give (X35).
func (s *sandbox) Warnings() []string { return isolation.GroupWarnings(s.group) }

// reap waits for the session as its parent.
func (s *sandbox) reap() {
	_ = s.cmd.Wait()
	if ws, ok := s.cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		s.status = isolation.Status{Code: 128 + int(ws.Signal()), Signal: int(ws.Signal())}
	} else {
		s.status = isolation.Status{Code: s.cmd.ProcessState.ExitCode()}
	}
	close(s.done)
}

func (s *sandbox) Session() process.Identity { return s.record.Session }
func (s *sandbox) Done() <-chan struct{}     { return s.done }
func (s *sandbox) Record() isolation.Record  { return s.record }

func (s *sandbox) Status() (isolation.Status, bool) {
	select {
	case <-s.done:
		return s.status, s.cmd != nil
	default:
		return isolation.Status{}, false
	}
}

// Kill ends the session and all below it. The session goes first, by its own handle:
// it could otherwise start what the cgroup's sweep has just passed. Where there is no
// cgroup the descendants are found while the session, their sub-reaper, still stands.
func (s *sandbox) Kill(ctx context.Context) error {
	var below []process.Identity
	if s.group == nil {
		below = s.descendants()
	}
	if s.record.Session.Alive() {
		handle, err := process.Open(s.record.Session)
		if err == nil {
			err = handle.Signal(unix.SIGKILL)
			_ = handle.Close()
		}
		if err != nil && !errors.Is(err, process.ErrGone) {
			return fmt.Errorf("kill session: %w", err)
		}
	}
	for _, id := range below {
		if h, err := process.Open(id); err == nil {
			_ = h.Signal(unix.SIGKILL)
			_ = h.Close()
		}
	}
	if s.group != nil {
		if err := s.group.Kill(ctx); err != nil {
			return fmt.Errorf("kill session: %w", err)
		}
	}
	select {
	case <-s.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kill session: pid %d still runs: %w", s.record.Session.PID, ctx.Err())
	}
}

func (s *sandbox) descendants() []process.Identity {
	if !s.record.Session.Alive() {
		return nil
	}
	pids, err := process.Descendants(s.record.Session.PID)
	if err != nil {
		return nil
	}
	var ids []process.Identity
	for _, pid := range pids {
		if id, err := process.Observe(pid); err == nil {
			ids = append(ids, id)
		}
	}
	return ids
}

// Remove takes the cgroup and the scratch files away.
func (s *sandbox) Remove(context.Context) error {
	var errs []error
	if s.handle != nil {
		_ = s.handle.Close()
	}
	if s.group != nil {
		errs = append(errs, s.group.Remove())
	}
	errs = append(errs, isolation.RemoveScratch(s.record))
	return errors.Join(errs...)
}

func (s *sandbox) OOMKilled() bool { return isolation.OOMKilled(s.group) }

func (s *sandbox) Usage(context.Context) (isolation.Usage, error) {
	return isolation.GroupUsage(s.group)
}
