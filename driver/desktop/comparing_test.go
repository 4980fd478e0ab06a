// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/jezek/xgb/xproto"
)

// A screen that nobody looks at does not pay for a second copy of its picture; with the
// first viewer the server begins to compare.
func TestComparesForViewersOnly(t *testing.T) {
	// Large: a desktop that has just come up still takes a megabyte or two.
	r := newRigAt(t, "plain", func(r *rig) { r.options.WidthPx, r.options.HeightPx = 2560, 1440 })
	server := r.start().XServer
	x := r.x()
	look := func() {
		t.Helper()
		flash(t, x) // without a change there is nothing to compare
		if n := r.order(order{Op: "type"}); n.Err != "" {
			t.Fatal(n.Err)
		}
	}
	picture := r.options.WidthPx * r.options.HeightPx * 4
	look() // what a connection leaves behind is there now
	before := anonymous(t, server)
	look()
	if more := anonymous(t, server) - before; more > picture/2 {
		t.Errorf("%d bytes more, a picture has %d", more, picture)
	}
	if n := r.order(order{Op: "compare"}); n.Err != "" {
		t.Fatal(n.Err)
	}
	more := 0
	for range 50 { // nobody waits for the server's answer
		look()
		if more = anonymous(t, server) - before; more >= picture*9/10 {
			return
		}
	}
	t.Errorf("%d bytes more, a picture has %d", more, picture)
}

// flash shows a window for a moment.
func flash(t *testing.T, x *xclient) {
	t.Helper()
	window, err := xproto.NewWindowId(x.conn)
	must(t, err)
	must(t, xproto.CreateWindowChecked(x.conn, 0, window, x.root, 0, 0, 200, 200, 0, xproto.WindowClassInputOutput, 0,
		xproto.CwBackPixel|xproto.CwOverrideRedirect, []uint32{0x123456, 1}).Check())
	must(t, xproto.MapWindowChecked(x.conn, window).Check())
	must(t, xproto.DestroyWindowChecked(x.conn, window).Check())
}

// anonymous is the memory of a process that no file is behind, in bytes.
func anonymous(t *testing.T, pid int) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	must(t, err)
	for line := range strings.Lines(string(text)) {
		if f := strings.Fields(line); len(f) == 3 && f[0] == "Anonymous:" {
			kb, err := strconv.Atoi(f[1])
			must(t, err)
			return kb << 10
		}
	}
	t.Fatal("no Anonymous in smaps_rollup")
	return 0
}
