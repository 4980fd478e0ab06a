// SPDX-License-Identifier: MPL-2.0

package pipe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"testing"

	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// framed is what an engine makes of a command's output.
func framed(output []byte) []byte {
	header := []byte{streamOutput, 0, 0, 0}
	return append(binary.BigEndian.AppendUint32(header, uint32(len(output))), output...)
}

// FuzzPipe lets the node's half read what anybody inside could write: it ends with a word
// on it, holds no more than the windows, and what it accepts survives its own writing.
func FuzzPipe(f *testing.F) {
	hello := dialhome.Encode(dialhome.Packet{V: 1, Event: dialhome.EventHello, Body: dialhome.Encode(dialhome.Desktop{State: dialhome.Running, XPID: 7})})
	answer := dialhome.Encode(dialhome.Packet{V: 1, ID: 1, OK: true})
	for _, frames := range [][]frame{
		{{kindOpen, 1, nil}, {kindPacket, 1, appendPacket(nil, nil, hello)}, {kindClose, 1, nil}},
		{{kindOpen, 1, nil}, {kindPacket, 1, appendPacket(nil, []riding{{shapeSocket, 2}, {shapeTerminal, 4}}, answer)}, {kindData, 2, []byte("x")}, {kindEnd, 2, nil}},
		{{kindOpen, 1, nil}, {kindPacket, 1, appendPacket(nil, []riding{{shapeFile, 2}, {shapeBlank, 2}}, answer)}},
		{{kindData, 2, make([]byte, maxData)}, {kindCredit, 2, number(1 << 31)}, {kindReset, 2, nil}, {kindResize, 2, number(7)}},
		{{kindHello, 0, []byte{version}}},
	} {
		var output []byte
		for _, each := range frames {
			output = each.append(output)
		}
		f.Add(framed(output))
	}
	f.Add([]byte{streamErrors, 0, 0, 0, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, output []byte) {
		buffer := make([]byte, maxPayload)
		for r := (&demultiplexer{r: bytes.NewReader(output), aside: io.Discard}); ; {
			got, err := readFrame(r, buffer)
			if err != nil {
				expectWord(t, err)
				break
			}
			again, err := readFrame(bytes.NewReader(got.append(nil)), make([]byte, maxPayload))
			if err != nil || again.kind != got.kind || again.number != got.number || !bytes.Equal(again.payload, got.payload) {
				t.Fatalf("%+v becomes %+v, %v", got, again, err)
			}
			if got.kind == kindPacket {
				roundTrip(t, got.payload)
			}
		}
		n := newNode(io.Discard, "/nowhere/at/all", process0, io.Discard)
		if err := n.serve(&demultiplexer{r: bytes.NewReader(output), aside: io.Discard}); err != nil {
			expectWord(t, err)
		}
		if len(n.m.streams) > 0 || n.line != nil {
			t.Fatalf("%d streams are left", len(n.m.streams))
		}
	})
}

func roundTrip(t *testing.T, payload []byte) {
	t.Helper()
	rides, packet, err := parsePacket(payload)
	if err != nil {
		expectWord(t, err)
		return
	}
	again, second, err := parsePacket(appendPacket(nil, rides, dialhome.Encode(packet)))
	if err != nil || len(again) != len(rides) || second.ID != packet.ID {
		t.Fatalf("%+v becomes %+v, %v", packet, second, err)
	}
}

func expectWord(t *testing.T, err error) {
	t.Helper()
	var broken *brokenError
	var breach *dialhome.ProtocolError
	if !errors.As(err, &broken) && !errors.As(err, &breach) && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) && !errors.Is(err, errTooMany) {
		t.Fatalf("%T %v", err, err)
	}
}
