// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/namespace"
	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/userns"
)

const (
	// startLimit bounds apptainer's own work before the session runs; a SIF file that it
	// cannot mount it unpacks.
	startLimit = time.Minute
	// lookEvery is how often the session is looked for: nothing tells of the moment in
	// which apptainer becomes the session.
	lookEvery = 3 * time.Millisecond
)

// Launch starts apptainer with the session as the first process of a pid namespace. The
// session gets its plan from its supervisor.
func (b *Boundary) Launch(ctx context.Context, order isolation.Order) (isolation.Sandbox, error) {
	s, err := b.launch(ctx, order)
	if err != nil {
		return nil, fmt.Errorf("launch session: %w", err)
	}
	return s, nil
}

func (b *Boundary) launch(ctx context.Context, order isolation.Order) (*sandbox, error) {
	if err := check(order); err != nil {
		return nil, err
	}
	program, err := b.program()
	if err != nil {
		return nil, &RefusedError{Reason: err.Error()}
	}
	if err := b.checkImage(order.Image); err != nil {
		return nil, err
	}
	group, err := isolation.CreateGroup(b.options.Cgroups, isolation.GroupName(order), order.Limits)
	if err != nil {
		return nil, err
	}
	s := &sandbox{record: b.Intent(order), group: group, done: make(chan struct{})}
	words, err := newWords(order.Scratch)
	if err != nil {
		return nil, errors.Join(err, s.discard(ctx))
	}
	defer words.close()
	if err := b.start(s, program, order, words); err != nil {
		return nil, errors.Join(err, s.discard(ctx))
	}
	if err := s.findSession(ctx, order, words); err != nil {
		return nil, errors.Join(err, s.discard(ctx))
	}
	go s.watch()
	return s, nil
}

// start starts apptainer inside of its cgroup and of its own view of the node.
func (b *Boundary) start(s *sandbox, program string, order isolation.Order, words *words) error {
	image := view{order.Scratch}.image()
	open := func() (*os.File, error) { return b.open(order.Image) }
	if order.Account.Inherited {
		image = order.Image // without privilege nothing can be mounted here
		f, err := open()
		if err != nil {
			return b.explainImage(order.Image, err)
		}
		_ = f.Close()
		if err := fillUnprivileged(order); err != nil {
			return err
		}
	}
	cmd := command(program, order, image)
	cmd.Stderr = words.file
	cmd.ExtraFiles = []*os.File{order.ErrorLog} // becomes the session's stderr
	enterView := func() error {
		if order.Account.Inherited {
			return nil
		}
		return enter(order, open)
	}
	s.cmd, s.exited = cmd, make(chan struct{})
	if err := startIn(cmd, s.group, order.JoinCgroups, enterView); err != nil {
		s.cmd = nil
		return b.explainImage(order.Image, err)
	}
	go func() {
		_ = cmd.Wait()
		close(s.exited)
	}()
	return nil
}

// fillUnprivileged is the scratch directory where nothing can be mounted.
func fillUnprivileged(order isolation.Order) error {
	v := view{order.Scratch}
	if err := fill(order, v); err != nil {
		return err
	}
	return makeSocketDir(v)
}

// findSession waits until apptainer has become the session: the process with our binary
// that is the first of a pid namespace below. It is checked before anybody relies on it.
func (s *sandbox) findSession(ctx context.Context, order isolation.Order, words *words) error {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	binary, err := os.Stat(order.Binary)
	if err != nil {
		return err
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if id, ok := firstBelow(s.cmd.Process.Pid, binary); ok {
			return s.admit(id, order)
		}
		select {
		case <-s.exited:
			return ended(s.cmd, words)
		case <-ctx.Done():
			return &RefusedError{Passes: true, Err: ctx.Err(), Reason: fmt.Sprintf("apptainer did not start the session within %s. Its last words: %s", startLimit, words.last())}
		case <-tick.C:
		}
	}
}

// unconfinedHint is what may be wrong where AppArmor lets only some programs make user
// namespaces: a package of apptainer brings a profile for itself, and one that was put
// elsewhere has none. root is the node's for "".
func unconfinedHint(program, root string) string {
	s, off := userns.Off(root)
	if !off || !s.AppArmor {
		return ""
	}
	return fmt.Sprintf(". On this node %s. If it is refused user namespaces, give %s an AppArmor profile with `userns`, as its package does, or run `sysctl -w %s=0`", s, program, s.Setting)
}

// ended is why apptainer ended without a session, in its own words.
func ended(cmd *exec.Cmd, words *words) error {
	return &RefusedError{
		Err:    fmt.Errorf("apptainer ended with %s: %s", cmd.ProcessState, words.last()),
		Reason: fmt.Sprintf("apptainer could not start the session (%s). Its last words: %s%s", cmd.ProcessState, words.last(), unconfinedHint(cmd.Path, "")),
	}
}

// firstBelow finds the process below pid that runs binary as pid 1 of its namespace.
func firstBelow(pid int, binary os.FileInfo) (process.Identity, bool) {
	below, err := process.Descendants(pid)
	if err != nil {
		return process.Identity{}, false
	}
	for _, pid := range below {
		id, err := process.Observe(pid)
		if err != nil || !runs(pid, binary) {
			continue
		}
		status, err := namespace.Status(pid)
		if err == nil && strings.HasSuffix(status["NSpid"], " 1") && id.Alive() {
			return id, true
		}
	}
	return process.Identity{}, false
}

func runs(pid int, binary os.FileInfo) bool {
	info, err := os.Stat("/proc/" + strconv.Itoa(pid) + "/exe")
	return err == nil && os.SameFile(info, binary)
}

// admit reads back from the kernel who the session is and what is around it (X7, X29).
func (s *sandbox) admit(id process.Identity, order isolation.Order) error {
	if !order.Account.Inherited {
		if err := namespace.CheckIdentity(id.PID, order.Account); err != nil {
			return err
		}
	}
	status, err := namespace.Status(id.PID)
	if err != nil {
		return err
	}
	for field, want := range map[string]string{"NoNewPrivs": "1", "CapPrm": "0000000000000000", "CapAmb": "0000000000000000"} {
		if status[field] != want {
			return fmt.Errorf("check session: %s is %q, want %q", field, status[field], want)
		}
	}
	s.unfiltered = status["Seccomp"] != "2"
	for _, kind := range []string{"user", "pid", "mnt", "ipc"} {
		ours, err := os.Readlink("/proc/self/ns/" + kind)
		if err != nil {
			return err
		}
		its, err := os.Readlink("/proc/" + strconv.Itoa(id.PID) + "/ns/" + kind)
		if err != nil {
			return err
		}
		if its == ours {
			return fmt.Errorf("check session: it has the node's %s namespace", kind)
		}
	}
	handle, err := process.Open(id)
	if err != nil {
		return err
	}
	s.record.Session, s.handle = id, handle
	return nil
}

// discard ends a launch that failed.
func (s *sandbox) discard(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startLimit)
	defer cancel()
	var errs []error
	if s.handle != nil {
		_ = s.handle.Signal(unix.SIGKILL)
		_ = s.handle.Close()
	}
	if s.cmd != nil {
		errs = append(errs, killTree(s.cmd.Process.Pid))
		if s.group != nil {
			errs = append(errs, s.group.Kill(ctx))
		}
		<-s.exited
	}
	if s.group != nil {
		errs = append(errs, s.group.Remove())
	}
	return errors.Join(errs...)
}

// Adopt finds the sandbox again by the record, never by a pid alone.
func (b *Boundary) Adopt(_ context.Context, record isolation.Record) (isolation.Sandbox, error) {
	group, err := isolation.OpenGroup(b.options.Cgroups, record)
	if err != nil {
		return nil, fmt.Errorf("adopt session: %w", err)
	}
	s := &sandbox{record: record, group: group, done: make(chan struct{})}
	handle, err := process.Open(record.Session)
	switch {
	case errors.Is(err, process.ErrGone):
		close(s.done)
		return s, nil
	case err != nil:
		return nil, fmt.Errorf("adopt session: %w", err)
	}
	s.handle = handle
	go s.watch()
	return s, nil
}
