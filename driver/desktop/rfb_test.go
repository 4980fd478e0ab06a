// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"slices"
	"strings"
	"testing"

	"github.com/jezek/xgb/xproto"
)

// A text that begins with characters that are on no key arrives as it was typed: each of
// them has a key of its own afterwards (Xvnc forgets those of before its first key event).
func TestFirstTextOfADesktop(t *testing.T) {
	r := newRig(t)
	r.start()
	const text = "漢字語"
	if n := r.order(order{Op: "type", Text: text}); n.Err != "" {
		t.Fatal(n.Err)
	}
	reply, err := xproto.GetKeyboardMapping(r.x().conn, 8, 248).Reply()
	must(t, err)
	for _, letter := range text {
		if !slices.Contains(reply.Keysyms, xproto.Keysym(0x01000000|letter)) {
			t.Errorf("%c is on no key", letter)
		}
	}
}

// A busy machine: the kernel lists a socket twice when others come and go between two
// reads of /proc/net/unix. That is no intruder, and must not fail a start.
func TestX2ListedTwice(t *testing.T) {
	const list = `Num       RefCount Protocol Flags    Type St Inode Path
0000000000000000: 00000002 00000000 00010000 0001 01 90001 /run/x/rfb.sock
0000000000000000: 00000002 00000000 00010000 0001 01 90001 /run/x/rfb.sock
`
	if n, err := countNamed(strings.NewReader(list), "/run/x/rfb.sock"); n != (bound{listeners: 1}) || err != nil {
		t.Fatalf("%+v, %v", n, err)
	}
}
