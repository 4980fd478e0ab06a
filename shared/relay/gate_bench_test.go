// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bytes"
	"context"
	"image"
	"io"
	"testing"

	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
)

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

// nowhere is a server that takes everything.
type nowhere struct{ sink }

func (*nowhere) Write(b []byte) (int, error) { return len(b), nil }

// BenchmarkGate is target 8: what a viewer sends, parsed and judged, beside a copy of
// the same bytes.
func BenchmarkGate(b *testing.B) {
	request := rfb.UpdateRequest{Incremental: true, Area: image.Rect(0, 0, 1440, 900)}.Append(nil)
	fence := rfb.FenceMessage{Flags: rfb.FenceBlockBefore, Payload: []byte{1}}.Append(nil)
	var pointers []byte
	for i := range uint16(20) {
		pointers = append(pointers, pointerMessage(0, i, i)...)
	}
	session := bytes.Join([][]byte{request, fence, pointers, keyMessage(true, 'a'), keyMessage(false, 'a'), request}, nil)
	for _, stream := range []struct {
		name string
		said []byte
	}{
		{"session", bytes.Repeat(session, 20)},      // what a person's viewer sends while it watches
		{"requests", bytes.Repeat(request, 400)},    // the shortest that pass
		{"pointer", bytes.Repeat(pointers, 32)},     // the shortest of all
		{"encodings", bytes.Repeat(everything, 20)}, // the one that is rewritten
		{"paste", rfb.CutText{Data: make([]byte, 100_000)}.Append(nil)},
	} {
		b.Run(stream.name+"/gate", func(b *testing.B) {
			w := newWorld(b)
			v := w.newViewer(&quiet{Reader: &loop{said: stream.said, left: b.N * len(stream.said)}}, Admission{Grant: ticket.Grant{Viewer: "v", Mode: ticket.Watch}})
			v.upstream = &nowhere{}
			b.SetBytes(int64(len(stream.said)))
			b.ReportAllocs()
			b.ResetTimer()
			if end := v.inbound(context.Background()); end.Code != Abnormal {
				b.Fatal(end)
			}
		})
		b.Run(stream.name+"/copy", func(b *testing.B) {
			l := &loop{said: stream.said, left: b.N * len(stream.said)}
			buf, out := make([]byte, 4<<10), make([]byte, 4<<10)
			b.SetBytes(int64(len(stream.said)))
			for {
				n, err := l.Read(buf)
				copy(out, buf[:n])
				if err != nil {
					return
				}
			}
		})
	}
}
