// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"bytes"
	"encoding/binary"
	"errors"
	"image"
	"io"
	"reflect"
	"slices"
	"testing"
	"testing/iotest"
)

// readAll reads messages until the stream is over.
func readAll(r io.Reader, framing Framing) (list []Message, err error) {
	m := NewMessageReader(r)
	m.Framing = framing
	for {
		msg, err := m.Next()
		if err != nil {
			return list, err
		}
		list = append(list, bytes.Clone(msg))
	}
}

// R3: every fixture is framed as it says, or refused.
func TestR3Lengths(t *testing.T) {
	for _, s := range streams(t) {
		t.Run(s.ID, func(t *testing.T) {
			data := s.bytes(t)
			list, err := readAll(bytes.NewReader(data), s.framing())
			if s.refused(t) {
				var p *ProtocolError
				if !errors.As(err, &p) || p.Offset != 0 || p.Type != data[0] {
					t.Fatalf("error = %v, want a refusal of type %d at byte 0", err, data[0])
				}
				return
			}
			if err != io.EOF {
				t.Fatalf("error = %v", err)
			}
			var lengths []int
			for _, m := range list {
				lengths = append(lengths, len(m))
			}
			if !slices.Equal(lengths, s.lengths()) {
				t.Fatalf("lengths = %v, want %v", lengths, s.lengths())
			}
			if !bytes.Equal(slices.Concat(toBytes(list)...), data) {
				t.Fatal("messages are not the stream's bytes")
			}
		})
	}
}

func toBytes(list []Message) [][]byte {
	out := make([][]byte, len(list))
	for i, m := range list {
		out[i] = m
	}
	return out
}

// R3, RFB-18: everything that is not in the table is refused, by its first byte where
// that suffices.
func TestR3OtherTypes(t *testing.T) {
	known := []byte{0, 2, 3, 4, 5, 6, 150, 248, 250, 251, 255}
	for kind := range 256 {
		_, err := Framing{}.Len([]byte{byte(kind)})
		if refused := err != nil; refused == slices.Contains(known, byte(kind)) {
			t.Errorf("type %d: error = %v", kind, err)
		}
	}
	if _, err := (Framing{}).Len([]byte{255, 1}); err == nil {
		t.Error("QEMU sub-type 1 has been given a length")
	}
}

// R3, R4: cut text of every declared length, also those whose negative does not
// exist in 32 bits (RFB-04).
func TestR3CutTextLength(t *testing.T) {
	for declared, want := range map[uint32]int{
		0: 8, 1: 9, MaxCutText: 8 + MaxCutText, MaxCutText + 1: -1, 0x7fffffff: -1, 0x80000000: -1, 0x80000001: -1,
		0xffffffff: -1, 0xfffffffd: -1, 0xfffffffc: 12, 0xfffffff8: 16, ^uint32(MaxCutText) + 1: 8 + MaxCutText, ^uint32(MaxCutText): -1,
	} {
		header := binary.BigEndian.AppendUint32([]byte{6, 0, 0, 0}, declared)
		n, err := Framing{}.Len(header)
		if err != nil {
			n = -1
		}
		if n != want {
			t.Errorf("declared %#x: length %d (%v), want %d", declared, n, err, want)
		}
		if n, err := (Framing{}).Len(header[:7]); n != 0 || err != nil {
			t.Errorf("declared %#x: half a header is %d, %v", declared, n, err)
		}
	}
}

// R4: a refusal comes from the header, and nothing was made for what it declares.
func TestR4NothingForDeclaredLength(t *testing.T) {
	for _, header := range []string{"06000000 7fffffff", "06000000 80000000", "0200ffff", "f8000000 00000000 ff"} {
		m := NewMessageReader(io.MultiReader(bytes.NewReader(unhex(t, header)), endless{}))
		_, err := m.Next()
		var p *ProtocolError
		if !errors.As(err, &p) {
			t.Fatalf("%s: error = %v", header, err)
		}
		if len(m.buf) > readerBuf {
			t.Errorf("%s: buffer grew to %d bytes", header, len(m.buf))
		}
	}
}

type endless struct{}

func (endless) Read(b []byte) (int, error) { return len(b), nil }

// R9: cut at every byte offset, and byte by byte, the messages are the same.
func TestR9SplitAnywhere(t *testing.T) {
	for _, s := range streams(t) {
		data := s.bytes(t)
		if len(data) > 4096 {
			data = data[:4096]
		}
		want, wantErr := readAll(bytes.NewReader(data), s.framing())
		check := func(how string, r io.Reader) {
			got, err := readAll(r, s.framing())
			if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(err, wantErr) {
				t.Fatalf("%s, %s: %d messages, %v; want %d, %v", s.ID, how, len(got), err, len(want), wantErr)
			}
		}
		for cut := range data {
			check("cut", io.MultiReader(bytes.NewReader(data[:cut]), bytes.NewReader(data[cut:])))
		}
		check("bytes", iotest.OneByteReader(bytes.NewReader(data)))
		check("data with EOF", iotest.DataErrReader(bytes.NewReader(data)))
	}
}

func TestMessageReaderErrors(t *testing.T) {
	key := KeyEvent{Down: true, Keysym: 'a'}.Append(nil)
	if _, err := readAll(bytes.NewReader(key[:5]), Framing{}); err != io.ErrUnexpectedEOF {
		t.Errorf("half a message: %v", err)
	}
	broken := errors.New("cable")
	list, err := readAll(io.MultiReader(bytes.NewReader(key), iotest.ErrReader(broken)), Framing{})
	if len(list) != 1 || err != broken {
		t.Errorf("one message and an error: %d messages, %v", len(list), err)
	}
	list, err = readAll(bytes.NewReader(append(key, 77)), Framing{})
	var p *ProtocolError
	if len(list) != 1 || !errors.As(err, &p) || p.Offset != int64(len(key)) || p.Type != 77 {
		t.Errorf("an unknown message behind a key: %d messages, %v", len(list), err)
	}
}

func TestMessageReaderPending(t *testing.T) {
	key := KeyEvent{Down: true, Keysym: 'a'}.Append(nil)
	m := NewMessageReader(bytes.NewReader(append(slices.Concat(key, key), 4, 0)))
	if m.Pending() {
		t.Error("pending before anything was read")
	}
	for _, want := range []bool{true, false} {
		if _, err := m.Next(); err != nil {
			t.Fatal(err)
		}
		if m.Pending() != want {
			t.Errorf("pending = %v, want %v", m.Pending(), want)
		}
	}
}

// R6: what is input and what a view-only viewer may send (RFB-02).
func TestR6Input(t *testing.T) {
	input := map[uint8]bool{4: true, 5: true, 6: true, 251: true, 255: true}
	for _, kind := range []uint8{0, 2, 3, 4, 5, 6, 150, 248, 250, 251, 255} {
		if got := (Message{kind}).Input(); got != input[kind] {
			t.Errorf("type %d: input = %v", kind, got)
		}
	}
}

// R7: entries are taken out of SetEncodings and the rest stays as it was.
func TestR7FilterEncodings(t *testing.T) {
	startup := streams(t)[0]
	list, err := readAll(bytes.NewReader(startup.bytes(t)), Framing{})
	if err != io.EOF || list[1].Type() != TypeSetEncodings {
		t.Fatalf("%v, %v", list, err)
	}
	before := slices.Collect(list[1].Encodings())
	dropped := []Encoding{ExtendedMouseButtons, ExtendedClipboard}
	for _, e := range dropped {
		if !slices.Contains(before, e) {
			t.Fatalf("noVNC's list has no %d: %v", e, before)
		}
	}
	filtered := Message(list[1].AppendFiltered([]byte("x"), func(e Encoding) bool { return !slices.Contains(dropped, e) })[1:])
	if n, err := (Framing{}).Len(filtered); n != len(filtered) || err != nil {
		t.Fatalf("filtered message is framed as %d of %d bytes, %v", n, len(filtered), err)
	}
	want := slices.DeleteFunc(before, func(e Encoding) bool { return slices.Contains(dropped, e) })
	if got := slices.Collect(filtered.Encodings()); !slices.Equal(got, want) {
		t.Fatalf("filtered = %v, want %v", got, want)
	}
}

// What is written is read again, and has the length that the framing says.
func TestMessagesRoundTrip(t *testing.T) {
	extended := Framing{ExtendedButtons: true}
	for _, tc := range []struct {
		framing Framing
		bytes   []byte
		want    any
		read    func(Message) (any, bool)
		hex     string
	}{
		{Framing{}, KeyEvent{Down: true, Keysym: 0xffe1}.Append(nil), KeyEvent{Down: true, Keysym: 0xffe1}, anyOf(Message.Key), "04010000 0000ffe1"},
		{Framing{}, KeyEvent{Down: true, Keysym: 0x61, Keycode: 0x1e, QEMU: true}.Append(nil),
			KeyEvent{Down: true, Keysym: 0x61, Keycode: 0x1e, QEMU: true}, anyOf(Message.Key), "ff000001 00000061 0000001e"},
		{Framing{}, PointerEvent{Buttons: 0x81, X: 100, Y: 200}.Append(nil), PointerEvent{Buttons: 0x81, X: 100, Y: 200}, anyOf(Message.Pointer), "0581006400c8"},
		{extended, PointerEvent{Buttons: 1, X: 100, Y: 200}.Append(nil), PointerEvent{Buttons: 1, X: 100, Y: 200}, anyOf(Message.Pointer), "0501006400c8"},
		{extended, PointerEvent{Buttons: 1<<7 | 1<<0, X: 1, Y: 2, Extended: true}.Append(nil),
			PointerEvent{Buttons: 1<<7 | 1<<0, X: 1, Y: 2, Extended: true}, anyOf(Message.Pointer), "05810001000201"},
		{extended, PointerEvent{Buttons: 1 << 8, Extended: true}.Append(nil), PointerEvent{Buttons: 1 << 8, Extended: true}, anyOf(Message.Pointer), "05800000000002"},
		{Framing{}, CutText{Data: []byte("hi")}.Append(nil), CutText{Data: []byte("hi")}, anyOf(Message.CutText), "06000000 00000002 6869"},
		{Framing{}, CutText{Extended: true, Flags: ClipboardCaps | ClipboardText, Data: []byte{0, 0, 0, 0}}.Append(nil),
			CutText{Extended: true, Flags: ClipboardCaps | ClipboardText, Data: []byte{0, 0, 0, 0}}, anyOf(Message.CutText), "06000000 fffffff8 01000001 00000000"},
		{Framing{}, FenceMessage{Flags: FenceRequest | 1, Payload: []byte{1}}.Append(nil),
			FenceMessage{Flags: FenceRequest | 1, Payload: []byte{1}}, anyOf(Message.Fence), "f8000000 80000001 0101"},
		{Framing{}, UpdateRequest{Incremental: true, Area: image.Rect(1, 2, 4, 6)}.Append(nil),
			UpdateRequest{Incremental: true, Area: image.Rect(1, 2, 4, 6)}, anyOf(Message.UpdateRequest), "0301 0001 0002 0003 0004"},
		{Framing{}, Resize{Size{800, 600}, []Screen{{7, image.Rect(0, 0, 800, 600), 0}}}.Append(nil),
			Resize{Size{800, 600}, []Screen{{7, image.Rect(0, 0, 800, 600), 0}}}, anyOf(Message.Resize), "fb000320025801 00 00000007 00000000 03200258 00000000"},
	} {
		if !bytes.Equal(tc.bytes, unhex(t, tc.hex)) {
			t.Errorf("%+v: written as %x, want %s", tc.want, tc.bytes, tc.hex)
		}
		if n, err := tc.framing.Len(tc.bytes); n != len(tc.bytes) || err != nil {
			t.Errorf("%+v: framed as %d of %d bytes, %v", tc.want, n, len(tc.bytes), err)
		}
		if got, ok := tc.read(tc.bytes); !ok || !reflect.DeepEqual(got, tc.want) {
			t.Errorf("read as %+v, want %+v", got, tc.want)
		}
		if _, ok := tc.read(Message{TypeXVP, 0, 1, 2}); ok {
			t.Errorf("%+v: a power message was read as one", tc.want)
		}
	}
}

func anyOf[T any](read func(Message) (T, bool)) func(Message) (any, bool) {
	return func(m Message) (any, bool) {
		v, ok := read(m)
		return v, ok
	}
}

// FuzzMessages: whatever a viewer sends, however it is cut, the parse is the same,
// no byte is lost or invented, and every message can be looked into.
func FuzzMessages(f *testing.F) {
	for _, s := range streams(f) {
		if data := s.bytes(f); len(data) <= 1024 {
			f.Add(data, s.Negotiated.ExtMouse, byte(3))
		}
	}
	f.Fuzz(func(t *testing.T, data []byte, extended bool, step byte) {
		framing := Framing{ExtendedButtons: extended}
		whole, wholeErr := readAll(bytes.NewReader(data), framing)
		cut, cutErr := readAll(&stepper{data, int(step) + 1}, framing)
		if !reflect.DeepEqual(whole, cut) || !reflect.DeepEqual(wholeErr, cutErr) {
			t.Fatalf("whole: %d messages, %v; cut: %d, %v", len(whole), wholeErr, len(cut), cutErr)
		}
		if joined := slices.Concat(toBytes(whole)...); !bytes.HasPrefix(data, joined) {
			t.Fatal("messages are not the stream's bytes")
		}
		for _, m := range whole {
			inspect(t, m)
		}
	})
}

// stepper gives a few bytes at a time.
type stepper struct {
	data []byte
	step int
}

func (s *stepper) Read(b []byte) (int, error) {
	if len(s.data) == 0 {
		return 0, io.EOF
	}
	n := copy(b, s.data[:min(s.step, len(s.data))])
	s.data = s.data[n:]
	return n, nil
}

// inspect reads m in every way and writes it again: a canonical message comes out
// as the same bytes after one round.
func inspect(t *testing.T, m Message) {
	again := func(b []byte) {
		if len(b) != len(m) {
			t.Fatalf("type %d: %d bytes are written again as %d", m.Type(), len(m), len(b))
		}
	}
	if v, ok := m.Key(); ok {
		again(v.Append(nil))
	}
	if v, ok := m.Pointer(); ok {
		again(v.Append(nil))
	}
	if v, ok := m.CutText(); ok {
		again(v.Append(nil))
	}
	if v, ok := m.Fence(); ok {
		again(v.Append(nil))
	}
	if v, ok := m.Resize(); ok {
		again(v.Append(nil))
	}
	if v, ok := m.UpdateRequest(); ok {
		again(v.Append(nil))
	}
	if m.Type() == TypeSetEncodings {
		again(m.AppendFiltered(nil, func(Encoding) bool { return true }))
	}
}

// BenchmarkMessages against BenchmarkCopy is target 8 of the performance page.
func BenchmarkMessages(b *testing.B) {
	data := bytes.Repeat(slices.Concat(
		UpdateRequest{Incremental: true, Area: image.Rect(0, 0, 1440, 900)}.Append(nil),
		PointerEvent{X: 100, Y: 100}.Append(nil),
		KeyEvent{Keysym: 'a'}.Append(nil),
	), 2000)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		rest := data
		for len(rest) > 0 {
			var err error
			if _, rest, err = (Framing{}).Cut(rest); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func BenchmarkMessageReader(b *testing.B) {
	data := bytes.Repeat(PointerEvent{X: 100, Y: 100}.Append(nil), 8000)
	source := bytes.NewReader(data)
	m := NewMessageReader(source)
	b.SetBytes(int64(len(data)))
	b.ReportAllocs()
	for b.Loop() {
		source.Reset(data)
		m.start, m.end, m.err = 0, 0, nil
		for {
			if _, err := m.Next(); err != nil {
				break
			}
		}
	}
}

func BenchmarkCopy(b *testing.B) {
	data, into := make([]byte, 48000), make([]byte, 48000)
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		copy(into, data)
	}
}

// No allocation per message (target 8).
func TestNoAllocationPerMessage(t *testing.T) {
	data := bytes.Repeat(KeyEvent{Keysym: 'a'}.Append(nil), 100)
	allocations := testing.AllocsPerRun(100, func() {
		for rest := data; len(rest) > 0; {
			_, rest, _ = (Framing{}).Cut(rest)
		}
	})
	if allocations != 0 {
		t.Errorf("%v allocations for 100 messages", allocations)
	}
}
