// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// X11, X17: a way to the browser is taken only where the kernel says that the session
// itself is at its other end; one to anybody else ends the dial-home connection.
func TestX17PeerOfCDP(t *testing.T) {
	path := serverPath(t)
	session := startHelper(t, "server", "SERVER="+path)
	session.says("listening")
	r := newRig(t, nil)
	f := r.session(dialhome.Desktop{State: dialhome.Running, Display: 77, XPID: r.config.Session.PID, XStart: r.config.Session.Start})
	r.awaitState(screen.Ready)
	fromSession := dialServer(t, path)
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fds[1])
	foreign := os.NewFile(uintptr(fds[0]), "pair")
	defer foreign.Close()
	dial := func(passed *os.File, dial func(context.Context) (net.Conn, error)) (net.Conn, error) {
		type result struct {
			conn net.Conn
			err  error
		}
		done := make(chan result, 1)
		go func() {
			conn, err := dial(t.Context())
			done <- result{conn, err}
		}()
		p, _ := f.asked(dialhome.OpDial)
		var asked dialhome.Dial
		must(t, dialhome.Decode(p.Body, &asked))
		if asked.Peer != dialhome.PeerCDP {
			t.Errorf("asked for %q", asked.Peer)
		}
		f.answer(p.ID, nil, passed)
		got := <-done
		return got.conn, got.err
	}
	conn, err := dial(fromSession, func(ctx context.Context) (net.Conn, error) { return r.dialServedBy(ctx, session.identity) })
	must(t, err)
	_ = conn.Close()
	if conn, err := dial(foreign, r.dialCDP); err == nil {
		_ = conn.Close()
		t.Error("a way to somebody else was taken")
	}
	f.awaitEnd()
	r.await("all slots are free", func() bool { return len(r.passed) == 0 })
}

// X32: what the session says of the browser is shown as words from inside, and as no other
// sandbox than there are.
func TestX32WordsOfTheBrowser(t *testing.T) {
	r := newRig(t, nil)
	f := r.session(dialhome.Desktop{State: dialhome.Running, Display: 77, XPID: r.config.Session.PID, XStart: r.config.Session.Start})
	r.awaitState(screen.Ready)
	f.event(dialhome.EventBrowser, dialhome.Browser{
		Executable: "/opt/\x1b[31mchrome", Version: strings.Repeat("9", 1000), Sandbox: "namespaces\n", Running: true,
	})
	r.await("the status shows it", func() bool {
		status, err := r.client.Status(t.Context())
		return err == nil && status.Browser != nil
	})
	status, err := r.client.Status(t.Context())
	must(t, err)
	b := *status.Browser
	if b.Executable.String() != "/opt/·[31mchrome" || len(b.Version.String()) > 256 || b.Sandbox != control.SandboxUnknown {
		t.Errorf("the status shows %+v", b)
	}
}

// The words of a refusal reach whoever asked, with the epoch checked first.
func TestOpenBrowserRefused(t *testing.T) {
	r := newRig(t, nil)
	f := r.session(dialhome.Desktop{State: dialhome.Running, Display: 77, XPID: r.config.Session.PID, XStart: r.config.Session.Start})
	r.awaitState(screen.Ready)
	if _, err := r.client.OpenBrowser(t.Context(), control.BrowserRequest{URL: "javascript:alert(1)"}); !isKind(err, control.BadRequest) {
		t.Errorf("an address that is a script: %v", err)
	}
	if _, err := r.client.OpenBrowser(t.Context(), control.BrowserRequest{Epoch: 1, URL: "about:blank"}); !isKind(err, control.LeaseChanged) {
		t.Errorf("another epoch: %v", err)
	}
	refused := make(chan error, 1)
	go func() {
		_, err := r.client.OpenBrowser(t.Context(), control.BrowserRequest{URL: "about:blank"})
		refused <- err
	}()
	p, _ := f.asked(dialhome.OpBrowserOpen)
	must(t, f.Send(dialhome.Packet{ID: p.ID, Err: &dialhome.Error{Kind: dialhome.KindFailed, Message: "there is no headed browser"}}))
	var refusal *control.Error
	if err := <-refused; !errors.As(err, &refusal) || !strings.Contains(refusal.Message, "Cannot open the browser: there is no headed browser") {
		t.Errorf("the answer is %v", err)
	}
}
