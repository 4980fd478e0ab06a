// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"io"
	"net"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/relay"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
)

// gateSample is one round of one stream of messages.
type gateSample struct {
	Subject string  `json:"subject"` // gate or copy
	Stream  string  `json:"stream"`
	Rate    float64 `json:"gb_per_s"` // of this process' own time, whatever else runs
	Allocs  float64 `json:"allocs_per_message,omitempty"`
}

const gateBytes = 256 << 20

// benchGate measures what a viewer sends, parsed and judged by a relay whose screen
// takes everything, beside a copy of the same bytes.
func benchGate(rounds int) error {
	for range rounds {
		for _, s := range gateStreams() {
			begin := processorTime()
			copyAll(&loop{said: s.said, left: gateBytes})
			if err := say(gateSample{Subject: "copy", Stream: s.name, Rate: rate(begin)}); err != nil {
				return err
			}
			found, err := throughGate(s)
			if err != nil {
				return err
			}
			if err := say(found); err != nil {
				return err
			}
		}
	}
	return nil
}

func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func rate(begin time.Duration) float64 { return gateBytes / 1e9 / (processorTime() - begin).Seconds() }

type gateStream struct {
	name     string
	said     []byte
	messages int // in said
}

func gateStreams() []gateStream {
	request := rfb.UpdateRequest{Incremental: true, Area: image.Rect(0, 0, 1440, 900)}.Append(nil)
	fence := rfb.FenceMessage{Flags: rfb.FenceBlockBefore, Payload: []byte{1}}.Append(nil)
	var pointers []byte
	for i := range uint16(20) {
		pointers = rfb.PointerEvent{X: i, Y: i}.Append(pointers)
	}
	key := rfb.KeyEvent{Down: true, Keysym: 'a'}.Append(nil)
	session := bytes.Join([][]byte{request, fence, pointers, key, key, request}, nil)
	return []gateStream{
		{"session", bytes.Repeat(session, 400), 25 * 400}, // what a person's viewer sends while it watches
		{"requests", bytes.Repeat(request, 2000), 2000},   // what is passed on
		{"pointer", bytes.Repeat(pointers, 100), 2000},    // the shortest of all, and what is not
	}
}

func copyAll(l *loop) {
	buf, out := make([]byte, 4<<10), make([]byte, 4<<10)
	for {
		n, err := l.Read(buf)
		copy(out, buf[:n])
		if err != nil {
			return
		}
	}
}

func throughGate(s gateStream) (gateSample, error) {
	w, err := newWorld(func(context.Context) (net.Conn, error) { return newFarEnd(greeting, nil), nil })
	if err != nil {
		return gateSample{}, err
	}
	defer w.close()
	viewer := newFarEnd([]byte("RFB 003.008\n\x01\x01"), &loop{said: s.said, left: gateBytes})
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	begin := processorTime()
	end := w.relay.ServeStream(context.Background(), viewer, relay.Admission{Grant: ticket.Grant{Viewer: "v", Mode: ticket.Watch}})
	gbs := rate(begin)
	runtime.ReadMemStats(&after)
	if viewer.said.left > 0 {
		return gateSample{}, fmt.Errorf("stream %s ended early: %s", s.name, end)
	}
	messages := float64(gateBytes) / float64(len(s.said)) * float64(s.messages)
	return gateSample{Subject: "gate", Stream: s.name, Rate: gbs, Allocs: float64(after.Mallocs-before.Mallocs) / messages}, nil
}

// greeting is what a server says up to its first picture.
var greeting = rfb.ServerInit{Size: rfb.Size{WidthPx: 1440, HeightPx: 900}, Format: rfb.RGBX, Name: "x"}.
	Append([]byte("RFB 003.008\n\x01\x01\x00\x00\x00\x00"))

// loop says the same bytes again until so many have been said.
type loop struct {
	said []byte
	at   int
	left int
}

func (l *loop) Read(b []byte) (int, error) {
	if l.left <= 0 {
		return 0, io.EOF
	}
	n := copy(b, l.said[l.at:])
	l.at = (l.at + n) % len(l.said)
	l.left -= n
	return n, nil
}

// farEnd is a connection in memory: it says first, then what loop says, and then
// nothing more until it is closed. It takes everything.
type farEnd struct {
	first  *bytes.Reader
	said   *loop
	closed chan struct{}
}

func newFarEnd(first []byte, said *loop) *farEnd {
	return &farEnd{first: bytes.NewReader(first), said: said, closed: make(chan struct{})}
}

func (f *farEnd) Read(b []byte) (int, error) {
	switch {
	case f.first.Len() > 0:
		return f.first.Read(b)
	case f.said != nil:
		return f.said.Read(b)
	}
	<-f.closed
	return 0, net.ErrClosed
}

func (f *farEnd) Write(b []byte) (int, error) { return len(b), nil }

func (f *farEnd) Close() error {
	select {
	case <-f.closed:
	default:
		close(f.closed)
	}
	return nil
}

func (f *farEnd) LocalAddr() net.Addr              { return nil }
func (f *farEnd) RemoteAddr() net.Addr             { return nil }
func (f *farEnd) SetDeadline(time.Time) error      { return nil }
func (f *farEnd) SetReadDeadline(time.Time) error  { return nil }
func (f *farEnd) SetWriteDeadline(time.Time) error { return nil }
