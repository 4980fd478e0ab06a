// SPDX-License-Identifier: MPL-2.0

package session

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/botscreen/botscreen/driver/browser"
	"github.com/botscreen/botscreen/driver/desktop"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/screen"
)

const (
	// browserLimit bounds a request that may start the browser; a supervisor waits a
	// little longer.
	browserLimit = 60 * time.Second
	// browserGrace is how long a browser may take to write what it has (BRW-12); most
	// need a tenth of it.
	browserGrace = 5 * time.Second
	// afterBrowser is kept of a stop's grace for the other programs.
	afterBrowser = 500 * time.Millisecond
)

var errNoBrowser = &dialhome.Error{Kind: dialhome.KindFailed, Message: "this screen has no browser: its job says browser { enabled = false }"}

// newBrowser is the browser of a desktop that has come up.
func (s *session) newBrowser(d *desktop.Desktop, plan dialhome.Plan) *browser.Browser {
	if plan.Browser == nil {
		return nil
	}
	o := plan.Browser
	return browser.New(browser.Options{
		Executable: o.Executable, Args: o.Args, Sandbox: o.Sandbox, StartURL: o.StartURL,
		Profile: browser.Folder(plan.Home), Downloads: filepath.Join(plan.Home, "Downloads"), Scratch: plan.XDir,
		Env: d.Env(), Starter: s.reaper, Known: plan.KnownVersions,
		Launch: func(path string, args, env []string, files ...*os.File) (browser.Process, error) {
			return d.Launch(desktop.Program{Name: "browser", Path: path, Args: args, Env: env}, files...)
		},
		Changed: func(state browser.State) { s.emit(dialhome.EventBrowser, browserOf(state)) },
	})
}

// browserOf is a state in the words of the wire.
func browserOf(state browser.State) dialhome.Browser {
	b := dialhome.Browser{Running: state.Running, Trouble: bounded(state.Trouble), Warning: state.Warning}
	if found := state.Found; found.Executable != "" {
		b.Executable, b.Version, b.Sandbox = bounded(found.Executable), found.Version.String(), string(found.Confined)
	}
	return b
}

// browsing is the browser there is; the error says why there is none.
func (s *session) browsing() (*browser.Browser, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.desktop == nil:
		return nil, errNoDesktop
	case s.browser == nil:
		return nil, errNoBrowser
	}
	return s.browser, nil
}

// handleBrowserOpen shows an address to whoever looks at the screen.
func (s *session) handleBrowserOpen(l *link, packet dialhome.Packet) {
	var request dialhome.BrowserOpen
	err := dialhome.Decode(packet.Body, &request)
	var opened dialhome.BrowserOpened
	if err == nil {
		opened, err = s.openAddress(request.URL)
	}
	l.answer(packet.ID, opened, err)
}

// handleBrowserClose ends the browser as it is ended before a sleep. One that does not run
// is closed.
func (s *session) handleBrowserClose(l *link, packet dialhome.Packet) {
	b, err := s.browsing()
	if err == nil {
		ctx, cancel := context.WithTimeout(s.stopping, 2*browserGrace)
		defer cancel()
		err = b.Quit(ctx)
	}
	l.answer(packet.ID, nil, err)
}

// openAddress checks the address once more: it comes from programs of the desktop, too.
func (s *session) openAddress(address string) (dialhome.BrowserOpened, error) {
	b, err := s.browsing()
	if err != nil {
		return dialhome.BrowserOpened{}, err
	}
	if address != "" {
		if address, err = screen.ParseBrowserURL(address); err != nil {
			return dialhome.BrowserOpened{}, fmt.Errorf("the address %w", err)
		}
	}
	ctx, cancel := context.WithTimeout(s.stopping, browserLimit)
	defer cancel()
	opened, err := b.Open(ctx, address)
	return dialhome.BrowserOpened{Started: opened.Started, HandedOver: opened.HandedOver}, err
}

// dialBrowser is a new connection to the browser's CDP endpoint.
func (s *session) dialBrowser() (*os.File, error) {
	b, err := s.browsing()
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(s.stopping, browserLimit)
	defer cancel()
	return b.Dial(ctx)
}

// quitShare is the part of a clearing that the browser may take to go.
const quitShare = clearLimit / 2

// quitBrowser asks the browser to go; whoever asks for it next starts another one.
func (s *session) quitBrowser(ctx context.Context) {
	b, err := s.browsing()
	if err != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, quitShare)
	defer cancel()
	if err := b.Quit(ctx); err != nil {
		fmt.Fprintf(s.log, "session: %v; the newest logins may be lost\n", err)
	}
}

// endBrowser asks the browser to go before the desktop does, within grace, and returns
// what is left of it for the other programs.
func (s *session) endBrowser(grace time.Duration) (left time.Duration) {
	s.mu.Lock()
	b := s.browser
	s.browser = nil
	s.mu.Unlock()
	if b == nil || grace <= 0 {
		return grace
	}
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), min(max(grace-afterBrowser, grace/2), browserGrace))
	defer cancel()
	if err := b.Close(ctx); err != nil {
		fmt.Fprintf(s.log, "session: %v; the newest logins may be lost\n", err)
	}
	return max(grace-time.Since(began), afterBrowser)
}
