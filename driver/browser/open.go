// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"context"
	"errors"
	"fmt"
	"html"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/botscreen/botscreen/shared/cdp"
)

// Opened says what became of an address.
type Opened struct {
	Started bool // the browser did not run before
	// HandedOver says that it went to a browser that somebody started by hand with the same
	// profile, and which nobody can drive.
	HandedOver bool
}

// Open shows an address, one that screen.ParseBrowserURL has returned, in the browser: in
// a new tab of the one that runs, else in the first one of a new one. Without an address
// the browser comes to the front, or up with its start page. It returns when the browser
// has begun to load, not when the page is there.
func (b *Browser) Open(ctx context.Context, address string) (Opened, error) {
	first := address
	if first == "" {
		first = b.options.StartURL
	}
	i, started, err := b.ensure(ctx, first)
	switch {
	case errors.Is(err, errHandedOver):
		return Opened{HandedOver: true}, nil
	case err != nil:
		return Opened{}, err
	case started && first == "":
		return Opened{Started: true}, nil
	case started:
		return Opened{Started: true}, i.show(ctx, first)
	default:
		return Opened{}, i.add(ctx, address)
	}
}

// asking bounds one question to the browser.
func asking(ctx context.Context, method string, ask func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	if err := ask(ctx); err != nil {
		return fmt.Errorf("ask the browser to %s: %w", method, err)
	}
	return nil
}

func (i *instance) call(ctx context.Context, session, method string, params, result any) error {
	return asking(ctx, method, func(ctx context.Context) error { return i.mux.Call(ctx, session, method, params, result) })
}

// pages are the tabs there are, the newest first.
func (i *instance) pages(ctx context.Context) (pages []cdp.Target, err error) {
	err = asking(ctx, "Target.getTargets", func(ctx context.Context) (err error) {
		pages, err = i.mux.Targets(ctx)
		return err
	})
	return slices.DeleteFunc(pages, func(t cdp.Target) bool { return !t.IsPage() }), err
}

// show loads an address in the first tab of a browser that has just come up.
func (i *instance) show(ctx context.Context, address string) error {
	pages, err := i.pages(ctx)
	if err != nil {
		return err
	}
	if len(pages) == 0 {
		return i.add(ctx, address)
	}
	if address == blank {
		return nil
	}
	session, detach, err := i.attach(ctx, pages[0].ID)
	if err != nil {
		return err
	}
	defer detach()
	// The answer comes with the page's first bytes, which a slow server holds back.
	ctx, cancel := context.WithTimeout(ctx, navigateLimit)
	defer cancel()
	for range navigateTries {
		var got struct {
			ErrorText  string
			IsDownload bool
		}
		err = i.mux.Call(ctx, session, "Page.navigate", map[string]any{"url": address}, &got)
		if err != nil || got.ErrorText != aborted || got.IsDownload {
			break
		}
	}
	if err != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("ask the browser to Page.navigate: %w", err)
	}
	return nil
}

// aborted is the browser's word for a navigation that another one took the place of: its own
// to the blank page that it comes up with may be the later one.
const (
	aborted       = "net::ERR_ABORTED"
	navigateTries = 2
)

// attach begins a session with a page, until detach.
func (i *instance) attach(ctx context.Context, target string) (session string, detach func(), err error) {
	err = asking(ctx, "Target.attachToTarget", func(ctx context.Context) (err error) {
		session, detach, err = i.mux.Attach(ctx, target)
		return err
	})
	return session, detach, err
}

// navigateLimit is how long an opener waits for the first bytes of a page.
const navigateLimit = 3 * time.Second

// add opens a tab in front, or brings the one in front up where there is no address.
func (i *instance) add(ctx context.Context, address string) error {
	if address == "" {
		pages, err := i.pages(ctx)
		if err != nil {
			return err
		}
		if len(pages) > 0 {
			return i.call(ctx, "", "Target.activateTarget", map[string]any{"targetId": pages[0].ID}, nil)
		}
		address = blank
	}
	var made cdp.Target
	if err := i.call(ctx, "", "Target.createTarget", map[string]any{"url": address}, &made); err != nil {
		return err
	}
	err := i.call(ctx, "", "Target.activateTarget", map[string]any{"targetId": made.ID}, nil)
	var refused *cdp.Error
	if errors.As(err, &refused) && strings.HasPrefix(refused.Message, "No target with given id") {
		return nil // what was opened is a download, whose tab is closed again
	}
	return err
}

// handOver gives an address to the browser that somebody started by hand with our profile,
// as a second start of it does: it passes the address on and ends. The address travels in
// a file of ours that leads on to it, since arguments can be read by others.
func (b *Browser) handOver(ctx context.Context, found Found, p *profile, address string) error {
	args := []string{"--user-data-dir=" + p.dir}
	if address != "" {
		page := filepath.Join(b.options.Scratch, "open.html")
		if err := writePage(page, address); err != nil {
			return fmt.Errorf("hand the address over: %w", err)
		}
		args = append(args, (&url.URL{Scheme: "file", Path: page}).String())
	}
	process, err := b.options.Launch(found.Executable, args, b.options.Env)
	if err != nil {
		return fmt.Errorf("hand the address over: %w", err)
	}
	select {
	case <-process.Done():
	case <-ctx.Done():
		_ = process.Signal(os.Kill)
		return fmt.Errorf("hand the address over: %w", context.Cause(ctx))
	}
	if process.ExitCode() != 0 {
		return fmt.Errorf("hand the address over: the browser %s; last output: %q", process.Status(), words(process.LastLines()))
	}
	return errHandedOver
}

func writePage(path, address string) error {
	text := "<!doctype html><meta http-equiv=\"refresh\" content=\"0;url=" + html.EscapeString(address) + "\">\n"
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	return errors.Join(err, f.Close())
}
