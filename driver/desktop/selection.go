// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"context"
	"encoding/binary"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"
)

// get asks whoever has the clipboard for its text, which is empty where nobody has it.
func (c *clipboard) get(ctx context.Context) (text string, err error) {
	c.mu.Lock()
	cut := c.cut
	c.mu.Unlock()
	err = c.do(ctx, func() error {
		selection := c.atom[selectionClipboard]
		switch c.ownerOf(selection) { // the news of another owner may not have come yet
		case 0:
			return nil
		case c.window:
			text = string(c.owned[selection].text)
			return nil
		}
		text, err = c.fetch(cut, selection)
		return err
	})
	return text, err
}

// fetch tries the targets of text in turn. Programs that have no text refuse all.
func (c *clipboard) fetch(cut <-chan struct{}, selection xproto.Atom) (string, error) {
	for _, target := range []string{targetUTF8, targetMIME, targetLatin1} {
		c.fetches++
		property := c.atom[fmt.Sprintf(propertyText, c.fetches%textProperties)]
		xproto.DeleteProperty(c.x.conn, c.window, property)
		xproto.ConvertSelection(c.x.conn, c.window, selection, c.atom[target], property, xproto.TimeCurrentTime)
		given := false
		err := c.await(cut, ownerTimeout, func(event xgb.Event) bool {
			e, ok := event.(xproto.SelectionNotifyEvent)
			mine := ok && e.Requestor == c.window && e.Selection == selection && e.Target == c.atom[target]
			given = mine && e.Property == property
			return mine && (given || e.Property == 0)
		})
		if err != nil {
			return "", err
		}
		if !given {
			continue
		}
		part, err := c.take(property)
		if err != nil {
			return "", err
		}
		if part.kind == c.atom[typeINCR] {
			part, err = c.takeAll(cut, property)
			if err != nil {
				return "", err
			}
		}
		if text, ok := c.textOf(part); ok {
			return text, nil
		}
	}
	return "", ErrClipboardText
}

// piece is a property's value.
type piece struct {
	kind   xproto.Atom
	format byte
	value  []byte
}

// take reads and deletes a property. One that is too long is left to its owner's mercy:
// it is in the server, not here.
func (c *clipboard) take(property xproto.Atom) (piece, error) {
	const units = MaxClipboard/4 + 1
	reply, err := xproto.GetProperty(c.x.conn, true, c.window, property, xproto.GetPropertyTypeAny, 0, units).Reply()
	if err != nil {
		return piece{}, err
	}
	if reply.BytesAfter > 0 {
		xproto.DeleteProperty(c.x.conn, c.window, property)
		return piece{}, ErrClipboardLarge
	}
	return piece{reply.Type, reply.Format, reply.Value}, nil
}

// takeAll reads what comes in parts (ICCCM, section 2.7.2): each one is announced, and
// asked for by deleting the one before; an empty one is the end.
func (c *clipboard) takeAll(cut <-chan struct{}, property xproto.Atom) (whole piece, err error) {
	for {
		err := c.await(cut, ownerTimeout, func(event xgb.Event) bool {
			e, ok := event.(xproto.PropertyNotifyEvent)
			return ok && e.Window == c.window && e.Atom == property && e.State == xproto.PropertyNewValue
		})
		if err != nil {
			return piece{}, err
		}
		next, err := c.take(property)
		if err != nil {
			return piece{}, err
		}
		switch {
		case next.kind == 0:
			continue // it was there and has been taken with the one before
		case len(next.value) == 0:
			return whole, nil
		}
		whole.kind, whole.format = next.kind, next.format
		if whole.value = append(whole.value, next.value...); len(whole.value) > MaxClipboard {
			return piece{}, ErrClipboardLarge
		}
	}
}

func (c *clipboard) textOf(p piece) (string, bool) {
	switch p.kind {
	case c.atom[targetUTF8], c.atom[targetMIME], c.atom[targetPlain]:
		return decodeText(p.format, p.value, false)
	case c.atom[targetLatin1]:
		return decodeText(p.format, p.value, true)
	default:
		return "", false
	}
}

// decodeText makes UTF-8 of a text property; what is none is replaced. Some programs end
// theirs with a zero byte.
func decodeText(format byte, value []byte, latin1 bool) (string, bool) {
	if format != 8 && len(value) > 0 {
		return "", false
	}
	text := strings.TrimRight(string(value), "\x00")
	if !latin1 {
		return strings.ToValidUTF8(text, string(utf8.RuneError)), true
	}
	var b strings.Builder
	for i := range len(text) {
		b.WriteRune(rune(text[i]))
	}
	return b.String(), true
}

// encodeLatin1 is the text as STRING, as far as that has its characters.
func encodeLatin1(text []byte) []byte {
	latin1 := make([]byte, 0, len(text))
	for _, r := range string(text) {
		if r > 0xff {
			r = '?'
		}
		latin1 = append(latin1, byte(r))
	}
	return latin1
}

// serve answers somebody who wants what we own.
func (c *clipboard) serve(e xproto.SelectionRequestEvent) {
	property := e.Property
	if property == 0 {
		property = e.Target // an old program (ICCCM, section 2.2)
	}
	own, ok := c.owned[e.Selection]
	if !ok || e.Owner != c.window || e.Time != 0 && e.Time < own.since || !c.give(e, property, own) {
		property = 0
	}
	notify := xproto.SelectionNotifyEvent{Time: e.Time, Requestor: e.Requestor, Selection: e.Selection, Target: e.Target, Property: property}
	xproto.SendEvent(c.x.conn, false, e.Requestor, xproto.EventMaskNoEvent, string(notify.Bytes()))
}

// give puts the answer into the property; false refuses.
func (c *clipboard) give(e xproto.SelectionRequestEvent, property xproto.Atom, own ownership) bool {
	switch e.Target {
	case c.atom[targetTargets]:
		var list []byte
		for _, name := range []string{targetTargets, targetTimestamp, targetUTF8, targetMIME, targetPlain, targetAny, targetLatin1} {
			list = binary.LittleEndian.AppendUint32(list, uint32(c.atom[name]))
		}
		c.put(e.Requestor, property, xproto.AtomAtom, 32, list)
	case c.atom[targetTimestamp]:
		c.put(e.Requestor, property, xproto.AtomInteger, 32, binary.LittleEndian.AppendUint32(nil, uint32(own.since)))
	case c.atom[targetUTF8], c.atom[targetMIME], c.atom[targetPlain]:
		return c.giveText(e.Requestor, property, e.Target, own.text)
	case c.atom[targetAny]:
		return c.giveText(e.Requestor, property, c.atom[targetUTF8], own.text)
	case c.atom[targetLatin1]:
		return c.giveText(e.Requestor, property, e.Target, encodeLatin1(own.text))
	default:
		return false
	}
	return true
}

func (c *clipboard) put(w xproto.Window, property, kind xproto.Atom, format byte, data []byte) {
	xproto.ChangeProperty(c.x.conn, xproto.PropModeReplace, w, property, kind, format, uint32(len(data)*8/int(format)), data)
}

// maxPart is the longest text that goes in one piece, in bytes; a request has no room for
// much more than 256 KiB.
const maxPart = 64 << 10

// maxTransfers bounds the texts that are on their way in parts.
const maxTransfers = 16

type transferKey struct {
	window   xproto.Window
	property xproto.Atom
}

// transfer is a text on its way in parts.
type transfer struct {
	kind xproto.Atom
	rest []byte
	last bool // the empty part has been sent
	at   time.Time
}

// giveText writes a text, or begins to give it in parts: the receiver asks for each by
// deleting the one before.
func (c *clipboard) giveText(w xproto.Window, property, kind xproto.Atom, text []byte) bool {
	if len(text) <= maxPart {
		c.put(w, property, kind, 8, text)
		return true
	}
	if len(c.transfers) >= maxTransfers {
		return false
	}
	xproto.ChangeWindowAttributes(c.x.conn, w, xproto.CwEventMask, []uint32{xproto.EventMaskPropertyChange})
	c.transfers[transferKey{w, property}] = &transfer{kind: kind, rest: text, at: time.Now()}
	c.put(w, property, c.atom[typeINCR], 32, binary.LittleEndian.AppendUint32(nil, uint32(len(text))))
	return true
}

// advance sends the next part of a transfer whose receiver has taken the one before.
func (c *clipboard) advance(k transferKey) {
	t, ok := c.transfers[k]
	if !ok {
		return
	}
	if t.last {
		c.endTransfer(k)
		return
	}
	n := min(len(t.rest), maxPart)
	c.put(k.window, k.property, t.kind, 8, t.rest[:n])
	t.rest, t.last, t.at = t.rest[n:], n == 0, time.Now()
}

func (c *clipboard) expire(now time.Time) {
	for k, t := range c.transfers {
		if now.Sub(t.at) > transferTimeout {
			c.endTransfer(k)
		}
	}
}

func (c *clipboard) endTransfer(k transferKey) {
	delete(c.transfers, k)
	for other := range c.transfers {
		if other.window == k.window {
			return
		}
	}
	if k.window != c.window {
		xproto.ChangeWindowAttributes(c.x.conn, k.window, xproto.CwEventMask, []uint32{xproto.EventMaskNoEvent})
	}
}
