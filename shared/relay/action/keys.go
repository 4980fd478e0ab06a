// SPDX-License-Identifier: MPL-2.0

package action

import (
	"errors"
	"fmt"
	"iter"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/botscreen/botscreen/shared/rfb"
)

// Keysyms of the keys that have no character (X11's keysymdef.h).
var keyNames = map[string]uint32{
	"backspace": 0xff08, "tab": 0xff09, "return": 0xff0d, "enter": 0xff0d, "pause": 0xff13, "scroll_lock": 0xff14,
	"sys_req": 0xff15, "escape": 0xff1b, "esc": 0xff1b, "delete": 0xffff, "del": 0xffff,
	"home": 0xff50, "left": 0xff51, "up": 0xff52, "right": 0xff53, "down": 0xff54,
	"page_up": 0xff55, "pageup": 0xff55, "prior": 0xff55, "page_down": 0xff56, "pagedown": 0xff56, "next": 0xff56,
	"end": 0xff57, "print": 0xff61, "insert": 0xff63, "ins": 0xff63, "menu": 0xff67, "num_lock": 0xff7f,
	"caps_lock": 0xffe5, "capslock": 0xffe5, "space": ' ', "plus": '+', "minus": '-',
	"kp_enter": 0xff8d, "kp_add": 0xffab, "kp_subtract": 0xffad, "kp_multiply": 0xffaa, "kp_divide": 0xffaf,
}

// Modifiers, by the names people use for them.
var modifierNames = map[string]uint32{
	"shift": shiftL, "shift_l": shiftL, "shift_r": 0xffe2,
	"ctrl": controlL, "control": controlL, "control_l": controlL, "control_r": 0xffe4,
	"alt": 0xffe9, "alt_l": 0xffe9, "alt_r": 0xffea, "altgr": 0xfe03, "iso_level3_shift": 0xfe03,
	"meta": 0xffe7, "meta_l": 0xffe7, "meta_r": 0xffe8,
	"super": 0xffeb, "super_l": 0xffeb, "super_r": 0xffec, "win": 0xffeb, "cmd": 0xffeb,
}

const (
	shiftL     = 0xffe1
	controlL   = 0xffe3
	altGr      = 0xfe03
	functionF1 = 0xffbe
	unicodeBit = 0x01000000
)

// shifted is what a US keyboard has above its keys: with Shift held, a server looks
// for the character that was named, and would let go of Shift for the one below.
var shifted = strings.NewReplacer(
	"1", "!", "2", "@", "3", "#", "4", "$", "5", "%", "6", "^", "7", "&", "8", "*", "9", "(", "0", ")",
	"-", "_", "=", "+", "[", "{", "]", "}", "\\", "|", ";", ":", "'", "\"", ",", "<", ".", ">", "/", "?", "`", "~",
)

// keysymOf is the key of a character, 0 for a control character that has none.
func keysymOf(r rune) uint32 {
	switch {
	case r == '\n':
		return keyNames["return"]
	case r == '\t':
		return keyNames["tab"]
	case unicode.IsControl(r):
		return 0
	case r <= 0xff: // Latin-1 keysyms are their characters
		return uint32(r)
	default:
		return unicodeBit | uint32(r)
	}
}

// chord is keys that go down in order and up in the reverse one.
type chord struct {
	modifiers []uint32
	key       uint32 // 0: modifiers alone
}

// parseChord reads "ctrl+shift+t", "Page_Up", "alt+F4", "a", "U20AC" and "ctrl++".
func parseChord(text string) (chord, error) {
	const most = 64
	if text == "" || len(text) > most {
		return chord{}, fmt.Errorf("must be keys joined by \"+\", at most %d bytes", most)
	}
	// The last key may be "+" itself.
	body, last := text, ""
	if strings.HasSuffix(text, "+") {
		body, last = strings.TrimSuffix(text, "+"), "+"
		if body != "" && !strings.HasSuffix(body, "+") {
			return chord{}, errors.New("ends in \"+\" without a key; the key itself is \"plus\"")
		}
		body = strings.TrimSuffix(body, "+")
	}
	var names []string
	if body != "" {
		names = strings.Split(body, "+")
	}
	if last != "" {
		names = append(names, last)
	}
	return chordOf(names)
}

func chordOf(names []string) (chord, error) {
	var c chord
	for i, name := range names {
		if modifier, ok := modifierNames[strings.ToLower(name)]; ok {
			c.modifiers = append(c.modifiers, modifier)
			continue
		}
		if i < len(names)-1 {
			return chord{}, fmt.Errorf("has %q before its last key, which is no modifier", name)
		}
		key, err := keyOf(name, c.modifiers)
		if err != nil {
			return chord{}, err
		}
		c.key = key
	}
	return c, nil
}

// keyOf is the keysym of one name, under the modifiers that are down.
func keyOf(name string, modifiers []uint32) (uint32, error) {
	if r, size := utf8.DecodeRuneInString(name); size == len(name) && r != utf8.RuneError {
		if key := keysymOf(levelled(r, modifiers)); key != 0 {
			return key, nil
		}
	}
	lower := strings.ToLower(name)
	if key, ok := keyNames[lower]; ok {
		return key, nil
	}
	if number, ok := strings.CutPrefix(lower, "f"); ok {
		if n, err := strconv.Atoi(number); err == nil && n >= 1 && n <= 24 {
			return functionF1 + uint32(n) - 1, nil
		}
	}
	if hex, ok := strings.CutPrefix(lower, "u"); ok && len(hex) >= 4 {
		if n, err := strconv.ParseUint(hex, 16, 21); err == nil && utf8.ValidRune(rune(n)) && keysymOf(rune(n)) != 0 {
			return keysymOf(rune(n)), nil
		}
	}
	return 0, fmt.Errorf("names %q, which is no key", name)
}

// levelled is the character a key gives under the modifiers: "shift+a" means A, and
// "ctrl+C" means c, as in every menu.
func levelled(r rune, modifiers []uint32) rune {
	shift, other := false, false
	for _, m := range modifiers {
		switch m {
		case shiftL, modifierNames["shift_r"]:
			shift = true
		case altGr: // gives characters of its own
		default:
			other = true
		}
	}
	switch {
	case shift && unicode.IsLower(r):
		return unicode.ToUpper(r)
	case shift:
		up, _ := utf8.DecodeRuneInString(shifted.Replace(string(r)))
		return up
	case other && r <= unicode.MaxASCII:
		return unicode.ToLower(r)
	}
	return r
}

// Key presses a chord such as "ctrl+shift+t" or a key such as "Return".
type Key struct {
	Keys  string `json:"keys"`
	Count int    `json:"count,omitempty"` // 0: once
}

func (a Key) check(f *faults, _ rfb.Size) {
	f.chord("keys", a.Keys)
	f.count("count", a.Count, maxRepeat)
}

// Steps presses the keys in order and releases them in the reverse one.
func (a Key) Steps() iter.Seq[Step] {
	c, _ := parseChord(a.Keys) // Check has refused what is not
	return func(yield func(Step) bool) {
		for range max(1, a.Count) {
			if !c.around(yield, func() bool { return c.key == 0 || tap(yield, c.key) }) {
				return
			}
		}
	}
}

// around holds the modifiers down during inner.
func (c chord) around(yield func(Step) bool, inner func() bool) bool {
	for _, m := range c.modifiers {
		if !yield(keyStep(m, true)) {
			return false
		}
	}
	if !inner() {
		return false
	}
	for i := range c.modifiers {
		if !yield(keyStep(c.modifiers[len(c.modifiers)-1-i], false)) {
			return false
		}
	}
	return true
}

func tap(yield func(Step) bool, keysym uint32) bool {
	return yield(keyStep(keysym, true)) && yield(keyStep(keysym, false))
}

func keyStep(keysym uint32, down bool) Step {
	return Step{Message: rfb.KeyEvent{Down: down, Keysym: keysym}.Append(nil)}
}
