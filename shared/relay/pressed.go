// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"slices"

	"github.com/botscreen/botscreen/shared/rfb"
)

// maxPressed bounds the keys that are held down at once; nobody has more fingers,
// and their memory is the relay's.
const maxPressed = 256

// pressed is what the one input connection holds down, in the form it was pressed: a
// release in another form leaves a key down (rule L7).
type pressed struct {
	keys    []rfb.KeyEvent // oldest first
	pointer rfb.PointerEvent
}

// track notes an input message and reports whether it may be sent.
func (p *pressed) track(m rfb.Message) bool {
	if pointer, ok := m.Pointer(); ok {
		p.pointer = pointer
		return true
	}
	key, ok := m.Key()
	if !ok {
		return true
	}
	at := slices.IndexFunc(p.keys, func(k rfb.KeyEvent) bool { return sameKey(k, key) })
	switch {
	case key.Down && at < 0:
		if len(p.keys) == maxPressed {
			return false
		}
		p.keys = append(p.keys, key)
	case !key.Down && at >= 0:
		p.keys = slices.Delete(p.keys, at, at+1)
	}
	return true
}

// sameKey tells keys apart as the server does: by key code where there is one,
// because the keysym of a key changes while Shift goes up or down.
func sameKey(a, b rfb.KeyEvent) bool {
	if a.QEMU != b.QEMU {
		return false
	}
	if a.QEMU && (a.Keycode != 0 || b.Keycode != 0) {
		return a.Keycode == b.Keycode
	}
	return a.Keysym == b.Keysym
}

// appendReleases writes what lets go of everything, the last pressed first.
func (p *pressed) appendReleases(b []byte) []byte {
	for _, key := range slices.Backward(p.keys) {
		key.Down = false
		b = key.Append(b)
	}
	if p.pointer.Buttons != 0 {
		up := p.pointer
		up.Buttons = 0
		b = up.Append(b)
	}
	return b
}

// clear forgets everything: it has been released. The pointer stays where it is.
func (p *pressed) clear() {
	p.keys = p.keys[:0]
	p.pointer.Buttons = 0
}
