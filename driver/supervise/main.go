// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/screen"
)

// Main runs a supervisor on the descriptors FDConfig and following until the plugin
// sends TERM, and returns the exit code of the process.
func Main() int {
	if err := harden(); err != nil {
		return 1 // nowhere to say it yet: the plugin sees a supervisor that ends at once
	}
	dir, err := controlDir()
	if err != nil {
		return 1
	}
	log := openLog(dir, os.Stderr)
	if err := run(dir, log); err != nil {
		log.Error("supervisor ends", "error", err)
		return 1
	}
	return 0
}

func run(dir *os.Root, log hclog.Logger) error {
	inherited := os.NewFile(FDConfig, "config")
	config, err := readConfig(inherited)
	_ = inherited.Close()
	if err != nil {
		return err
	}
	operator, err := inheritedListener[*net.UnixListener](FDOperator)
	if err != nil {
		return err
	}
	dial, err := inheritedListener[*net.UnixListener](FDDial)
	if err != nil {
		return err
	}
	agent, err := inheritedAgentDoor(config)
	if err != nil {
		return err
	}
	alone, err := beAlone(dir)
	if err != nil {
		// The screen needs a supervisor; a second one has no rights that this one lacks.
		log.Warn("another supervisor of this screen may run", "error", err)
	} else {
		defer alone.Close()
	}
	s, err := newSupervisor(config, dir, log.With("profile", string(config.Profile)))
	if err != nil {
		return err
	}
	if s.config.Viewer != nil {
		viewer, err := inheritedListener[*net.TCPListener](FDViewer)
		if err != nil {
			return err
		}
		s.viewer.bind(viewer)
	}
	s.brake = inheritedBrake(config)
	ctx, stop := signal.NotifyContext(context.Background(), unix.SIGTERM)
	defer stop()
	signal.Ignore(unix.SIGPIPE, unix.SIGINT, unix.SIGHUP)
	return s.serve(ctx, doors{operator: operator, dial: dial, agent: agent})
}

// doors are the sockets a supervisor listens on.
type doors struct {
	operator, dial *net.UnixListener
	agent          *agentDoor // nil: there is none
}

// controlDir is the screen's control directory, given as a descriptor: this process
// needs no way to any other.
func controlDir() (*os.Root, error) {
	// The number is inherited and stays open; /proc/self/fd opens what it refers to.
	dir, err := os.OpenRoot(fmt.Sprintf("/proc/self/fd/%d", FDControlDir))
	if err != nil {
		return nil, fmt.Errorf("open control directory: %w", err)
	}
	return dir, nil
}

func inheritedListener[T net.Listener](fd uintptr) (T, error) {
	var none T
	f := os.NewFile(fd, "listener")
	defer f.Close()
	listener, err := net.FileListener(f)
	if err != nil {
		return none, fmt.Errorf("inherit descriptor %d: %w", fd, err)
	}
	typed, ok := listener.(T)
	if !ok {
		return none, fmt.Errorf("inherit descriptor %d: %T, want %T", fd, listener, none)
	}
	return typed, nil
}

// serve runs until ctx ends. The end of the screen does not end the supervisor: whoever
// asks later must still hear how it ended. The end of the supervisor does not end the
// screen: its connection drops, and the session dials the next one.
func (s *supervisor) serve(ctx context.Context, d doors) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	d.operator.SetUnlinkOnClose(false)
	d.dial.SetUnlinkOnClose(false) // the paths are the plugin's

	api := controlserver.New(s, slog.New(discardBelowError{s}))
	s.refused = api.Refused
	failed := make(chan error, 4) // room for all: none waits to be heard
	var all sync.WaitGroup
	all.Go(func() { failed <- api.Serve(d.operator, screen.RoleOperator) })
	all.Go(func() { failed <- s.link.serve(d.dial) })
	if d.agent != nil {
		all.Go(func() { failed <- s.serveAgents(api, d.agent) })
		all.Go(func() { s.watchAgentDoor(ctx, d.agent) })
	}
	all.Go(func() { s.serveViewers(ctx) })
	all.Go(func() { _ = s.keeper.Run(ctx) }) // ends with ctx alone
	all.Go(func() { s.watchIdle(ctx) })
	all.Go(func() { s.watchFocus(ctx) })
	all.Go(func() {
		if err := s.run(ctx); err != nil {
			failed <- err
		}
	})
	var err error
	select {
	case <-ctx.Done():
	case err = <-failed:
	}
	cancel()
	_ = d.dial.Close()
	s.link.finish(0)
	s.relay.Close()
	limit, end := context.WithTimeout(context.Background(), time.Second)
	defer end()
	if shutdown := api.Shutdown(limit); !errors.Is(shutdown, context.DeadlineExceeded) {
		err = errors.Join(err, shutdown)
	}
	all.Wait()
	return err
}

// discardBelowError gives the API's log a home in ours: only what is this process'
// own fault is worth a line, refusals are answered to their caller.
type discardBelowError struct{ *supervisor }

func (d discardBelowError) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelError
}

func (d discardBelowError) Handle(_ context.Context, r slog.Record) error {
	var pairs []any
	r.Attrs(func(a slog.Attr) bool {
		pairs = append(pairs, a.Key, a.Value.Any())
		return true
	})
	d.log.Error(r.Message, pairs...)
	return nil
}

func (d discardBelowError) WithAttrs([]slog.Attr) slog.Handler { return d }
func (d discardBelowError) WithGroup(string) slog.Handler      { return d }
