// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"context"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
	"github.com/botscreen/botscreen/shared/screen"
)

// FocusNotice tells a holder that what they type may go to a program they did not turn to
// (threats.md X44). Program and Title are words of the screen, and must be shown as text.
type FocusNotice struct {
	Program screen.Untrusted
	Title   screen.Untrusted
	// Grabbed says that a program has grabbed the keyboard; which one, nobody can ask. Else
	// Program has taken the focus, and can be ended.
	Grabbed bool
}

type focused struct {
	Type    string           `json:"type"` // focus
	Program screen.Untrusted `json:"program"`
	Title   screen.Untrusted `json:"title"`
	Grabbed bool             `json:"grabbed"`
}

// FocusMoved tells whoever controls the screen, if that is still the lease of this epoch.
func (r *Relay) FocusMoved(epoch lease.Epoch, n FocusNotice) {
	r.tellHolder(epoch, focused{Type: "focus", Program: n.Program, Title: n.Title, Grabbed: n.Grabbed})
}

// tellHolder tells the holder's streams and no other, if the lease is still of this epoch.
func (r *Relay) tellHolder(epoch lease.Epoch, message any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	held, _ := r.lease.Lease()
	if held.Epoch != epoch || !held.Held() || r.next.Epoch > epoch {
		return
	}
	for _, v := range r.viewers {
		if v.grant.Mode == ticket.Control && held.HeldBy(v.grant.Viewer) {
			v.tell(message)
		}
	}
}

// Steered is when a person last did something by which the keyboard's focus moves on an
// ordinary desktop: pressed a mouse button, or a key that acts and does not only write.
func (r *Relay) Steered() time.Time { return time.Unix(0, r.gate.steered.Load()) }

// Typed is when a person last pressed or let go of a key.
func (r *Relay) Typed() time.Time { return time.Unix(0, r.gate.typed.Load()) }

// noteDoing keeps when a person did this. It needs the input lock.
func (g *gate) noteDoing(m rfb.Message) {
	now := time.Now().UnixNano()
	if _, ok := m.Key(); ok {
		g.typed.Store(now)
	}
	if g.pressed.steers(m) {
		g.steered.Store(now)
	}
}

// wishTimeout bounds what a holder asks of the screen between two keys.
const wishTimeout = 8 * time.Second

// endProgram ends the program that the last FocusNotice named.
func (v *viewer) endProgram() {
	if end := v.relay.options.EndProgram; end != nil {
		v.forHolder("end_program", "the program could not be ended; the node's log says why", end)
	}
}

// renewPage gives a holder a page without what the agent left in it.
func (v *viewer) renewPage(op string) {
	renew, fresh := v.relay.options.RenewPage, op == "fresh_window"
	if renew == nil {
		return
	}
	fault := "no browser is open, or the page has not come in time, and what the agent left in it may still be there; look before you type, or take a fresh window"
	if fresh {
		fault = "no window of the screen's browser could be had; is it open?"
	}
	v.forHolder(op, fault, func(ctx context.Context) error { return renew(ctx, fresh) })
}

// forHolder does something for a viewer that holds, and tells it when that fails.
func (v *viewer) forHolder(op, fault string, do func(ctx context.Context) error) {
	if !v.mayInput() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), wishTimeout)
	defer cancel()
	if err := do(ctx); err != nil {
		v.relay.log.Warn("viewer's operation", "op", op, "viewer", v.grant.Viewer.Handle(), "err", err)
		v.tell(failed{Type: "error", Op: op, Message: fault})
	}
}

// Keysyms of keys that act (keysymdef.h): Tab, Return and Escape, those from Select to Menu,
// the function keys, and the modifiers with which a letter is a command.
const (
	keysymTab, keysymReturn, keysymEscape = 0xff09, 0xff0d, 0xff1b
	keysymSelect, keysymMenu              = 0xff60, 0xff67
	keysymKeypadEnter                     = 0xff8d
	keysymF1, keysymF35                   = 0xffbe, 0xffe0
	keysymControlL, keysymControlR        = 0xffe3, 0xffe4
	keysymMetaL, keysymHyperR             = 0xffe7, 0xffee // Meta, Alt, Super, Hyper
)

// steers says whether the message, which has been tracked, may move the focus.
func (p *pressed) steers(m rfb.Message) bool {
	if at, ok := m.Pointer(); ok {
		return at.Buttons != 0
	}
	key, ok := m.Key()
	if !ok || !key.Down {
		return false
	}
	for _, k := range p.keys { // with it, the one that was just pressed
		if isModifier(k.Keysym) {
			return true
		}
	}
	return acts(key.Keysym)
}

func isModifier(keysym uint32) bool {
	return keysym == keysymControlL || keysym == keysymControlR || keysymMetaL <= keysym && keysym <= keysymHyperR
}

func acts(keysym uint32) bool {
	switch keysym {
	case keysymTab, keysymReturn, keysymEscape, keysymKeypadEnter:
		return true
	}
	return keysymSelect <= keysym && keysym <= keysymMenu || keysymF1 <= keysym && keysym <= keysymF35
}
