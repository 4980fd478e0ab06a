// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/botscreen/botscreen/shared/cdp"
)

// errHandedOver says that a browser which somebody started by hand has the profile: ours
// passed its address on and ended (BRW-03).
var errHandedOver = errors.New("somebody started a browser by hand with this screen's profile, and nothing can drive that one: close it and ask again")

// start needs the turn, and no browser that runs.
func (b *Browser) start(ctx context.Context, address string) (*instance, error) {
	found, err := b.find(ctx)
	if err != nil {
		return nil, err
	}
	p, err := openProfile(b.options.Profile, b.options.Env)
	if err != nil {
		return nil, err
	}
	i, err := b.launch(ctx, found, p, address)
	if err != nil {
		p.release()
		if !errors.Is(err, errHandedOver) {
			b.change(func(s *State) { s.Trouble = err.Error() })
		}
		return nil, err
	}
	b.mu.Lock()
	b.running = i
	b.mu.Unlock()
	b.change(func(s *State) {
		s.Running, s.PID, s.Trouble, s.Warning = true, i.process.PID(), "", ""
		if inMemory(p.dir) {
			s.Warning = "The browser's profile lies in memory: its logins end with the node."
		}
	})
	go b.follow(i)
	return i, nil
}

// launch starts the browser on a clear profile and waits until it answers.
func (b *Browser) launch(ctx context.Context, found Found, p *profile, address string) (*instance, error) {
	if err := b.checkVersion(ctx, found, p.dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(b.options.Downloads, 0o700); err != nil {
		return nil, fmt.Errorf("make the folder for downloads: %w", err)
	}
	if p.user() != 0 {
		return nil, b.handOver(ctx, found, p, address)
	}
	if err := p.clear(); err != nil {
		return nil, err
	}
	pipe, theirs, err := newPipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", found.Version.Name, err)
	}
	args := arguments(b.options, found.Confined)
	if address != "" {
		args = append(args, blank) // the address itself goes over the pipe: it may hold a password
	}
	began := time.Now()
	process, err := b.options.Launch(found.Executable, args, b.options.Env, theirs...)
	for _, f := range theirs {
		_ = f.Close()
	}
	if err != nil {
		_ = pipe.Close()
		return nil, fmt.Errorf("start %s: %w", found.Version.Name, err)
	}
	i := &instance{process: process, mux: cdp.New(pipe), profile: p, ended: make(chan struct{})}
	if err := i.awaitAnswer(ctx, began); err != nil {
		_ = i.mux.Close()
		_ = process.Signal(os.Kill)
		<-process.Done()
		return nil, err
	}
	return i, nil
}

// checkVersion refuses a browser that is older than the profile. Before it does so on the word
// of a memory, it asks.
func (b *Browser) checkVersion(ctx context.Context, found Found, profile string) error {
	err := checkVersion(profile, found.Version.Number)
	var older *OlderError
	if !found.Recalled || !errors.As(err, &older) {
		return err
	}
	found.Recalled = false
	if found.Version, err = askVersion(ctx, b.options.Starter, found.Executable); err != nil {
		return err
	}
	b.change(func(s *State) { s.Found = found })
	return checkVersion(profile, found.Version.Number)
}

const blank = "about:blank"

// awaitAnswer returns when the browser answers over the pipe, or says why it does not.
func (i *instance) awaitAnswer(ctx context.Context, began time.Time) error {
	answered := make(chan error, 1)
	go func() {
		answered <- i.mux.Call(ctx, "", "Browser.getVersion", struct{}{}, nil)
	}()
	select {
	case err := <-answered:
		if err == nil {
			return nil
		}
		select {
		case <-i.process.Done(): // the pipe ends with it, or a moment before
			return i.diedAfter(time.Since(began))
		case <-ctx.Done():
		}
		return i.silent(ctx)
	case <-i.process.Done():
		return i.diedAfter(time.Since(began))
	}
}

// silent says what a browser without an endpoint usually means (BRW-05).
func (i *instance) silent(ctx context.Context) error {
	text := fmt.Sprintf("the browser did not answer over its debugging pipe: %v. A policy of the node (RemoteDebuggingAllowed) or a profile that is the browser's default one forbids that", context.Cause(ctx))
	if lines := i.process.LastLines(); len(lines) > 0 {
		text += fmt.Sprintf(". Last output: %q", words(lines))
	}
	return errors.New(text)
}

// diedAfter is the quick death of a browser, with its last words. One that ended well
// before it answered has found another one with its profile.
func (i *instance) diedAfter(after time.Duration) error {
	lines := i.process.LastLines()
	said := strings.Join(lines, "\n")
	switch {
	case strings.Contains(said, "No usable sandbox"), strings.Contains(said, "SUID sandbox helper binary was found, but is not configured"):
		return &SandboxError{Executable: "the browser", Reason: "it says that it has no usable one"}
	case i.process.ExitCode() == 0:
		return errHandedOver
	}
	return fmt.Errorf("the browser %s %d ms after its start; last output: %q", i.process.Status(), after.Milliseconds(), words(lines))
}

// follow cleans up after a browser that has ended, however it did. The next asker starts
// another one.
func (b *Browser) follow(i *instance) {
	<-i.process.Done()
	_ = i.mux.Close()
	i.profile.release()
	b.mu.Lock()
	if b.running == i {
		b.running = nil
	}
	b.mu.Unlock()
	b.change(func(s *State) {
		s.Running, s.PID = false, 0
		if i.process.ExitCode() != 0 {
			s.Trouble = fmt.Sprintf("it %s; last output: %q", i.process.Status(), words(i.process.LastLines()))
		}
	})
	close(i.ended)
}

// pipe is our end of --remote-debugging-pipe: the browser reads its descriptor 3 and writes
// its descriptor 4.
type pipe struct {
	io.Reader
	io.Writer
	r, w *os.File
}

func (p *pipe) Close() error { return errors.Join(p.r.Close(), p.w.Close()) }

// newPipe makes our end and the browser's two descriptors.
func newPipe() (ours *pipe, theirs []*os.File, err error) {
	commands, toBrowser, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	fromBrowser, answers, err := os.Pipe()
	if err != nil {
		_ = commands.Close()
		_ = toBrowser.Close()
		return nil, nil, err
	}
	return &pipe{fromBrowser, toBrowser, fromBrowser, toBrowser}, []*os.File{commands, answers}, nil
}
