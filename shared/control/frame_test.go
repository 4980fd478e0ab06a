// SPDX-License-Identifier: MPL-2.0

package control

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"
)

func TestFrames(t *testing.T) {
	size := TerminalSize{Rows: 24, Cols: 80}
	frames := []struct {
		kind    FrameType
		payload string
	}{
		{FrameStdin, "hello"}, {FrameStdin, ""}, {FrameStdinClose, ""}, {FrameResize, string(size.AppendSize(nil))},
		{FrameStdout, string(make([]byte, MaxFramePayload))}, {FrameStderr, "x"}, {FrameExit, "{}"},
	}
	var stream bytes.Buffer
	for _, f := range frames {
		if err := WriteFrame(&stream, f.kind, []byte(f.payload)); err != nil {
			t.Fatal(err)
		}
	}
	whole := stream.Bytes()
	if want := []byte("\x00\x00\x00\x05hello\x00\x00\x00\x00\x01\x00\x00\x00\x02\x00\x00\x04\x00\x18\x00\x50"); !bytes.HasPrefix(whole, want) {
		t.Fatalf("stream begins %x", whole[:len(want)])
	}
	buf := make([]byte, MaxFramePayload)
	r := iotest.OneByteReader(bytes.NewReader(whole))
	for _, f := range frames {
		kind, payload, err := ReadFrame(r, buf)
		if err != nil || kind != f.kind || string(payload) != f.payload {
			t.Fatalf("%d: read %d, %d bytes, %v", f.kind, kind, len(payload), err)
		}
		if kind == FrameResize && ParseSize(payload) != size {
			t.Errorf("size = %v", ParseSize(payload))
		}
	}
	if _, _, err := ReadFrame(r, buf); err != io.EOF {
		t.Errorf("end: %v", err)
	}
}

func TestFramesRefused(t *testing.T) {
	for name, header := range map[string]string{
		"unknown type":     "\x03\x00\x00\x00",
		"too long":         "\x00\x00\x80\x01",
		"16 MiB":           "\x10\xff\xff\xff",
		"close with bytes": "\x01\x00\x00\x01",
		"size of 3 bytes":  "\x02\x00\x00\x03",
	} {
		r := bytes.NewReader([]byte(header + "more"))
		_, _, err := ReadFrame(r, make([]byte, MaxFramePayload))
		var malformed *FrameError
		if !errors.As(err, &malformed) || r.Len() != 4 {
			t.Errorf("%s: %v, %d bytes left", name, err, r.Len())
		}
	}
	if _, _, err := ReadFrame(bytes.NewReader([]byte("\x00\x00\x00\x05hel")), make([]byte, 9)); err != io.ErrUnexpectedEOF {
		t.Errorf("cut short: %v", err)
	}
	if err := WriteFrame(io.Discard, FrameStdin, make([]byte, MaxFramePayload+1)); err == nil {
		t.Error("a frame too long is written")
	}
}

// FuzzFrames: what is read is what was written; the payload never leaves the buffer.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("\x00\x00\x00\x05hello\x12\x00\x00\x02{}"))
	f.Add([]byte("\x02\x00\x00\x04\x00\x18\x00\x50\x01\x00\x00\x00"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r, buf := bytes.NewReader(data), make([]byte, MaxFramePayload)
		var again bytes.Buffer
		for {
			kind, payload, err := ReadFrame(r, buf)
			if err != nil {
				break
			}
			if err := WriteFrame(&again, kind, payload); err != nil {
				t.Fatalf("read and not written: %v", err)
			}
		}
		if !bytes.HasPrefix(data, again.Bytes()) {
			t.Fatalf("%x became %x", data, again.Bytes())
		}
	})
}
