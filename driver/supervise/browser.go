// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// browserTimeout is a little longer than a session takes at most to start a browser.
const browserTimeout = 65 * time.Second

// OpenBrowser shows an address on the screen, in its one browser. It is an action as every
// other: refused while a person holds, and under another epoch than the one it was decided
// under, if there is one; and it is a use of the screen.
func (s *supervisor) OpenBrowser(ctx context.Context, _ controlserver.Caller, req control.BrowserRequest) (control.BrowserAnswer, error) {
	const what = "open the browser"
	if req.URL != "" {
		address, err := screen.ParseBrowserURL(req.URL)
		if err != nil {
			return control.BrowserAnswer{}, &control.Error{Kind: control.BadRequest,
				Message: "Cannot open the browser: the address " + err.Error() + ".", Next: "Correct the address."}
		}
		req.URL = address
	}
	if req.Epoch != 0 {
		if err := s.admit(req.Epoch); err != nil {
			return control.BrowserAnswer{}, err
		}
	}
	var opened dialhome.BrowserOpened
	seen, err := s.desk(ctx, what, func() (err error) {
		opened, err = s.openBrowser(ctx, req.URL)
		return err
	})
	if err != nil {
		return control.BrowserAnswer{}, err
	}
	return control.BrowserAnswer{Epoch: seen, Started: opened.Started, HandedOver: opened.HandedOver}, s.sameEpoch(req.Epoch)
}

// sameEpoch refuses what was decided under another epoch; 0 was under none.
func (s *supervisor) sameEpoch(seen lease.Epoch) error {
	if seen == 0 {
		return nil
	}
	return s.admit(seen)
}

func (s *supervisor) openBrowser(ctx context.Context, address string) (dialhome.BrowserOpened, error) {
	ctx, cancel := context.WithTimeout(ctx, browserTimeout)
	defer cancel()
	var opened dialhome.BrowserOpened
	a, err := s.link.call(ctx, question{op: dialhome.OpBrowserOpen, body: dialhome.BrowserOpen{URL: address}})
	if err == nil {
		err = dialhome.Decode(a.packet.Body, &opened)
	}
	return opened, err
}

// CloseBrowser asks the browser to go and waits for that: it writes down what it has. It is
// fenced as opening it is, and no use of the screen.
func (s *supervisor) CloseBrowser(ctx context.Context, _ controlserver.Caller) error {
	const what = "close the browser"
	seen, err := s.beginFenced()
	if err != nil {
		return err
	}
	end, err := s.lookOn(ctx, what)
	if err != nil {
		return err
	}
	defer end()
	ctx, cancel := context.WithTimeout(ctx, browserTimeout)
	defer cancel()
	_, err = s.link.call(ctx, question{op: dialhome.OpBrowserClose, body: struct{}{}})
	if refusal := s.admit(seen); refusal != nil {
		return refusal
	}
	if err != nil {
		return refusalUnless(what, err)
	}
	return nil
}

// dialCDP asks the session for a connection to the browser's CDP endpoint, which serves
// HTTP/1.1, and checks what it passed: the session itself has to be at the other end (X11,
// X17). The browser is started if it does not run. The caller has begun a use of the
// screen, and ends the connection at a takeover.
func (s *supervisor) dialCDP(ctx context.Context) (net.Conn, error) {
	return s.dialServedBy(ctx, s.config.Session)
}

// dialServedBy is dialCDP to whoever serves it.
func (s *supervisor) dialServedBy(ctx context.Context, server process.Identity) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, browserTimeout)
	defer cancel()
	slot, err := s.passed.acquire()
	if err != nil {
		return nil, err
	}
	a, err := s.link.call(ctx, question{op: dialhome.OpDial, body: dialhome.Dial{Peer: dialhome.PeerCDP}, want: 1})
	if err != nil {
		slot.release()
		return nil, err
	}
	conn, err := acceptPassed(a.passed[0], slot, server)
	if err != nil && !errors.Is(err, errPeerGone) {
		s.link.accuse(a.line, err)
	}
	if err != nil {
		return nil, fmt.Errorf("accept CDP connection: %w", err)
	}
	return conn, nil
}

// onBrowser keeps what the session says of the browser; a bad end is news.
func (s *supervisor) onBrowser(b dialhome.Browser) {
	s.mu.Lock()
	before := s.browser
	s.browser = browserStatus(b)
	s.mu.Unlock()
	if before != nil && before.Running && !b.Running && b.Trouble != "" && s.notes.take(time.Now()) {
		s.note(control.EventRestarted, "the browser ended: "+b.Trouble)
	}
}

// keepBrowser needs s.mu.
func (s *supervisor) keepBrowser(d dialhome.Desktop) {
	if d.Browser != nil {
		s.browser = browserStatus(*d.Browser)
	}
}

// browserShown needs s.mu. A browser does not outlive its desktop.
func (s *supervisor) browserShown() *control.Browser {
	if s.browser == nil {
		return nil
	}
	shown := *s.browser
	shown.Running = shown.Running && s.state == screen.Ready
	return &shown
}

// browserStatus is the session's word on the browser, for people.
func browserStatus(b dialhome.Browser) *control.Browser {
	return &control.Browser{
		Executable: screen.Distrust(b.Executable), Version: screen.Distrust(b.Version), Sandbox: sandboxWord(b.Sandbox),
		Running: b.Running, Warning: screen.Distrust(b.Warning), Trouble: screen.Distrust(b.Trouble),
	}
}

// sandboxWord is one of the words there are, whatever the session says.
func sandboxWord(word string) control.BrowserSandbox {
	switch known := control.BrowserSandbox(word); known {
	case control.SandboxNamespaces, control.SandboxSetuid, control.SandboxOff:
		return known
	}
	return control.SandboxUnknown
}
