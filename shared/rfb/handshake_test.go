// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

var testInit = ServerInit{Size: Size{800, 600}, Format: RGBX, Name: "desktop"}

// R5, RFB-19: every version line has an answer in a known layout, or is refused.
func TestR5JoinVersions(t *testing.T) {
	const none = "\x01\x01"
	rest := string(testInit.Append(nil))
	for line, want := range map[string]string{
		"RFB 003.003\n":                "RFB 003.003\n\x01",
		"RFB 003.005\n":                "RFB 003.003\n\x01",
		"RFB 003.006\n":                "RFB 003.003\n\x01",
		"RFB 003.007\n":                "RFB 003.007\n\x01\x01",
		"RFB 003.008\n":                "RFB 003.008\n\x01\x01",
		"RFB 003.889\n":                "RFB 003.008\n\x01\x01",
		"RFB 004.001\n":                "RFB 003.008\n\x01\x01",
		"RFB 005.000\n":                "RFB 003.008\n\x01\x01",
		"RFB 000.000\n":                "",
		"RFB 003.008\r":                "",
		"RFB 0x3.008\n":                "",
		"HTTP/1.1 400 Bad Request\r\n": "",
		"RFB 003.008":                  "", // 11 bytes, then the end
	} {
		said := line
		switch {
		case strings.HasPrefix(want, "RFB 003.003"):
			said += "\x00\x00\x00\x01" + rest
		case strings.HasPrefix(want, "RFB 003.007"):
			said += none + rest
		default:
			said += none + "\x00\x00\x00\x00" + rest
		}
		server := newScript([]byte(said + "next"))
		_, init, err := Join(server, MaxSize)
		if want == "" {
			if err == nil {
				t.Errorf("%q: accepted", line)
			}
			continue
		}
		if err != nil || init != testInit {
			t.Errorf("%q: %+v, %v", line, init, err)
			continue
		}
		if got := server.heard.String(); got != want {
			t.Errorf("%q: answered %q, want %q", line, got, want)
		}
		if left, _ := io.ReadAll(server.said); string(left) != "next" {
			t.Errorf("%q: %q is left of what follows the handshake", line, left)
		}
	}
}

// R5: viewers of every version are welcomed in their own layout, and none can ask
// to be alone (RFB-13: the shared flag is read and nothing else).
func TestR5WelcomeVersions(t *testing.T) {
	rest := string(testInit.Append(nil))
	for line, want := range map[string]string{
		"RFB 003.003\n": "\x00\x00\x00\x01" + rest,
		"RFB 003.005\n": "\x00\x00\x00\x01" + rest,
		"RFB 003.007\n": "\x01\x01" + rest,
		"RFB 003.008\n": "\x01\x01\x00\x00\x00\x00" + rest,
		"RFB 003.889\n": "\x01\x01\x00\x00\x00\x00" + rest,
		"RFB 005.000\n": "",
		"RFB 000.000\n": "",
		"GET / HTTP/1":  "",
	} {
		for _, shared := range []string{"\x00", "\x01"} {
			said := line + "\x01" + shared
			if strings.HasPrefix(want, "\x00") {
				said = line + shared
			}
			viewer := newScript([]byte(said + "next"))
			_, err := Welcome(viewer, testInit)
			if want == "" {
				if err == nil {
					t.Errorf("%q: accepted", line)
				}
				continue
			}
			if got := viewer.heard.String(); err != nil || got != "RFB 003.008\n"+want {
				t.Errorf("%q: said %q, %v", line, got, err)
			}
			if left, _ := io.ReadAll(viewer.said); string(left) != "next" {
				t.Errorf("%q: %q is left of what follows the handshake", line, left)
			}
		}
	}
	// A refusal can be read: no types, and why.
	viewer := newScript([]byte("RFB 005.000\n"))
	if _, err := Welcome(viewer, testInit); err == nil {
		t.Fatal("5.0 accepted")
	}
	refusal := viewer.heard.Bytes()[versionLen:]
	if refusal[0] != 0 || int(binary.BigEndian.Uint32(refusal[1:])) != len(refusal)-5 {
		t.Errorf("refusal = %q", refusal)
	}
	if _, err := Welcome(newScript([]byte("RFB 003.008\n\x02\x01")), testInit); err == nil {
		t.Error("a security type that was not offered is accepted")
	}
}

// serverVerdicts has one for every recorded stream of a server.
var serverVerdicts = map[string]func(*testing.T, greeting){
	"greeting-38-none": func(t *testing.T, g greeting) {
		v, init, err := Join(newScript(g.side(t, "s")), MaxSize)
		if err != nil || v != Version38 || init.Size != (Size{800, 600}) || init.Name != "desktop" {
			t.Errorf("%v, %+v, %v", v, init, err)
		}
		// The relay plays the same server to its viewers.
		viewer := newScript(g.side(t, "c"))
		if _, err := Welcome(viewer, init); err != nil || !bytes.Equal(viewer.heard.Bytes(), g.side(t, "s")) {
			t.Errorf("said %x, %v", viewer.heard.Bytes(), err)
		}
	},
	// RFB-19: a 3.3 viewer is told the security type in four bytes and no result.
	"greeting-33-none": func(t *testing.T, g greeting) {
		viewer := newScript(append(g.side(t, "c"), 1))
		if _, err := Welcome(viewer, testInit); err != nil || !bytes.Equal(viewer.heard.Bytes(), testInit.Append(g.side(t, "s"))) {
			t.Errorf("said %x, %v", viewer.heard.Bytes(), err)
		}
	},
	// RFB-01: it must not pass for a healthy server.
	"blacklist-refusal": func(t *testing.T, g greeting) {
		_, _, err := Join(newScript(unhex(t, g.Hex)), MaxSize)
		var refused *HandshakeError
		if !errors.As(err, &refused) || refused.Said != "Too many security failures" {
			t.Errorf("error = %v", err)
		}
	},
	"first-reply-to-novnc": func(t *testing.T, g greeting) {
		announced := []Encoding{Raw, QEMUKey, LEDState, ExtendedDesktopSize, Fence, VMwareCursor}
		s := newServerReader(bytes.NewReader(unhex(t, g.Hex)), Size{800, 600}, MaxSize, announced)
		var kinds []uint8
		msg, err := s.next(void{})
		for ; err == nil; msg, err = s.next(void{}) {
			kinds = append(kinds, msg.Type)
		}
		// The VMware cursor, which noVNC alone announces, has no decoder here.
		var p *ProtocolError
		if !errors.As(err, &p) || !strings.Contains(p.Reason, "decoder") || p.Offset != 27 ||
			!slices.Equal(kinds, []uint8{TypeFence, TypeEndOfContinuous, TypeServerCutText}) {
			t.Errorf("%v, %v", kinds, err)
		}
	},
	// RFB-16: a size and no pixels; a picture is not complete with it.
	"fbu-desktopsize-only": func(t *testing.T, g greeting) {
		s := newServerReader(bytes.NewReader(unhex(t, g.Hex)), Size{800, 600}, MaxSize, []Encoding{Raw, DesktopSize})
		msg, err := s.next(void{})
		if err != nil || msg.Resized == nil || msg.Resized.Size != (Size{1024, 768}) {
			t.Errorf("%+v, %v", msg, err)
		}
	},
	// RFB-03: it is answered without the request flag, or Xvnc stops sending.
	"fence-ping": func(t *testing.T, g greeting) {
		s := newServerReader(bytes.NewReader(unhex(t, g.Hex)), Size{8, 8}, MaxSize, []Encoding{Raw, Fence})
		msg, err := s.next(void{})
		if err != nil || msg.Type != TypeFence || !bytes.Equal(msg.Fence.Reply().Append(nil), unhex(t, "f8000000 00000001 01 01")) {
			t.Errorf("%+v, %v", msg, err)
		}
	},
}

// Every recorded stream of a server gets its verdict.
func TestRFB01ServerStreams(t *testing.T) {
	all := greetings(t)
	if len(all) != len(serverVerdicts) {
		t.Errorf("%d streams, %d verdicts", len(all), len(serverVerdicts))
	}
	for id, g := range all {
		t.Run(id, func(t *testing.T) {
			verdict := serverVerdicts[id]
			if verdict == nil {
				t.Fatal("it has no verdict")
			}
			verdict(t, g)
		})
	}
}

func TestJoinRefusals(t *testing.T) {
	list := func(s string) string { return "RFB 003.008\n" + s }
	reason := "\x00\x00\x00\x02no"
	for name, tc := range map[string]struct{ said, want string }{
		"no types":        {list("\x00" + reason), `"no"`},
		"password":        {list("\x02\x02\x13"), "password"},
		"password 3.3":    {"RFB 003.003\n\x00\x00\x00\x02", "password"},
		"failed result":   {list("\x01\x01\x00\x00\x00\x01" + reason), `"no"`},
		"reason of 4 GiB": {list("\x00\xff\xff\xff\xff"), "without a readable reason"},
		"no pixels":       {list("\x01\x01\x00\x00\x00\x00" + string(ServerInit{Size: Size{0, 600}, Format: RGBX}.Append(nil))), "0x600"},
		"cut short":       {list("\x01\x01\x00\x00\x00\x00\x03"), "unexpected EOF"},
	} {
		_, _, err := Join(newScript([]byte(tc.said)), MaxSize)
		if err == nil || !strings.Contains(err.Error(), tc.want) || !strings.HasPrefix(err.Error(), "handshake: ") {
			t.Errorf("%s: error = %v, want %q", name, err, tc.want)
		}
	}
}

// RFB-19: silence ends after a few seconds, and the caller's end ends it sooner.
func TestRFB19Silence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for _, said := range []string{"", "RFB 003.008", "RFB 003.008\n\x01\x01\x00\x00\x00\x00\x03\x20"} {
			near, far := net.Pipe()
			go io.Copy(io.Discard, far)
			go far.Write([]byte(said))
			begin := time.Now()
			_, err := Connect(context.Background(), near, Options{})
			if !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != handshakeTimeout {
				t.Errorf("after %q: %v in %v", said, err, time.Since(begin))
			}
			far.Close()
		}
		near, far := net.Pipe()
		defer far.Close()
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		if _, err := Connect(ctx, near, Options{}); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
	})
}

// FuzzHandshake: no first words of a server or viewer make us panic, wait for more
// than was said, or make much of a declared length.
func FuzzHandshake(f *testing.F) {
	f.Add([]byte("RFB 003.008\n\x01\x01\x00\x00\x00\x00" + string(testInit.Append(nil))))
	f.Add([]byte("RFB 003.003\n\x00\x00\x00\x01" + string(testInit.Append(nil))))
	f.Add([]byte("RFB 003.008\n\x01\x01"))
	f.Add([]byte("RFB 003.008\n\x00\x00\x01\x00\x00"))
	f.Fuzz(func(t *testing.T, said []byte) {
		if _, init, err := Join(newScript(said), Size{1024, 768}); err == nil {
			if !init.Size.Within(Size{1024, 768}) || len(init.Name) > maxName {
				t.Fatalf("accepted %+v", init)
			}
			if again := init.Append(nil); !bytes.Contains(said, again[:2]) {
				t.Fatalf("%+v was not said", init)
			}
		}
		Welcome(newScript(said), testInit)
	})
}
