// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"image"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
)

// recorded is a client's bytes from package rfb's fixtures and what a view-only relay
// should make of them.
type recorded struct {
	ID      string
	Hex     string
	Forward string `json:"viewonly_forward"`
	Verdict string
}

func recordings(t testing.TB) []recorded {
	text, err := os.ReadFile("../rfb/testdata/c2s.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []recorded
	if err := json.Unmarshal(text, &list); err != nil || len(list) < 20 {
		t.Fatalf("%d fixtures, %v", len(list), err)
	}
	return list
}

var repeated = regexp.MustCompile(`\(([0-9a-f]+)\)?\*([0-9]+)\)?`)

func unhex(t testing.TB, text string) []byte {
	text = repeated.ReplaceAllStringFunc(text, func(part string) string {
		m := repeated.FindStringSubmatch(part)
		n, _ := strconv.Atoi(m[2])
		return strings.Repeat(m[1], n)
	})
	b, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// filtered is a stream as the relay should pass it: with the fixture's own cuts and
// this relay's list of encodings.
func filtered(stream []byte, keycodes bool) []byte {
	var out []byte
	for len(stream) > 0 {
		m, rest, err := rfb.Framing{}.Cut(stream)
		if m == nil || err != nil {
			return append(out, stream...)
		}
		if m.Type() == rfb.TypeSetEncodings {
			out = m.AppendFiltered(out, func(e rfb.Encoding) bool { return carried(e, keycodes) })
		} else {
			out = append(out, m...)
		}
		stream = rest
	}
	return out
}

// quiet is a link without a far end: what a viewer says has been said.
type quiet struct {
	streamLink
	io.Reader
}

func (q *quiet) Read(b []byte) (int, error) { return q.Reader.Read(b) }

// passed runs a viewer's stream through the relay's parser and returns what its own
// server is sent.
func passed(t testing.TB, w *world, grant ticket.Grant, said io.Reader) ([]byte, End) {
	upstream := &sink{}
	v := w.newViewer(&quiet{Reader: said}, Admission{Grant: grant, Layout: "us"})
	v.upstream = upstream
	end := v.inbound(t.Context())
	return upstream.Bytes(), end
}

// everything is announced in front of a fixture that only says what comes later.
var everything = rfb.AppendSetEncodings(nil, []rfb.Encoding{rfb.Fence, rfb.ContinuousUpdates, rfb.ExtendedDesktopSize, rfb.Cursor})

// verdict is what the relay makes of a recorded stream.
type verdict string

const (
	filters verdict = "what is harmless passes, input does not"
	ends    verdict = "the viewer is ended before any of it passes"
	strays  verdict = "nothing passes, and only this viewer is out of step"
)

// verdicts has one for every recorded stream; where the fixture leaves a choice, the one
// of rules R3 and R4.
var verdicts = map[string]verdict{
	"novnc17-startup": filters, "viewonly-idle-chatter": filters, "coalesced-bypass": filters, "split-in-header": filters,
	"setdesktopsize-1": filters, "setdesktopsize-2": filters, "setdesktopsize-pad": filters, "setdesktopsize-16k": filters,
	"extmouse-plain": filters, "qemu-key": filters,
	"cuttext-empty": filters, "cuttext-ext-caps": filters, "cuttext-ext-minus4": filters, "cuttext-carries-keys": filters,
	"fence-64": filters, "fence-carries-key": filters, "encodings-no-308": filters, "fbur-storm": filters,
	"shift-held": filters, "button-held": filters,
	"qemu-unknown-submessage": ends, "cuttext-intmin": ends, "cuttext-intmax": ends, "fence-200": ends,
	"encodings-65535": ends, "unknown-type-01": ends, "gii-253": ends, "turbovnc-145": ends,
	"extmouse-scroll": strays, // with an extension that is never agreed on
}

// R3, R4, RFB-04, RFB-07, RFB-10: every recorded stream gets its verdict, as one that
// watches and as one that could control but does not hold: no input passes, what is
// harmless does, and what cannot be framed ends this viewer.
func TestR3RecordedStreams(t *testing.T) {
	w := newWorld(t)
	all := recordings(t)
	if len(all) != len(verdicts) {
		t.Errorf("%d streams, %d verdicts", len(all), len(verdicts))
	}
	for _, f := range all {
		for _, mode := range []ticket.Mode{ticket.Watch, ticket.Control} {
			got, end := passed(t, w, ticket.Grant{Viewer: "v", Mode: mode}, io.MultiReader(bytes.NewReader(everything), bytes.NewReader(unhex(t, f.Hex))))
			got = got[min(len(got), len(everything)):]
			switch want := filtered(unhex(t, f.Forward), false); verdicts[f.ID] {
			case ends:
				if end.Code != NotFrameable || len(got) > 0 {
					t.Errorf("%s: %v, passed %x", f.ID, end, got)
				}
			case filters:
				if end.Code != Abnormal || !errors.Is(end.Cause, io.EOF) || !bytes.Equal(got, want) {
					t.Errorf("%s: %v\ngot  %x\nwant %x", f.ID, end, got, want)
				}
			case strays:
				if end.Code == NotFrameable || len(got) > 0 {
					t.Errorf("%s: %v, passed %x", f.ID, end, got)
				}
			default:
				t.Errorf("%s has no verdict", f.ID)
			}
		}
	}
	if got := w.x.inputs(); len(got) > 0 {
		t.Errorf("%x", got)
	}
}

// R9: however the bytes arrive, the same passes.
func TestR9SplitEverywhere(t *testing.T) {
	w := newWorld(t)
	grant := ticket.Grant{Viewer: "v", Mode: ticket.Watch}
	var all []byte
	for _, f := range recordings(t) {
		if f.Verdict == "ok" && f.ID != "extmouse-scroll" && f.ID != "fbur-storm" {
			all = append(all, unhex(t, f.Hex)...)
		}
	}
	want, _ := passed(t, w, grant, bytes.NewReader(all))
	if got, _ := passed(t, w, grant, iotest.OneByteReader(bytes.NewReader(all))); !bytes.Equal(got, want) {
		t.Errorf("byte by byte:\ngot  %x\nwant %x", got, want)
	}
	for cut := range all {
		got, _ := passed(t, w, grant, io.MultiReader(bytes.NewReader(all[:cut]), bytes.NewReader(all[cut:])))
		if !bytes.Equal(got, want) {
			t.Fatalf("cut at %d", cut)
		}
	}
}

// R7, RFB-14, X32: what cannot be carried is not announced, in the same way for a
// whole connection, whoever holds.
func TestR7EncodingsFiltered(t *testing.T) {
	w := newWorld(t, func(o *Options) { o.Layout = "us" })
	list := rfb.AppendSetEncodings(nil, []rfb.Encoding{
		rfb.CopyRect, rfb.Tight, 21, rfb.Hextile, rfb.ZRLE, 50, -26, -254, rfb.ExtendedMouseButtons, rfb.ExtendedClipboard,
		rfb.Cursor, rfb.DesktopName, rfb.QEMUKey, rfb.ExtendedDesktopSize, rfb.Fence, rfb.ContinuousUpdates, -257, 0x48323634, rfb.Raw,
	})
	want := func(keycodes bool) []byte {
		encodings := []rfb.Encoding{rfb.CopyRect, rfb.Tight, rfb.ZRLE, -26, -254, rfb.Cursor}
		if keycodes {
			encodings = append(encodings, rfb.QEMUKey)
		}
		return rfb.AppendSetEncodings(nil, append(encodings, rfb.ExtendedDesktopSize, rfb.Fence, rfb.ContinuousUpdates, rfb.Raw))
	}
	p := w.come(t, "a", ticket.Control)
	p.send(t, list)
	p.sync(t, w, w.x.output(0))
	w.take(t, "a")
	p.send(t, list)
	p.sync(t, w, w.x.output(0))
	if got := w.x.output(0).stream(); bytes.Count(got, want(true)) != 2 {
		t.Errorf("%x", got)
	}
	// R13: key codes only where the person's keyboard is the desktop's.
	other := w.come(t, "b", ticket.Control, "de")
	other.send(t, list)
	other.sync(t, w, w.x.output(1))
	if got := w.x.output(1).stream(); !bytes.Contains(got, want(false)) {
		t.Errorf("another keyboard: %x", got)
	}
	for layout, same := range map[string]bool{"us": true, "de": false, "": false} {
		if v := w.newViewer(nil, Admission{Layout: layout}); v.keycodes != same {
			t.Errorf("layout %q: %v", layout, v.keycodes)
		}
	}
}

// RFB-14: what would make the server hang up is kept from it.
func TestRFB14AsAPair(t *testing.T) {
	w := newWorld(t)
	updates := rfb.AppendContinuousUpdates(nil, true, image.Rect(0, 0, 800, 600))
	request := rfb.FenceMessage{Flags: rfb.FenceRequest}.Append(nil)
	reply := rfb.FenceMessage{Flags: rfb.FenceBlockBefore, Payload: []byte{1}}.Append(nil)
	none := rfb.AppendSetEncodings(nil, nil)
	said := bytes.Join([][]byte{updates, request, reply, everything, updates, request, reply, none, updates, request, reply}, nil)
	want := bytes.Join([][]byte{reply, everything, updates, request, reply, none, reply}, nil)
	got, _ := passed(t, w, ticket.Grant{Viewer: "v", Mode: ticket.Watch}, bytes.NewReader(said))
	if !bytes.Equal(got, want) {
		t.Errorf("got  %x\nwant %x", got, want)
	}
}

// R6a, RFB-02, RFB-03, RFB-12: what a view-only viewer sends by itself does not end
// it, and its fences are answered.
func TestR6aViewOnlyStays(t *testing.T) {
	w := newWorld(t)
	p := w.come(t, "a", ticket.Watch)
	p.send(t, everything)
	fence := rfb.FenceMessage{Flags: rfb.FenceRequest, Payload: []byte("server asks")}.Append(nil)
	w.x.output(0).Write(fence)
	for _, id := range []string{"f800000000000000010006000000fffffff81f0000010000000096010000000005a00384", "fa000102fa000103fa000104"} {
		p.send(t, unhex(t, id))
	}
	p.sync(t, w, w.x.output(0))
	got := w.x.output(0).stream()
	if !bytes.Contains(got, unhex(t, "f8000000000000000100"+"96010000000005a00384")) {
		t.Errorf("%x", got)
	}
	if bytes.Contains(got, []byte{rfb.TypeXVP, 0, 1}) {
		t.Error("a power message passed")
	}
	seen(t, "the server's fence", func() bool { return bytes.Contains(p.saw(), fence) })
}

// R5, RFB-13: everybody is a shared viewer, and every version of viewer is served.
func TestR5SharedAndVersions(t *testing.T) {
	w := newWorld(t)
	for i, version := range []string{"003.003", "003.007", "003.008", "003.889", "003.005"} {
		p := w.knock("v", ticket.Watch)
		var line [12]byte
		io.ReadFull(p.conn, line[:])
		p.conn.Write([]byte("RFB " + version + "\n"))
		if strings.HasPrefix(version, "003.00") && version < "003.007" {
			io.ReadFull(p.conn, make([]byte, 4))
		} else {
			io.ReadFull(p.conn, make([]byte, 2))
			p.conn.Write([]byte{1})
			if version != "003.007" {
				io.ReadFull(p.conn, make([]byte, 4))
			}
		}
		p.conn.Write([]byte{0}) // alone, please
		init := make([]byte, 27)
		if _, err := io.ReadFull(p.conn, init); err != nil || string(init[24:]) != "bot" {
			t.Fatalf("%s: %q, %v", version, init, err)
		}
		w.attached("v")
		opening := w.x.output(i).opening
		if opening[len(opening)-1] != 1 {
			t.Errorf("%s: the server was asked for a session alone: %q", version, opening)
		}
		p.conn.Close()
		<-p.end
	}
	for _, line := range []string{"RFB 005.000\n", "GET / HTTP/1", "RFB 003.00x\n"} {
		p := w.knock("v", ticket.Watch)
		io.ReadFull(p.conn, make([]byte, 12))
		p.conn.Write([]byte(line))
		go io.Copy(io.Discard, p.conn)
		if end := <-p.end; end.Code != NotFrameable {
			t.Errorf("%q: %v", line, end)
		}
	}
}

// FuzzViewOnly: whatever a viewer that does not hold sends, what its server gets is
// whole messages without input, and nothing reaches the input connection.
func FuzzViewOnly(f *testing.F) {
	for _, r := range recordings(f) {
		if len(r.Hex) < 4096 {
			f.Add(unhex(f, r.Hex), false)
			f.Add(append(bytes.Clone(everything), unhex(f, r.Hex)...), true)
		}
	}
	w := newWorld(f)
	w.take(f, "somebody else")
	f.Fuzz(func(t *testing.T, said []byte, control bool) {
		grant := ticket.Grant{Viewer: "v", Mode: ticket.Watch}
		if control {
			grant.Mode = ticket.Control
		}
		got, end := passed(t, w, grant, bytes.NewReader(said))
		if end.Code != Abnormal && end.Code != NotFrameable {
			t.Fatal(end)
		}
		var known announced
		for rest := got; len(rest) > 0; {
			m, more, err := rfb.Framing{}.Cut(rest)
			if err != nil || m == nil {
				t.Fatalf("not whole messages: %x", rest)
			}
			rest = more
			if m.Type() == rfb.TypeSetEncodings {
				known = announcedBy(m)
				for e := range m.Encodings() {
					if !carried(e, false) {
						t.Fatalf("encoding %d", e)
					}
				}
			}
			fence, _ := m.Fence()
			if m.Input() || m.Type() == rfb.TypeXVP || fence.Flags&rfb.FenceRequest != 0 && !known.fence ||
				m.Type() == rfb.TypeEnableContinuousUpdates && !(known.fence && known.continuous) {
				t.Fatalf("passed %x", []byte(m))
			}
		}
		if w.Size() != (rfb.Size{}) {
			t.Fatal("input opened a connection")
		}
	})
}
