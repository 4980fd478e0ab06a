// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"slices"
	"testing"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/rfb"
	"github.com/botscreen/botscreen/shared/screen"
)

// newPictured supervises a ready screen on a fake session, whose X server is a helper that
// shows a picture at path.
func newPictured(t *testing.T, change func(*Config)) (r *rig, f *fake, server *helper, path string) {
	t.Helper()
	path = serverPath(t)
	server = startHelper(t, "server", "SERVER="+path, "PICTURE=255")
	server.says("listening")
	r = newRig(t, change)
	f = r.session(dialhome.Desktop{State: dialhome.Running, Display: 77, XPID: server.identity.PID, XStart: server.identity.Start})
	r.awaitState(screen.Ready)
	return r, f, server, path
}

// newViewable supervises a ready screen whose X server is a helper that shows a picture
// and says what it is sent.
func newViewable(t *testing.T) (*rig, *helper) { return newViewableWith(t, nil) }

func newViewableWith(t *testing.T, change func(*Config)) (*rig, *helper) {
	t.Helper()
	r, f, server, path := newPictured(t, change)
	go f.passServer(path, func(dialhome.Dial) {})
	return r, server
}

// passServer answers every dial with a connection to the server, until the link ends. It
// tells asked of each.
func (f *fake) passServer(path string, asked func(dialhome.Dial)) {
	for {
		p, _, err := f.Receive()
		if err == nil && granted[p.Op] {
			err = f.Send(dialhome.Packet{ID: p.ID, OK: true, Body: dialhome.Encode(struct{}{})})
			if err == nil {
				continue
			}
		}
		if err != nil || p.Op != dialhome.OpDial {
			return
		}
		var request dialhome.Dial
		if dialhome.Decode(p.Body, &request) != nil {
			return
		}
		asked(request)
		server, err := connectServer(path)
		if err != nil {
			return
		}
		err = f.Send(dialhome.Packet{ID: p.ID, OK: true}, server)
		_ = server.Close()
		if err != nil {
			return
		}
	}
}

// The X server compares pictures for who looks at it, and for nobody else: it pays for that
// with memory.
func TestOnlyViewersCompare(t *testing.T) {
	r, f, _, path := newPictured(t, nil)
	asked := make(chan dialhome.Dial, 10)
	go f.passServer(path, func(d dialhome.Dial) { asked <- d })
	_, err := r.client.Screenshot(t.Context(), control.ScreenshotRequest{})
	must(t, err)
	if d := <-asked; d.Compare {
		t.Error("a picture made the server compare")
	}
	_, err = r.view(control.Hello{Viewer: "v", Mode: control.Watch})
	must(t, err)
	if d := <-asked; !d.Compare {
		t.Error("a viewer did not make the server compare")
	}
}

// viewing is one viewer's program at the far end of the reserved command.
type viewing struct {
	*rfb.Client
	t *testing.T
}

func (r *rig) view(hello control.Hello) (*viewing, error) {
	r.t.Helper()
	conn, err := r.client.Tunnel(r.t.Context(), control.CommandRFB)
	must(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close() })
	if err := control.OpenTunnel(r.t.Context(), conn, hello); err != nil {
		return nil, err
	}
	client, err := rfb.Connect(r.t.Context(), conn, rfb.Options{})
	return &viewing{client, r.t}, err
}

// send sends messages and waits for a picture: then all of them have been decided.
func (v *viewing) send(messages ...[]byte) {
	v.t.Helper()
	for _, m := range messages {
		must(v.t, v.Send(m))
	}
	img, err := v.Screenshot(v.t.Context())
	must(v.t, err)
	if img.Rect.Dx() != 8 || img.Pix[0] != 255 {
		v.t.Errorf("a picture of %v that begins with %v", img.Rect, img.Pix[:4])
	}
}

func key(down bool, letter rune) []byte {
	return rfb.KeyEvent{Down: down, Keysym: uint32(letter)}.Append(nil)
}

func click(buttons uint16) []byte {
	return rfb.PointerEvent{Buttons: buttons, X: 1, Y: 1}.Append(nil)
}

// L7, L9, X1: a viewer types only while its id holds the lease, what it presses is
// released at the change of hands, and while it is connected it does not count as away.
func TestL7ViewerInput(t *testing.T) {
	r, server := newViewable(t)
	ann, err := r.view(control.Hello{Viewer: "ann", Mode: control.Control})
	must(t, err)
	watching, err := r.view(control.Hello{Viewer: "ann", Mode: control.Watch})
	must(t, err)
	bob, err := r.view(control.Hello{Viewer: "bob", Mode: control.Control})
	must(t, err)
	expect := func(when string, want ...string) {
		t.Helper()
		got := make([]string, len(want))
		for i := range got {
			got[i] = server.next()
		}
		slices.Sort(got)
		if slices.Sort(want); !slices.Equal(got, want) {
			t.Errorf("%s: the screen got %q, want %q", when, got, want)
		}
	}
	ann.send(key(true, 'a'), click(1)) // nobody holds: nothing of it may come before what follows
	if held := r.take("ann"); !held.Away.IsZero() {
		t.Errorf("the holder is connected and away since %s", held.Away)
	}
	watching.send(key(true, 'w'), click(1))
	bob.send(key(true, 'x'), click(1))
	ann.send(key(true, 'b'), click(1))
	expect("while she holds", "key 1 b", "buttons 1")
	r.release("ann")
	expect("at the hand-back", "key 0 b", "buttons 0")
	ann.send(key(true, 'c'))

	r.take("ann")
	ann.send(key(true, 'd'))
	expect("while she holds again", "key 1 d")
	r.take("bob")
	expect("at the takeover", "key 0 d")
	bob.send(key(true, 'e'), key(false, 'e'))
	expect("while he holds", "key 0 e", "key 1 e")

	status, err := r.client.Status(t.Context())
	must(t, err)
	if !slices.ContainsFunc(status.Viewers, func(v control.Viewer) bool {
		return v.Viewer == lease.ViewerID("bob").Handle() && v.Mode == control.Control && v.Holding
	}) {
		t.Errorf("the status knows the viewers %+v", status.Viewers)
	}
	must(t, bob.Close())
	r.await("the holder is away, and holds", func() bool { l := r.leaseNow(); return l.Holder == lease.Human && !l.Away.IsZero() })
}

// A viewer that may not come hears why in the answer's line.
func TestViewRefused(t *testing.T) {
	r := newRig(t, nil)
	for name, tc := range map[string]struct {
		hello control.Hello
		role  screen.Role
		kind  control.Kind
	}{
		"no desktop yet":      {hello: control.Hello{Viewer: "ann"}, kind: control.Busy},
		"nobody to hold":      {hello: control.Hello{Mode: control.Control}, kind: control.BadRequest},
		"no id":               {hello: control.Hello{Viewer: "\x1b"}, kind: control.BadRequest},
		"unknown mode":        {hello: control.Hello{Mode: "type"}, kind: control.BadRequest},
		"only watching there": {hello: control.Hello{Viewer: "ann", Mode: control.Control}, role: screen.RoleViewer, kind: control.Forbidden},
	} {
		r.supervisor.config.Exec.Role = tc.role
		if _, err := r.view(tc.hello); !isKind(err, tc.kind) {
			t.Errorf("%s: %v, want %s", name, err, tc.kind)
		}
	}
}

// The end of the supervisor ends its viewers, and leaves their lease.
func TestViewEnds(t *testing.T) {
	r, _ := newViewable(t)
	ann, err := r.view(control.Hello{Viewer: "ann", Mode: control.Control})
	must(t, err)
	ann.send()
	r.take("ann")
	r.end()
	if _, err := ann.Screenshot(t.Context()); err == nil {
		t.Error("there is still a picture")
	}
	next := newRigIn(t, r.dir, r.config)
	if l := next.leaseNow(); l.Holder != lease.Human || l.Away.IsZero() {
		t.Errorf("the lease is %+v", l)
	}
}
