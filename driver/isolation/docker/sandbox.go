// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/process"
)

const (
	// settleLimit is how long the end of a session waits for the engine's word on it.
	settleLimit = 10 * time.Second
	// shortestPause and longestPause bound the pause between two questions to an engine
	// that is away.
	shortestPause = 20 * time.Millisecond
	longestPause  = time.Second
	// cutPatience is how long an engine elsewhere may take to notice what the pipe's end
	// came of, before the container counts as one that nobody reaches any more.
	cutPatience = 3 * time.Second
	// freezePatience is how long a killed session may take before it counts as paused.
	freezePatience = 500 * time.Millisecond
)

// sandbox is one container. That it runs is read from the pid namespace's first
// process, not from the engine.
type sandbox struct {
	b      *Boundary
	record isolation.Record
	handle *process.Handle // nil where the session had ended before it was adopted
	ended  <-chan struct{} // closed when nothing runs in the container, by the kernel's word
	done   chan struct{}   // closed when the engine has said how, or will not
	// warnings are of the launch; whoever adopts it has them from its record.
	warnings []string

	mu      sync.Mutex // guards all below
	status  isolation.Status
	known   bool // status is the engine's word
	oom     bool
	gone    bool // somebody else removed the container
	killed  bool // by Kill
	cut     bool // the pipe to an engine elsewhere ended before the container did
	logs    *follower
	removed bool
}

var (
	_ isolation.LogFollower = (*sandbox)(nil)
	_ isolation.Explainer   = (*sandbox)(nil)
	_ isolation.Halter      = (*sandbox)(nil)
	_ isolation.Warner      = (*sandbox)(nil)
)

// follow watches the session of a record.
func (b *Boundary) follow(record isolation.Record) (*sandbox, error) {
	s := &sandbox{b: b, record: record, done: make(chan struct{})}
	handle, err := process.Open(record.Session)
	switch {
	case errors.Is(err, process.ErrGone):
		over := make(chan struct{})
		close(over)
		s.ended = over
	case err != nil:
		return nil, err
	default:
		s.handle, s.ended = handle, handle.Done()
	}
	go s.watch()
	return s, nil
}

// watch waits for the end of the session and asks how it was. An engine that restarts
// is asked again: what it says late is still the truth (DOC-05).
func (s *sandbox) watch() {
	defer close(s.done)
	<-s.ended
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), settleLimit)
	defer cancel()
	for pause := shortestPause; !s.settle(ctx); pause = min(2*pause, longestPause) {
		if s.record.Piped && time.Since(began) > cutPatience {
			s.endCut(ctx)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return
		}
	}
}

// settle reports whether the engine has said how the container ended.
func (s *sandbox) settle(ctx context.Context) bool {
	found, err := s.b.api.ContainerInspect(ctx, s.record.Container)
	s.mu.Lock()
	defer s.mu.Unlock()
	if errdefs.IsNotFound(err) {
		s.gone = true
		return true
	}
	if err != nil || found.State.Running || found.State.Status == container.StateRemoving {
		return s.removed // else its removal, or the engine's noticing, is still to come
	}
	s.known, s.oom, s.status = true, found.State.OOMKilled, isolation.StatusOfCode(found.State.ExitCode)
	return true
}

// endCut ends a container whose pipe has: nobody can use it any more.
func (s *sandbox) endCut(ctx context.Context) {
	found, err := s.b.api.ContainerInspect(ctx, s.record.Container)
	if err != nil || !found.State.Running {
		return
	}
	if s.b.api.ContainerKill(ctx, found.ID, "KILL") == nil {
		s.mu.Lock()
		s.cut = !s.killed
		s.mu.Unlock()
	}
}

func (s *sandbox) Session() process.Identity { return s.record.Session }
func (s *sandbox) Done() <-chan struct{}     { return s.done }
func (s *sandbox) Record() isolation.Record  { return s.record }

// Status is the engine's word: it is known to a driver that did not launch it as well.
func (s *sandbox) Status() (isolation.Status, bool) {
	select {
	case <-s.done:
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.status, s.known
	default:
		return isolation.Status{}, false
	}
}

// EndReason says what somebody else did to the container (P3).
func (s *sandbox) EndReason() string {
	select {
	case <-s.done:
	default:
		return ""
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.removed:
		return ""
	case s.gone:
		return "The sandbox hosting this screen is gone: its container was removed from outside. Start the screen again; its home and logins are kept."
	case s.cut:
		return "The connection to the docker engine, which is not on this node, was cut, and the screen ended with it. Start the screen again; its home and logins are kept."
	case s.oom:
		return "The kernel ended the screen for memory: its container reached its limit. Give the task more `memory`."
	}
	return ""
}

// Warnings say what an engine elsewhere changes, and what the network reaches (X37).
func (s *sandbox) Warnings() []string {
	if s.record.Piped {
		return append(s.warnings, "pipe: the engine is not on this node; everything goes through its exec stream, and the home is a volume there")
	}
	return s.warnings
}

// Halted asks the engine: a paused session says nothing, and a container full of processes
// forks nothing.
func (s *sandbox) Halted(ctx context.Context) string {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	found, err := s.b.api.ContainerInspect(ctx, s.record.Container)
	switch {
	case err != nil:
		return ""
	case found.State.Paused:
		return fmt.Sprintf("This screen's container is paused. It goes on with: docker unpause %s", strings.TrimPrefix(found.Name, "/"))
	case found.State.Restarting, found.State.Status == container.StateRemoving:
		return fmt.Sprintf("This screen's container is %s; its engine is ending it.", found.State.Status)
	}
	return ""
}

// Kill ends the first process of the pid namespace, and with it the kernel ends all
// others before it lets the first one go: no engine is needed (pid_namespaces(7)).
func (s *sandbox) Kill(ctx context.Context) error {
	s.mu.Lock()
	s.killed = true
	s.mu.Unlock()
	if s.handle == nil {
		return s.killByEngine(ctx)
	}
	var elsewhere error
	if s.record.Piped { // the process here is only the pipe's
		elsewhere = s.killByEngine(ctx)
	}
	return errors.Join(elsewhere, s.killHere(ctx))
}

func (s *sandbox) killHere(ctx context.Context) error {
	select {
	case <-s.ended: // also after Remove
		return nil
	default:
	}
	if err := s.handle.Signal(unix.SIGKILL); err != nil {
		return fmt.Errorf("kill session: %w", err)
	}
	paused := time.NewTimer(freezePatience)
	defer paused.Stop()
	var thaw error
	select {
	case <-s.ended:
		return nil
	case <-paused.C:
		// A paused container dies when it goes on.
		if err := s.b.api.ContainerUnpause(ctx, s.record.Container); err != nil {
			thaw = s.b.explain(err)
		}
	case <-ctx.Done():
	}
	select {
	case <-s.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("kill session: pid %d still runs: %w", s.record.Session.PID, errors.Join(ctx.Err(), thaw))
	}
}

// killByEngine ends what runs in a container whose session is gone: somebody started it
// again. What is not there or does not run is what was asked for.
func (s *sandbox) killByEngine(ctx context.Context) error {
	found, err := s.b.api.ContainerInspect(ctx, s.record.Container)
	if errdefs.IsNotFound(err) || err == nil && !found.State.Running {
		return nil
	}
	if err == nil {
		err = s.b.api.ContainerKill(ctx, found.ID, "KILL")
	}
	if err != nil && !errdefs.IsNotFound(err) {
		return fmt.Errorf("kill session: %w", s.b.explain(err))
	}
	return nil
}

// Remove removes the container and what the launch wrote.
func (s *sandbox) Remove(ctx context.Context) error {
	s.mu.Lock()
	s.removed = true
	logs := s.logs
	s.mu.Unlock()
	if logs != nil {
		logs.drain(ctx)
	}
	if s.handle != nil {
		select {
		case <-s.done: // its last word is heard before the handle goes
		case <-ctx.Done():
		}
		_ = s.handle.Close()
	}
	return errors.Join(s.b.remove(ctx, s.record.Container), isolation.RemoveScratch(s.record))
}

// OOMKilled is the engine's word, now or at the end.
func (s *sandbox) OOMKilled() bool {
	select {
	case <-s.done:
	default:
		ctx, cancel := context.WithTimeout(context.Background(), callLimit)
		defer cancel()
		found, err := s.b.api.ContainerInspect(ctx, s.record.Container)
		return err == nil && found.State.OOMKilled
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.oom
}
