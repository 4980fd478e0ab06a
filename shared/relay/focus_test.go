// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
	"github.com/botscreen/botscreen/shared/screen"
)

// X44: the holder alone is told, and alone may end the program.
func TestX44ToldToTheHolder(t *testing.T) {
	ended := make(chan struct{}, 8)
	d := newDoor(t, func(o *Options) {
		o.EndProgram = func(context.Context) error { ended <- struct{}{}; return nil }
	})
	holder := d.visit(t, "a", ticket.Control, leaseProtocol)
	other := d.visit(t, "b", ticket.Control, leaseProtocol)
	d.take(t, "a")
	held, _ := d.keeper.Lease()
	d.FocusMoved(held.Epoch-1, FocusNotice{Program: screen.Distrust("late")})
	d.FocusMoved(held.Epoch, FocusNotice{Program: screen.Distrust("xterm"), Title: screen.Distrust("Sign in")})
	if got := holder.told("focus"); got["program"] != "xterm" || got["title"] != "Sign in" || got["grabbed"] != false {
		t.Errorf("the holder is told %v", got)
	}
	other.say(t, `{"op":"end_program"}`)
	other.say(t, `{"op":"none"}`)
	other.told("error") // after what came before it
	holder.say(t, `{"op":"end_program"}`)
	<-ended
	d.take(t, "b")
	now, _ := d.keeper.Lease()
	for {
		said := <-other.texts
		if said["type"] == "focus" {
			t.Errorf("another was told %v", said)
		}
		if l, ok := said["lease"].(map[string]any); ok && l["epoch"] == float64(now.Epoch) {
			break
		}
	}
	if len(ended) != 0 {
		t.Error("somebody else ended a program")
	}
}

// X18: the holder alone renews the page, and hears when that fails.
func TestX18RenewPage(t *testing.T) {
	asked := make(chan bool, 8)
	d := newDoor(t, func(o *Options) {
		o.RenewPage = func(_ context.Context, fresh bool) error {
			asked <- fresh
			if fresh {
				return errors.New("no browser runs")
			}
			return nil
		}
	})
	holder := d.visit(t, "a", ticket.Control, leaseProtocol)
	other := d.visit(t, "b", ticket.Control, leaseProtocol)
	d.take(t, "a")
	other.say(t, `{"op":"reload"}`)
	other.say(t, `{"op":"none"}`)
	other.told("error") // after what came before it
	if len(asked) != 0 {
		t.Error("another viewer renews the page")
	}
	holder.say(t, `{"op":"reload"}`)
	if fresh := <-asked; fresh {
		t.Error("a window for a reload")
	}
	holder.say(t, `{"op":"fresh_window"}`)
	if got := holder.told("error"); got["op"] != "fresh_window" || !<-asked {
		t.Errorf("the holder is told %v", got)
	}
}

// X44: keys that act and buttons may move the focus; text may not.
func TestX44Steering(t *testing.T) {
	key := func(keysym uint32) rfb.Message { return rfb.KeyEvent{Down: true, Keysym: keysym}.Append(nil) }
	const control = 0xffe3
	for name, test := range map[string]struct {
		messages []rfb.Message
		steers   bool
	}{
		"a letter":     {[]rfb.Message{key('a')}, false},
		"a capital":    {[]rfb.Message{key(0xffe1), key('A')}, false},
		"a correction": {[]rfb.Message{key(0xff08)}, false},
		"an arrow":     {[]rfb.Message{key(0xff51)}, false},
		"Return":       {[]rfb.Message{key(0xff0d)}, true},
		"F4":           {[]rfb.Message{key(0xffc1)}, true},
		"Ctrl+N":       {[]rfb.Message{key(control), key('n')}, true},
		"after Ctrl":   {[]rfb.Message{key(control), rfb.KeyEvent{Keysym: control}.Append(nil), key('n')}, false},
		"a click":      {[]rfb.Message{rfb.PointerEvent{Buttons: 1}.Append(nil)}, true},
		"the mouse":    {[]rfb.Message{rfb.PointerEvent{X: 5}.Append(nil)}, false},
		"a release":    {[]rfb.Message{rfb.KeyEvent{Keysym: 0xff0d}.Append(nil)}, false},
	} {
		var p pressed
		steers := false
		for _, m := range test.messages {
			p.track(m)
			steers = p.steers(m)
		}
		if steers != test.steers {
			t.Errorf("%s: %v", name, steers)
		}
	}
}

// Only what a person does counts, and only what passed.
func TestX44WhoseDoing(t *testing.T) {
	w := newWorld(t)
	p := w.come(t, "a", ticket.Control)
	p.send(t, keyMessage(true, 0xff0d)) // the agent holds
	if !w.Steered().Equal(time.Unix(0, 0)) || !w.Typed().Equal(time.Unix(0, 0)) {
		t.Error("what did not pass counts")
	}
	w.take(t, "a")
	p.send(t, keyMessage(true, 'x'))
	w.x.await(func() bool { return len(w.x.inputsLocked()) == 1 })
	if w.Typed().Equal(time.Unix(0, 0)) || !w.Steered().Equal(time.Unix(0, 0)) {
		t.Error("a letter is typed and steers nothing")
	}
}
