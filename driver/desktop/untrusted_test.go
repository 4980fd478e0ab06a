// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bytes"
	"testing"

	"github.com/jezek/xgb/xproto"

	"github.com/botscreen/botscreen/driver/display"
)

// X3: with an untrusted cookie a client does not read the screen, sees no extension
// that watches input, and cannot send to others. With the desktop's own cookie the
// first and the last work, so the refusals are the cookie's doing. That such a client
// hears no key is tested with real keys in package session.
func TestX3UntrustedCookie(t *testing.T) {
	r := newRig(t)
	r.start()
	trusted := r.x()
	cookie, err := trusted.generateUntrusted(display.Number(r.options.Display))
	must(t, err)
	untrusted, err := dialX(t.Context(), display.Number(r.options.Display), cookie, 0)
	must(t, err)
	defer untrusted.close()

	read := func(x *xclient) error {
		_, err := xproto.GetImage(x.conn, xproto.ImageFormatZPixmap, xproto.Drawable(x.root), 0, 0, 8, 8, ^uint32(0)).Reply()
		return err
	}
	if err := read(trusted); err != nil {
		t.Errorf("the screen cannot be read with the desktop's cookie: %v", err)
	}
	if read(untrusted) == nil {
		t.Error("the screen can be read with the untrusted cookie")
	}

	window, err := xproto.NewWindowId(trusted.conn)
	must(t, err)
	must(t, xproto.CreateWindowChecked(trusted.conn, 0, window, trusted.root, 0, 0, 9, 9, 0, xproto.WindowClassInputOnly, 0,
		xproto.CwEventMask, []uint32{xproto.EventMaskKeyPress}).Check())
	const fromUntrusted, fromTrusted = 41, 42
	press := func(x *xclient, key xproto.Keycode) {
		event := xproto.KeyPressEvent{Detail: key, Root: x.root, Event: window}
		// A refusal need not be an error: what counts is what arrives.
		_ = xproto.SendEventChecked(x.conn, false, window, xproto.EventMaskKeyPress, string(event.Bytes())).Check()
	}
	press(untrusted, fromUntrusted)
	press(trusted, fromTrusted)
	arrived, xerr := trusted.conn.WaitForEvent()
	if key, ok := arrived.(xproto.KeyPressEvent); !ok || key.Detail != fromTrusted {
		t.Errorf("first came %v (%v), want the key that the trusted client sent", arrived, xerr)
	}
	for _, extension := range []string{"XInputExtension", "RECORD", "XTEST", "VNC-EXTENSION", "MIT-SHM"} {
		reply, err := xproto.QueryExtension(untrusted.conn, uint16(len(extension)), extension).Reply()
		if err != nil || reply.Present {
			t.Errorf("%s is there for the untrusted cookie (%v)", extension, err)
		}
	}
	r.stop()
}

func TestUntrustedReply(t *testing.T) {
	whole := append(make([]byte, 32), bytes.Repeat([]byte{7}, 16)...)
	whole[12] = 16
	secret, err := parseGenerated(whole)
	if err != nil || len(secret) != 16 {
		t.Fatalf("got %d bytes, %v", len(secret), err)
	}
	cookie, err := cookieOf(21, secret)
	must(t, err)
	request, err := setupRequest(21, cookie)
	must(t, err)
	if !bytes.HasSuffix(request, secret) {
		t.Error("the cookie is not the server's")
	}
	for size := range whole {
		if _, err := parseGenerated(whole[:size]); err == nil {
			t.Errorf("a reply of %d bytes was read", size)
		}
	}
	if _, err := cookieOf(21, secret[:15]); err == nil {
		t.Error("a cookie of 15 bytes was taken")
	}
	if request := generateRequest(140); len(request) != 40 || request[2] != 10 {
		t.Errorf("request of %d bytes says %d words", len(request), request[2])
	}
}
