// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
	"unicode/utf8"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xfixes"
	"github.com/jezek/xgb/xproto"

	"github.com/botscreen/botscreen/driver/display"
)

// MaxClipboard bounds the text of a clipboard, in bytes.
const MaxClipboard = 256 << 10

var (
	// ErrClipboardText says that the clipboard holds no text, or the owner gives none.
	ErrClipboardText = errors.New("the clipboard holds no text")
	// ErrClipboardLarge says that its text is longer than MaxClipboard.
	ErrClipboardLarge = fmt.Errorf("the clipboard's text is longer than %d bytes", MaxClipboard)

	errClipboardSlow = errors.New("the program that has the clipboard does not answer")
	errWiped         = errors.New("the clipboard was wiped meanwhile")
)

const (
	// ownerTimeout is how long another program may take to give the next part of its text.
	ownerTimeout = 2 * time.Second
	// changesEvery is how often changes of the clipboard are told at most.
	changesEvery = time.Second
	// transferTimeout ends a transfer whose receiver stopped taking it.
	transferTimeout = 10 * time.Second
)

// clipboard is the session's own X client of the selections CLIPBOARD and PRIMARY (X24;
// ICCCM, section 2). Xvnc's is switched off, so this is the only way for text between the
// desktop and people or agents. One goroutine does all; the calls are jobs for it.
type clipboard struct {
	x       *xclient
	window  xproto.Window
	changed func() // told that somebody else copied something; nil: nobody listens
	events  chan xgb.Event
	jobs    chan func()
	done    chan struct{} // closed when the connection has ended

	mu      sync.Mutex // guards cut
	cut     chan struct{}
	atom    map[string]xproto.Atom
	fetches int

	// The goroutine's own.
	owned     map[xproto.Atom]ownership // by selection
	transfers map[transferKey]*transfer
	copied    bool // there is a change to tell of
}

// ownership is a text that we have for whoever asks.
type ownership struct {
	text  []byte
	since xproto.Timestamp
}

// Names of atoms. The targets of text come in the order of preference.
const (
	selectionClipboard = "CLIPBOARD"
	selectionPrimary   = "PRIMARY"
	targetUTF8         = "UTF8_STRING"
	targetMIME         = "text/plain;charset=utf-8"
	targetPlain        = "text/plain"
	targetLatin1       = "STRING"
	targetAny          = "TEXT"
	targetTargets      = "TARGETS"
	targetTimestamp    = "TIMESTAMP"
	typeINCR           = "INCR"
	propertyClock      = "_BOTSCREEN_TIME"
	propertyText       = "_BOTSCREEN_TEXT_%d" // in turn: a late answer is no later fetch's
	textProperties     = 8
)

var clipboardAtoms = []string{selectionClipboard, selectionPrimary, targetUTF8, targetMIME, targetPlain, targetLatin1, targetAny,
	targetTargets, targetTimestamp, typeINCR, propertyClock}

// openClipboard connects and makes the window that owns and asks.
func openClipboard(ctx context.Context, n display.Number, cookie display.Cookie, server int, changed func()) (*clipboard, error) {
	x, err := dialX(ctx, n, cookie, server)
	if err != nil {
		return nil, fmt.Errorf("open clipboard: %w", err)
	}
	c := &clipboard{
		x: x, changed: changed, events: make(chan xgb.Event, 1024), jobs: make(chan func()), done: make(chan struct{}),
		cut: make(chan struct{}), atom: map[string]xproto.Atom{}, owned: map[xproto.Atom]ownership{}, transfers: map[transferKey]*transfer{},
	}
	if err := c.prepare(); err != nil {
		x.close()
		return nil, fmt.Errorf("open clipboard: %w", err)
	}
	go c.listen()
	go c.run()
	return c, nil
}

func (c *clipboard) prepare() error {
	names := clipboardAtoms
	for i := range textProperties {
		names = append(names, fmt.Sprintf(propertyText, i))
	}
	for _, name := range names {
		atom, err := c.x.atom(name)
		if err != nil {
			return err
		}
		c.atom[name] = atom
	}
	window, err := xproto.NewWindowId(c.x.conn)
	if err != nil {
		return err
	}
	c.window = window
	err = xproto.CreateWindowChecked(c.x.conn, 0, window, c.x.root, -1, -1, 1, 1, 0, xproto.WindowClassInputOnly, 0,
		xproto.CwOverrideRedirect|xproto.CwEventMask, []uint32{1, xproto.EventMaskPropertyChange}).Check()
	if err != nil || c.changed == nil {
		return err
	}
	if err := c.x.extension(extensionFixes); err != nil {
		return err
	}
	if _, err := xfixes.QueryVersion(c.x.conn, 5, 0).Reply(); err != nil {
		return err
	}
	return xfixes.SelectSelectionInputChecked(c.x.conn, window, c.atom[selectionClipboard], xfixes.SelectionEventMaskSetSelectionOwner).Check()
}

func (c *clipboard) close() {
	c.x.close()
	<-c.done
}

// listen reads events as they come: the library stops reading answers too while nobody
// takes them. Whoever floods us with events loses some.
func (c *clipboard) listen() {
	defer close(c.done)
	for {
		event, err := c.x.conn.WaitForEvent()
		if event == nil && err == nil {
			return
		}
		if event == nil {
			continue // an error of a request to a window that is gone
		}
		select {
		case c.events <- event:
		default:
		}
	}
}

func (c *clipboard) run() {
	ticker := time.NewTicker(changesEvery)
	defer ticker.Stop()
	for {
		select {
		case e := <-c.events:
			c.handle(e)
		case job := <-c.jobs:
			job()
		case now := <-ticker.C:
			c.expire(now)
			if c.copied {
				c.copied = false
				c.changed()
			}
		case <-c.done:
			return
		}
	}
}

// handle serves whoever asks for what we own.
func (c *clipboard) handle(event xgb.Event) {
	switch e := event.(type) {
	case xproto.SelectionRequestEvent:
		c.serve(e)
	case xproto.PropertyNotifyEvent:
		if e.State == xproto.PropertyDelete {
			c.advance(transferKey{e.Window, e.Atom})
		}
	case xproto.SelectionClearEvent:
		if e.Owner == c.window && c.ownerOf(e.Selection) != c.window {
			delete(c.owned, e.Selection)
		}
	case xfixes.SelectionNotifyEvent:
		if e.Owner != c.window && e.Owner != 0 {
			c.copied = true
		}
	}
}

// ownerOf is 0 where nobody owns the selection, or the connection has ended.
func (c *clipboard) ownerOf(selection xproto.Atom) xproto.Window {
	reply, err := xproto.GetSelectionOwner(c.x.conn, selection).Reply()
	if err != nil {
		return 0
	}
	return reply.Owner
}

// do runs a job in the goroutine and waits for it.
func (c *clipboard) do(ctx context.Context, job func() error) error {
	result := make(chan error, 1)
	select {
	case c.jobs <- func() { result <- job() }:
	case <-c.done:
		return errors.New("the desktop has ended")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	select {
	case err := <-result:
		return err
	case <-c.done:
		return errors.New("the desktop has ended")
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// await handles events until one is wanted, at most until the deadline. cut ends it too.
func (c *clipboard) await(cut <-chan struct{}, within time.Duration, wanted func(xgb.Event) bool) error {
	timer := time.NewTimer(within)
	defer timer.Stop()
	for {
		select {
		case e := <-c.events:
			if wanted(e) {
				return nil
			}
			c.handle(e)
		case <-timer.C:
			return errClipboardSlow
		case <-cut:
			return errWiped
		case <-c.done:
			return errors.New("the desktop has ended")
		}
	}
}

// set makes a text that of both selections.
func (c *clipboard) set(ctx context.Context, text string) error {
	switch {
	case len(text) > MaxClipboard:
		return ErrClipboardLarge
	case !utf8.ValidString(text):
		return errors.New("the text is not UTF-8")
	}
	return c.do(ctx, func() error {
		now, err := c.now()
		if err != nil {
			return err
		}
		for _, name := range []string{selectionClipboard, selectionPrimary} {
			selection := c.atom[name]
			xproto.SetSelectionOwner(c.x.conn, c.window, selection, now)
			if c.ownerOf(selection) != c.window {
				return errors.New("another program took the clipboard")
			}
			c.owned[selection] = ownership{[]byte(text), now}
		}
		return nil
	})
}

// now is the server's time, which ownership needs (ICCCM, section 2.1).
func (c *clipboard) now() (xproto.Timestamp, error) {
	clock := c.atom[propertyClock]
	xproto.ChangeProperty(c.x.conn, xproto.PropModeAppend, c.window, clock, xproto.AtomString, 8, 0, nil)
	var now xproto.Timestamp
	err := c.await(nil, ownerTimeout, func(event xgb.Event) bool {
		e, ok := event.(xproto.PropertyNotifyEvent)
		if ok && e.Window == c.window && e.Atom == clock {
			now = e.Time
		}
		return now != 0
	})
	return now, err
}

// wipe takes both selections from whoever has them and gives them to nobody (rule L8). A
// fetch that is under way ends.
func (c *clipboard) wipe(ctx context.Context) error {
	c.mu.Lock()
	close(c.cut)
	c.cut = make(chan struct{})
	c.mu.Unlock()
	return c.do(ctx, func() error {
		clear(c.transfers)
		for _, name := range []string{selectionClipboard, selectionPrimary} {
			selection := c.atom[name]
			delete(c.owned, selection)
			xproto.SetSelectionOwner(c.x.conn, c.window, selection, xproto.TimeCurrentTime)
			xproto.SetSelectionOwner(c.x.conn, 0, selection, xproto.TimeCurrentTime)
			if owner := c.ownerOf(selection); owner != 0 {
				return fmt.Errorf("window %#x took %s back", uint32(owner), name)
			}
		}
		c.copied = false
		return nil
	})
}
