// SPDX-License-Identifier: MPL-2.0

package session

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/jezek/xgb"
	"github.com/jezek/xgb/xproto"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/rfb"
)

// spyReport is what a program that asked for no permission could see.
type spyReport struct {
	Image      bool     `json:"image"`  // of the screen
	Keymap     bool     `json:"keymap"` // a key in QueryKeymap
	Press      bool     `json:"press"`  // a KeyPress event
	Extensions []string `json:"extensions"`
}

// spy is a program on the desktop that tries to watch it. It says "key" when it sees
// the first one, and reports after a line of input.
func spy() int {
	x, err := xgb.NewConn()
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	root := xproto.Setup(x).Roots[0].Root
	var report spyReport
	_, err = xproto.GetImage(x, xproto.ImageFormatZPixmap, xproto.Drawable(root), 0, 0, 4, 4, ^uint32(0)).Reply()
	report.Image = err == nil
	for _, name := range []string{"XInputExtension", "RECORD", "XTEST", "VNC-EXTENSION", "BIG-REQUESTS"} {
		if reply, err := xproto.QueryExtension(x, uint16(len(name)), name).Reply(); err == nil && reply.Present {
			report.Extensions = append(report.Extensions, name)
		}
	}
	// Keys go to the window with the focus. A logger takes every window there is.
	listenTo(x, root)
	asked := make(chan struct{})
	go func() { bufio.NewScanner(os.Stdin).Scan(); close(asked) }()
	fmt.Println("ready")
	for told := false; ; {
		last := false
		select {
		case <-asked:
			last = true // one more look, after the keys
		default:
		}
		report.look(x)
		if (report.Keymap || report.Press) && !told {
			fmt.Println("key")
			told = true
		}
		if last {
			break
		}
	}
	_ = json.NewEncoder(os.Stdout).Encode(report)
	return 0
}

func listenTo(x *xgb.Conn, window xproto.Window) {
	_ = xproto.ChangeWindowAttributesChecked(x, window, xproto.CwEventMask, []uint32{xproto.EventMaskKeyPress}).Check()
	if tree, err := xproto.QueryTree(x, window).Reply(); err == nil {
		for _, child := range tree.Children {
			listenTo(x, child)
		}
	}
}

func (r *spyReport) look(x *xgb.Conn) {
	if reply, err := xproto.QueryKeymap(x).Reply(); err == nil && slices.ContainsFunc(reply.Keys, func(b byte) bool { return b != 0 }) {
		r.Keymap = true
	}
	for {
		event, err := x.PollForEvent()
		if event == nil && err == nil {
			return
		}
		if _, ok := event.(xproto.KeyPressEvent); ok {
			r.Press = true
		}
	}
}

// startSpy runs a spy by exec, on pipes.
func (s *supervisor) startSpy(self string, gui bool) (in *os.File, out *bufio.Scanner) {
	s.t.Helper()
	inRead, in, err := os.Pipe()
	must(s.t, err)
	outRead, outWrite, err := os.Pipe()
	must(s.t, err)
	s.t.Cleanup(func() { _ = in.Close(); _ = outRead.Close() })
	request := dialhome.Exec{Argv: []string{self}, Env: []string{roleVariable + "=" + roleSpy}, GUI: gui}
	p, _ := s.ask(dialhome.OpExec, request, inRead, outWrite, outWrite)
	_ = inRead.Close()
	_ = outWrite.Close()
	if p.Err != nil {
		s.t.Fatalf("exec: %s", p.Err.Message)
	}
	return in, bufio.NewScanner(outRead)
}

// rfb is an input connection as a supervisor has it.
func (s *supervisor) rfb() *rfb.Client {
	s.t.Helper()
	p, passed := s.ask(dialhome.OpDial, struct{}{})
	if p.Err != nil || len(passed) != 1 {
		s.t.Fatalf("dial: %+v with %d descriptors", p.Err, len(passed))
	}
	f := passed[0].File("rfb")
	conn, err := net.FileConn(f)
	must(s.t, err)
	_ = f.Close()
	client, err := rfb.Connect(s.t.Context(), conn, rfb.Options{})
	must(s.t, err)
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// X3: a command that exec starts cannot watch the desktop: neither the screen nor what
// is typed. One that asked for a GUI can, as everything on the desktop, so the refusal
// is the cookie's doing.
func TestX3ExecIsUntrusted(t *testing.T) {
	r := newRig(t)
	s := r.command()
	type running struct {
		in  *os.File
		out *bufio.Scanner
	}
	spies := map[bool]running{}
	for _, gui := range []bool{true, false} {
		in, out := s.startSpy(r.self, gui)
		if !out.Scan() || out.Text() != "ready" {
			t.Fatalf("the spy says %q", out.Text())
		}
		spies[gui] = running{in, out}
	}
	keys := s.rfb()
	key := func(down bool) {
		must(t, keys.Send(rfb.KeyEvent{Down: down, Keysym: 'h'}.Append(nil)))
	}
	key(true)
	if trusted := spies[true]; !trusted.out.Scan() || trusted.out.Text() != "key" {
		t.Fatalf("nobody saw the key: %q", trusted.out.Text())
	}
	// The key is down still: whoever may look sees it now.
	reports := map[bool]spyReport{}
	for gui, spy := range spies {
		_, err := spy.in.WriteString("report\n")
		must(t, err)
		for spy.out.Scan() && !strings.HasPrefix(spy.out.Text(), "{") {
		}
		reports[gui] = decode[spyReport](t, spy.out.Bytes())
	}
	key(false)
	if got := reports[true]; !got.Image || !got.Keymap || !slices.Contains(got.Extensions, "XInputExtension") {
		t.Errorf("with the desktop's cookie: %+v", got)
	}
	if got := reports[false]; got.Image || got.Keymap || got.Press || !slices.Equal(got.Extensions, []string{"BIG-REQUESTS"}) {
		t.Errorf("with the untrusted cookie: %+v", got)
	}
	for _, name := range []string{"RECORD", "XTEST"} {
		if slices.Contains(reports[true].Extensions, name) {
			t.Errorf("%s is there", name)
		}
	}
}
