// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"crypto/des"
	"encoding/binary"
	"errors"
	"io"
	"math/bits"
	"net"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/shared/rfb"
)

var portInit = rfb.ServerInit{Size: rfb.Size{WidthPx: 8, HeightPx: 6}, Format: rfb.RGBX, Name: "bot"}

// portScreen is a screen whose stream says "pixels" after the handshake and keeps what
// it is sent.
type portScreen struct{ heard chan string }

func (s *portScreen) dial(context.Context) (net.Conn, error) {
	near, far := net.Pipe()
	go func() {
		defer far.Close()
		if _, err := rfb.Welcome(far, portInit); err != nil {
			return
		}
		if _, err := io.WriteString(far, "pixels"); err != nil {
			return
		}
		text, _ := io.ReadAll(far)
		s.heard <- string(text)
	}()
	return near, nil
}

// openPort serves a port for one program.
func openPort(t *testing.T) (p onePort, s *portScreen, ended chan error, reported *bytes.Buffer) {
	t.Helper()
	listener, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s = &portScreen{heard: make(chan string, 16)}
	reported = &bytes.Buffer{}
	p = onePort{listener: listener, password: "SECRET77", dial: s.dial, report: func(err error) { reported.WriteString(err.Error() + "\n") }}
	ended = make(chan error, 1)
	go func() { ended <- p.serve(t.Context()) }()
	return p, s, ended, reported
}

// program plays a VNC program with a password up to the security result.
func (p onePort) program(t *testing.T, password string) (net.Conn, uint32) {
	t.Helper()
	conn, err := net.Dial("tcp", p.listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	read := func(n int) []byte {
		b := make([]byte, n)
		if _, err := io.ReadFull(conn, b); err != nil {
			t.Fatal(err)
		}
		return b
	}
	write := func(b []byte) {
		if _, err := conn.Write(b); err != nil {
			t.Fatal(err)
		}
	}
	write(read(12))
	if offered := read(2); !bytes.Equal(offered, []byte{1, 2}) {
		t.Fatalf("offered %v, want a password alone", offered)
	}
	write([]byte{2})
	challenge := read(16)
	key := make([]byte, 8)
	copy(key, password)
	for i := range key {
		key[i] = bits.Reverse8(key[i])
	}
	block, err := des.NewCipher(key)
	if err != nil {
		t.Fatal(err)
	}
	block.Encrypt(challenge[:8], challenge[:8])
	block.Encrypt(challenge[8:], challenge[8:])
	write(challenge)
	return conn, binary.BigEndian.Uint32(read(4))
}

// X27: one program that knows the password sees the screen, no other connects any more,
// and the command ends with it.
func TestX27PortIsForOneProgram(t *testing.T) {
	p, s, ended, reported := openPort(t)
	if _, result := p.program(t, "SECRET78"); result != 1 {
		t.Fatalf("a wrong password: %d", result)
	}
	conn, result := p.program(t, "SECRET77")
	if result != 0 {
		t.Fatalf("the password: %d", result)
	}
	if second, err := net.Dial("tcp", p.listener.Addr().String()); err == nil {
		t.Error("a second program connects once the first is let in")
		_ = second.Close()
	}
	if _, err := conn.Write([]byte{0}); err != nil { // alone, if it could
		t.Fatal(err)
	}
	want := append(portInit.Append(nil), "pixels"...)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("the program got %q, %v", got, err)
	}
	if _, err := io.WriteString(conn, "keys"); err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	if err := <-ended; err != nil {
		t.Errorf("ended with %v", err)
	}
	if heard := <-s.heard; heard != "keys" {
		t.Errorf("the screen got %q", heard)
	}
	if text := reported.String(); !strings.Contains(text, "wrong password") || strings.Contains(text, "SECRET") {
		t.Errorf("reported %q", text)
	}
}

// A program that ends with the picture unread resets its connection: it has left all the
// same. A screen that ends is told of.
func TestCarryTellsWhoEnded(t *testing.T) {
	for name, leaves := range map[string]bool{"program": true, "screen": false} {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		program, err := net.Dial("tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		near, err := listener.Accept()
		if err != nil {
			t.Fatal(err)
		}
		_ = listener.Close()
		screen, far := net.Pipe()
		result := make(chan error, 1)
		go func() { result <- carry(t.Context(), near, failing{far}) }()
		if _, err := io.WriteString(screen, "pixels"); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(program, make([]byte, 1)); err != nil { // and no more
			t.Fatal(err)
		}
		if leaves {
			_ = program.Close()
		} else {
			_ = screen.Close()
		}
		if err := <-result; (err == nil) != leaves {
			t.Errorf("the %s ends: %v", name, err)
		}
		_, _ = program.Close(), screen.Close()
	}
}

// failing gives a reason in place of a plain end, as an exec stream does.
type failing struct{ net.Conn }

func (f failing) Read(b []byte) (int, error) {
	n, err := f.Conn.Read(b)
	if err == io.EOF {
		err = errors.New("exec stream: ended")
	}
	return n, err
}

// X27: a program that knows the password and leaves at once has used it up, and the view
// ends with the reason.
func TestX27PasswordIsSpent(t *testing.T) {
	p, _, ended, _ := openPort(t)
	conn, result := p.program(t, "SECRET77")
	if result != 0 {
		t.Fatalf("the password: %d", result)
	}
	_ = conn.Close()
	if err := <-ended; err == nil || errors.Is(err, net.ErrClosed) {
		t.Errorf("ended with %v", err)
	}
}

// X27: who guesses closes the port for everybody.
func TestX27PortClosesWhenGuessed(t *testing.T) {
	p, _, ended, _ := openPort(t)
	for range maxGuesses {
		if _, result := p.program(t, "guess"); result != 1 {
			t.Fatal("guessed")
		}
	}
	if err := <-ended; !errors.Is(err, rfb.ErrPassword) {
		t.Errorf("ended with %v", err)
	}
	if conn, err := net.Dial("tcp", p.listener.Addr().String()); err == nil {
		t.Error("the port is still open")
		_ = conn.Close()
	}
}
