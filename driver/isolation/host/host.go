// SPDX-License-Identifier: MPL-2.0

// Package host runs a session directly on the node, under an account of its own, in a
// cgroup and a mount namespace of its own. It is no sandbox: it is refused unless the
// plugin's configuration says allow_unsandboxed_host and the job asks for it.
package host

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
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
		r.Cgroup = groupName(order)
	}
	return r
}

// groupName is this run's own: two drivers with other directories may each have a screen
// of the same name.
func groupName(order isolation.Order) string {
	return order.ID.Hash() + "-" + order.Instance[:8]
}

// Launch starts the session. It gets no privilege, no environment of the plugin and no
// descriptor but its log; the plan reaches it from its supervisor.
func (b *Boundary) Launch(ctx context.Context, order isolation.Order) (isolation.Sandbox, error) {
	group, err := b.createGroup(order)
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

// createGroup is nil without error where this node lets us make none.
func (b *Boundary) createGroup(order isolation.Order) (*cgroup.Group, error) {
	if b.Cgroups == nil {
		return nil, nil
	}
	group, err := b.Cgroups.Create(groupName(order), order.Limits)
	var unavailable *cgroup.UnavailableError
	if errors.As(err, &unavailable) {
		return nil, nil
	}
	return group, err
}

func (b *Boundary) openGroup(name string) (*cgroup.Group, error) {
	if b.Cgroups == nil || name == "" {
		return nil, nil
	}
	group, err := b.Cgroups.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nothing of the screen is left in it
	}
	return group, err
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
	for _, dir := range order.JoinCgroups {
		if err := joinCgroup(dir, cmd.Process.Pid); err != nil {
			return nil, err
		}
	}
	if !order.Account.Inherited {
		if err := checkIdentity(cmd.Process.Pid, order.Account); err != nil {
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

// joinCgroup puts the process into a group that Nomad made. One that is not there is no
// failure: an agent without privilege makes none.
func joinCgroup(dir string, pid int) error {
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("join Nomad's cgroup: %w", err)
	}
	defer f.Close()
	if _, err := fmt.Fprint(f, pid); err != nil {
		return fmt.Errorf("join Nomad's cgroup %s: %w", dir, err)
	}
	return nil
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
	group, err := b.openGroup(record.Cgroup)
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
	if s.record.Scratch != "" {
		errs = append(errs, os.RemoveAll(s.record.Scratch))
	}
	return errors.Join(errs...)
}

func (s *sandbox) OOMKilled() bool {
	if s.group == nil {
		return false
	}
	n, err := s.group.OOMKills()
	return err == nil && n > 0
}

func (s *sandbox) Usage(context.Context) (isolation.Usage, error) {
	if s.group == nil {
		return isolation.Usage{}, errors.New("measure screen: it has no cgroup on this node")
	}
	stats, err := s.group.Stats()
	if err != nil {
		return isolation.Usage{}, fmt.Errorf("measure screen: %w", err)
	}
	pids, err := s.group.Procs()
	if err != nil {
		return isolation.Usage{}, fmt.Errorf("measure screen: %w", err)
	}
	return isolation.Usage{Stats: stats, PIDs: pids}, nil
}
