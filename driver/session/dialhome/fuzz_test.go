// SPDX-License-Identifier: MPL-2.0

package dialhome

import (
	"encoding/json"
	"errors"
	"testing"
)

// FuzzPacket feeds the parser what a hostile session could send. Whatever is accepted
// is exactly one kind of packet, survives its own encoding, and its body decodes into
// every type without a panic.
func FuzzPacket(f *testing.F) {
	for _, p := range []Packet{
		{V: 1, ID: 1, Op: OpExec, Body: Encode(Exec{Argv: []string{"sh"}, TTY: true})},
		{V: 1, ID: 1, OK: true, Body: Encode(Desktop{State: Running, XPID: 3, Fence: &Fence{Enforced: true}})},
		{V: 1, ID: 1, Err: &Error{Kind: KindFailed, Message: "m"}},
		{V: 1, Event: EventDied, Body: Encode(Note{Text: "t"})},
	} {
		f.Add([]byte(Encode(p)))
	}
	f.Add([]byte(`{"v":1,"id":18446744073709551615,"ok":true,"body":null}`))
	f.Add([]byte(`{"v":1,"event":"died","body":{"text":"\ud800"}}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		p, err := parsePacket(text)
		if err != nil {
			var breach *ProtocolError
			if !errors.As(err, &breach) {
				t.Fatalf("%T, want a ProtocolError", err)
			}
			return
		}
		kinds := 0
		for _, is := range []bool{p.isRequest(), p.isAnswer(), p.isEvent()} {
			if is {
				kinds++
			}
		}
		if kinds != 1 {
			t.Fatalf("%d kinds of packet at once: %s", kinds, text)
		}
		encoded, err := json.Marshal(p)
		if err != nil {
			t.Fatalf("encode what was accepted: %v", err)
		}
		if _, err := parsePacket(encoded); err != nil && len(encoded) <= MaxPacket {
			t.Fatalf("parse what was encoded: %v", err)
		}
		for _, body := range []any{&Start{}, &Desktop{}, &Exec{}, &Signal{}, &Stop{}, &Exited{}, &Note{}, &Fence{}} {
			if err := Decode(p.Body, body); err == nil {
				Encode(body)
			}
		}
	})
}
