// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// desktopClip is a session's clipboard, whose wipes can be held up.
type desktopClip struct {
	mu    sync.Mutex // guards all below
	text  string
	wipes int
	stuck bool // wipes fail
}

func (d *desktopClip) now() (text string, wipes int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.text, d.wipes
}

func (d *desktopClip) set(text string, stuck bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.text, d.stuck = text, stuck
}

// newClipRig supervises a ready screen with a clipboard.
func newClipRig(t *testing.T, policy screen.Clipboard) (*rig, *fake, *desktopClip) {
	t.Helper()
	r := newRig(t, func(c *Config) { c.Takeover.Clipboard = policy })
	d := &desktopClip{}
	f := r.session(starting())
	r.enter(screen.Ready, control.EventReady, "")
	go f.playClipboard(d)
	return r, f, d
}

func (f *fake) playClipboard(d *desktopClip) {
	for {
		p, passed, err := f.Receive()
		if err != nil {
			return
		}
		body, refusal := d.answer(p, passed)
		dialhome.CloseAll(passed)
		answer := dialhome.Packet{ID: p.ID, OK: refusal == nil, Err: refusal}
		if refusal == nil {
			answer.Body = dialhome.Encode(body)
		}
		if f.Send(answer) != nil {
			return
		}
	}
}

func (d *desktopClip) answer(p dialhome.Packet, passed []*dialhome.Descriptor) (any, *dialhome.Error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch p.Op {
	case dialhome.OpWipeClipboard:
		if d.stuck {
			return nil, &dialhome.Error{Kind: dialhome.KindFailed, Message: "stuck"}
		}
		d.text, d.wipes = "", d.wipes+1
	case dialhome.OpReadClipboard:
		f := passed[0].File("text")
		defer f.Close()
		if _, err := f.WriteAt([]byte(d.text), 0); err != nil {
			return nil, &dialhome.Error{Kind: dialhome.KindFailed, Message: err.Error()}
		}
		return dialhome.Text{Bytes: len(d.text)}, nil
	case dialhome.OpSetClipboard:
		var told dialhome.Text
		_ = dialhome.Decode(p.Body, &told)
		f := passed[0].File("text")
		defer f.Close()
		text, _ := io.ReadAll(io.NewSectionReader(f, 0, int64(told.Bytes)))
		d.text = string(text)
	case dialhome.OpPointer:
		return dialhome.Pointer{X: 7, Y: 8, Buttons: 5}, nil
	case dialhome.OpWindows:
		return dialhome.Windows{Windows: []dialhome.Window{{Title: "a\x1b[31m", Class: "term", Active: true}}}, nil
	}
	return struct{}{}, nil
}

// X24, L6, L8: the agent's texts go in and out under its epoch; both selections are wiped
// at each change of hands, and nothing is served while a person holds.
func TestL8ClipboardWiped(t *testing.T) {
	r, _, d := newClipRig(t, screen.ClipboardIn)
	agent := r.agent()
	epoch := r.leaseNow().Epoch
	for _, text := range []string{"ä€漢", "", strings.Repeat("x", control.MaxClipboard)} {
		must(t, agent.SetClipboard(t.Context(), control.ClipboardRequest{Epoch: epoch, Text: text}))
		if got, _ := d.now(); got != text {
			t.Errorf("%d bytes arrived as %d", len(text), len(got))
		}
		clip, err := agent.Clipboard(t.Context())
		if err != nil || clip.Text != text || clip.Epoch != epoch {
			t.Errorf("%d bytes of epoch %d, %v", len(clip.Text), clip.Epoch, err)
		}
	}
	err := agent.SetClipboard(t.Context(), control.ClipboardRequest{Epoch: epoch, Text: strings.Repeat("x", control.MaxClipboard+1)})
	asRefusal(t, err, control.BadRequest)
	r.take("ann")
	if got, wipes := d.now(); got != "" || wipes != 1 {
		t.Errorf("after the takeover %d bytes, %d wipes", len(got), wipes)
	}
	d.set("her password", false)
	for _, err := range []error{
		func() error { _, err := agent.Clipboard(t.Context()); return err }(),
		func() error { _, err := agent.Windows(t.Context()); return err }(),
		func() error { _, err := agent.Cursor(t.Context()); return err }(),
		agent.SetClipboard(t.Context(), control.ClipboardRequest{Epoch: r.leaseNow().Epoch}),
	} {
		asRefusal(t, err, control.HumanHasControl)
	}
	if got, wipes := d.now(); got != "her password" || wipes != 1 {
		t.Errorf("what the agent was refused left %q, %d wipes", got, wipes)
	}
	back := r.release("ann")
	if got, wipes := d.now(); got != "" || wipes != 2 {
		t.Errorf("after the hand-back %q, %d wipes", got, wipes)
	}
	asRefusal(t, agent.SetClipboard(t.Context(), control.ClipboardRequest{Epoch: epoch, Text: "late"}), control.LeaseChanged)
	clip, err := agent.Clipboard(t.Context())
	if err != nil || clip.Text != "" || clip.Epoch != back.Epoch {
		t.Errorf("%+v, %v", clip, err)
	}
}

// L8: where the desktop does not let its clipboard be wiped in time, the screen changes
// hands all the same, and the clipboard is served to nobody until it was wiped.
func TestL8ClipboardNotWipedYet(t *testing.T) {
	r, _, d := newClipRig(t, screen.ClipboardIn)
	agent := r.agent()
	r.take("ann")
	d.set("her password", true)
	begin := time.Now()
	r.release("ann")
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("the hand-back took %s", took)
	}
	_, err := agent.Clipboard(t.Context())
	asRefusal(t, err, control.Busy)
	asRefusal(t, agent.SetClipboard(t.Context(), control.ClipboardRequest{Epoch: r.leaseNow().Epoch, Text: "x"}), control.Busy)
	d.mu.Lock()
	d.stuck = false
	d.mu.Unlock()
	r.await("it is wiped later", func() bool { clip, err := agent.Clipboard(t.Context()); return err == nil && clip.Text == "" })
}

// The job's policy: off gives the clipboard to nobody.
func TestClipboardOff(t *testing.T) {
	r, _, d := newClipRig(t, screen.ClipboardOff)
	d.set("text", false)
	_, err := r.agent().Clipboard(t.Context())
	asRefusal(t, err, control.Forbidden)
	if r.pasteByPolicy() != nil {
		t.Error("people may paste")
	}
}

// A holder's paste reaches the desktop; one that comes when nobody holds does not, and one
// that a change of hands overtakes is wiped again.
func TestPaste(t *testing.T) {
	r, _, d := newClipRig(t, screen.ClipboardIn)
	must(t, r.paste(t.Context(), "nobody"))
	if got, _ := d.now(); got != "" {
		t.Errorf("it got %q", got)
	}
	r.take("ann")
	must(t, r.paste(t.Context(), "ä€漢"))
	if got, _ := d.now(); got != "ä€漢" {
		t.Errorf("it got %q", got)
	}
	if err := r.paste(context.Background(), "\xff"); err == nil {
		t.Error("what is no text was pasted")
	}
}

// What the session's X clients know reaches the agent as untrusted text.
func TestWindowsAndCursor(t *testing.T) {
	r, _, _ := newClipRig(t, screen.ClipboardIn)
	list, err := r.agent().Windows(t.Context())
	if err != nil || len(list.Windows) != 1 || strings.ContainsRune(list.Windows[0].Title.String(), '\x1b') || !list.Windows[0].Focused || list.Epoch != r.leaseNow().Epoch {
		t.Errorf("%+v, %v", list, err)
	}
	at, err := r.agent().Cursor(t.Context())
	if err != nil || at != (control.Cursor{Epoch: r.leaseNow().Epoch, X: 7, Y: 8, Left: true, Right: true}) {
		t.Errorf("%+v, %v", at, err)
	}
	for _, role := range []*control.Client{r.client} { // an operator is no agent
		_, err := role.Windows(t.Context())
		asRefusal(t, err, control.Forbidden)
	}
}

// P10a: a session that says impossible lengths, or no text, harms nobody.
func TestX31HostileClipboard(t *testing.T) {
	for name, body := range map[string]any{
		"negative": dialhome.Text{Bytes: -1}, "huge": dialhome.Text{Bytes: 1 << 40}, "no number": map[string]string{"bytes": "x"},
	} {
		r := newRig(t, func(c *Config) { c.Takeover.Clipboard = screen.ClipboardIn })
		f := r.session(starting())
		r.enter(screen.Ready, control.EventReady, "")
		failed := make(chan error, 1)
		go func() { _, err := r.agent().Clipboard(context.Background()); failed <- err }()
		p, passed := f.asked(dialhome.OpReadClipboard)
		dialhome.CloseAll(passed)
		f.answer(p.ID, body)
		if err := <-failed; err == nil {
			t.Errorf("%s: the agent got an answer", name)
		}
	}
	file, err := clipboardFile("")
	must(t, err)
	defer file.Close()
	if _, err := file.WriteAt([]byte("x"), dialhome.MaxClipboard); err == nil {
		t.Error("the session can make our file larger")
	}
}
