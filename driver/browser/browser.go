// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/cdp"
)

const (
	// startLimit bounds a start of the browser, cold and on a busy node.
	startLimit = 45 * time.Second
	// callLimit bounds one question to a running browser.
	callLimit = 15 * time.Second
)

// Browser is the one browser of a desktop. At most one runs; whoever asks first starts it
// and the others attach (rule W1).
type Browser struct {
	options Options
	turn    chan struct{} // has room for whoever starts or ends the browser

	mu      sync.Mutex // guards all below
	state   State
	running *instance // nil while none runs
	closed  bool      // nothing is started any more
}

// instance is one browser process and the pipe to it.
type instance struct {
	process Process
	mux     *cdp.Mux
	profile *profile
	ended   chan struct{} // closed when it has been cleaned up after
}

// State is what there is to say about a screen's browser.
type State struct {
	Found   Found  // zero while it is not known
	Running bool   // a browser of ours runs
	PID     int    // its pid
	Trouble string // why there is none, or how the last one ended; words from inside
	Warning string // what people should know; a sentence
}

// New prepares the browser of a desktop; nothing is started.
func New(o Options) *Browser {
	o.Env = environment(o.Env)
	return &Browser{options: o, turn: make(chan struct{}, 1)}
}

// State is how things stand.
func (b *Browser) State() State {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.state
}

// change applies f to the state and tells.
func (b *Browser) change(f func(*State)) {
	b.mu.Lock()
	before := b.state.key()
	f(&b.state)
	now := b.state
	b.mu.Unlock()
	if b.options.Changed != nil && now.key() != before {
		b.options.Changed(now)
	}
}

// key is the state in a form that compares.
func (s State) key() string {
	return fmt.Sprintf("%s %s %s %t %d %s %s", s.Found.Executable, s.Found.Version, s.Found.Confined, s.Running, s.PID, s.Trouble, s.Warning)
}

// Look finds out which browser there is, for the status: nothing of the screen waits for it.
func (b *Browser) Look(ctx context.Context) {
	if b.take(ctx) != nil {
		return
	}
	defer b.leave()
	_, _ = b.find(ctx) // the state has the reason
}

func (b *Browser) take(ctx context.Context) error {
	select {
	case b.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (b *Browser) leave() { <-b.turn }

// find needs the turn. What was found is kept; what was missing may have come.
func (b *Browser) find(ctx context.Context) (Found, error) {
	if found := b.State().Found; found.Executable != "" && isProgram(found.Executable) {
		return found, nil
	}
	found, err := find(ctx, b.options)
	b.change(func(s *State) {
		s.Found, s.Trouble = found, ""
		if err != nil {
			s.Trouble = err.Error()
		}
	})
	return found, err
}

// Dial is a new connection to the browser's CDP endpoint, as cdp.Mux serves it. It starts
// the browser if none runs. The file is one end of a socket pair that this process made;
// the caller owns it. The end of the other one ends what the client attached.
func (b *Browser) Dial(ctx context.Context) (*os.File, error) {
	i, _, err := b.ensure(ctx, "")
	if err != nil {
		return nil, err
	}
	ours, theirs, err := socketPair()
	if err != nil {
		return nil, fmt.Errorf("connect to the browser: %w", err)
	}
	go func() { _ = i.mux.Serve(ours) }() // it ends with its client, who hears of nothing more
	return theirs, nil
}

func socketPair() (net.Conn, *os.File, error) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, nil, err
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "cdp"), os.NewFile(uintptr(fds[1]), "cdp")
	conn, err := net.FileConn(ours)
	_ = ours.Close()
	if err != nil {
		_ = theirs.Close()
		return nil, nil, err
	}
	return conn, theirs, nil
}

// ensure is the browser that runs, started if need be; one that is being started is waited
// for. Only a new one opens the address.
func (b *Browser) ensure(ctx context.Context, address string) (i *instance, started bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	if err := b.take(ctx); err != nil {
		return nil, false, fmt.Errorf("wait for the browser: %w", err)
	}
	defer b.leave()
	for {
		b.mu.Lock()
		i, closed := b.running, b.closed
		b.mu.Unlock()
		switch {
		case closed:
			return nil, false, errors.New("the desktop is ending")
		case i == nil:
			i, err := b.start(ctx, address)
			return i, err == nil, err
		case !hasEnded(i.process):
			return i, false, nil
		}
		select {
		case <-i.ended: // it is being cleaned up after
		case <-ctx.Done():
			return nil, false, context.Cause(ctx)
		}
	}
}

func hasEnded(p Process) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// Close asks the browser to go, waits for its end until ctx ends, and lets none start any
// more. The browser writes cookies and settings then (BRW-12); one that does not go is
// left to whoever ends the desktop.
func (b *Browser) Close(ctx context.Context) error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	return b.Quit(ctx)
}

// instance is the browser that runs; nil: none does.
func (b *Browser) instance() *instance {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.running
}

// Quit is Close that lets the next asker start another one.
func (b *Browser) Quit(ctx context.Context) error {
	if err := b.take(ctx); err != nil {
		return fmt.Errorf("close the browser: another start goes on: %w", err)
	}
	defer b.leave()
	i := b.instance()
	if i == nil {
		return nil
	}
	asked := make(chan error, 1)
	go func() { asked <- i.mux.Call(ctx, "", "Browser.close", struct{}{}, nil) }()
	select {
	case <-i.ended:
		return nil
	case err := <-asked:
		if err != nil && !hasEnded(i.process) {
			_ = i.process.Signal(unix.SIGTERM) // it may lose the newest cookies, and no more
		}
	case <-ctx.Done():
	}
	select {
	case <-i.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close the browser: %w", context.Cause(ctx))
	}
}

// words joins lines of a browser's output for an error.
func words(lines []string) string {
	const most = 4
	return strings.Join(lines[max(0, len(lines)-most):], " | ")
}
