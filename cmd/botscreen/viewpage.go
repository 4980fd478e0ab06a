// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"fmt"
	"html"
	"net"
	"os"
	"path/filepath"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/relay/webviewer"
)

// viewPage serves the viewer's page until ctx ends, to the browser that it opens.
func (c *cli) viewPage(ctx context.Context, v view, open bool) error {
	if !webviewer.Built() {
		return failf(exitFailed, "This botscreen was built without the viewer's page. Build it with `make page build`, or use `botscreen view --vnc`.")
	}
	page, err := openPage(v.dial, c.complain)
	if err != nil {
		return failf(exitFailed, "Cannot open a port for the browser: %v.", err)
	}
	defer page.close()
	if err := c.printPage(v, page, open && openBrowser(page.file, c.complain)); err != nil {
		return err
	}
	err = page.serve(ctx)
	switch {
	case errors.Is(err, errUsedTwice):
		return failf(exitFailed, "The view was closed: its link was opened a second time. If that was not you, somebody else on this machine has seen it. Start the command again for a new one.")
	case ctx.Err() != nil:
		return nil // that is how one leaves
	}
	return failf(exitFailed, "The view was closed: %v. Start the command again.", err)
}

func (c *cli) printPage(v view, page *page, opened bool) error {
	if c.json {
		return c.printJSON(map[string]any{"screen": v.screen.Path(), "file": page.file, "port": page.port(), "mode": v.mode, "opened": opened})
	}
	name := line(v.screen.Path())
	var err error
	if opened {
		_, err = fmt.Fprintf(c.out, "Screen %s opens in your browser. If it does not, open this file in it: %s\n", name, page.file)
	} else {
		_, err = fmt.Fprintf(c.out, "Screen %s: open this file in a browser on this machine: %s\n"+
			"From another machine, connect with `ssh -L %d:127.0.0.1:%d` and open this there, within this command's life and once:\n%s\n",
			name, page.file, page.port(), page.port(), page.link())
	}
	if err == nil {
		_, err = fmt.Fprintln(c.out, "Closing the page hands back what you control. Ctrl-C ends the view; it does not hand back: `botscreen release` does.")
	}
	return err
}

// page is a port of this machine that the one browser which opened its link can use, and
// no other user, program or web page (threats.md X27).
type page struct {
	listener *net.TCPListener
	dir      string
	file     string // leads the browser to the link; its user's alone
	base     string // the path that everything lies under
	*gate
}

// openPage binds a port and writes the file.
func openPage(dial control.Dialer, report func(error)) (*page, error) {
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		return nil, err
	}
	p := &page{listener: listener, base: "/" + secret() + "/"}
	p.gate = newGate(listener.Addr().String(), p.base, dial, report)
	if p.dir, err = doorDir(); err == nil {
		p.file = filepath.Join(p.dir, "open.html")
		err = os.WriteFile(p.file, []byte(p.redirect()), 0o600)
	}
	if err != nil {
		p.close()
		return nil, err
	}
	p.opened = func() { _ = os.Remove(p.file) }
	return p, nil
}

// redirect is what the file holds: a link in an argument list could be read by every
// user of the machine.
func (p *page) redirect() string {
	return `<!doctype html><meta charset="utf-8"><meta name="referrer" content="no-referrer"><title>botscreen</title>` +
		`<meta http-equiv="refresh" content="0; url=` + html.EscapeString(p.link()) + `">` + "\n"
}

func (p *page) link() string {
	return "http://" + p.listener.Addr().String() + p.base + pathOpen + "?" + queryOnce + "=" + p.once
}

func (p *page) port() int { return p.listener.Addr().(*net.TCPAddr).Port }

func (p *page) close() {
	_ = p.listener.Close()
	if p.dir != "" {
		_ = os.RemoveAll(p.dir)
	}
}

// secret is 32 random bytes for a URL.
func secret() string {
	var b [32]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return base64.RawURLEncoding.EncodeToString(b[:])
}
