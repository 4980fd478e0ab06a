// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
)

var seeds = []string{
	``, `{}`, `{"id":1,"method":"A.b"}`, ` { "id" : -7 , "method" : "A.b" , "params" : { "x" : [ "}" , {} ] } , "sessionId" : "S" } `,
	`{"method":"Target.attachedToTarget","params":{"sessionId":"S2"},"sessionId":"S1"}`, `{"id":1,"result":{"a":"\\\"}"},"sessionId":"S"}`,
	`{"id":1,"error":{"code":-32001,"message":"Session with given id not found."},"sessionId":"S"}`, `{"id":1,"id":2}`, `{"a":"\\","b":"\"","id":3}`,
	`{"id":1,"result":}`, `{"id":1`, `{"id`, `[1]`, `{"sess\u0069onId":"S"}`, "{\"id\":1,\"method\":\"A.b\"}\x00",
}

// What passes as a command says the same to the browser as it does to us: the text that is
// built of it has one method, one session and one id, and those are the ones looked at.
func FuzzCommand(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := parseCommand(text)
		if err != nil {
			return
		}
		built := command(12, e.method, "OURS", e.params)
		if bytes.IndexByte(built, 0) >= 0 {
			t.Fatalf("a NUL in %q", built)
		}
		var got, was struct {
			ID        json.Number
			Method    string
			Params    json.RawMessage
			SessionID string
		}
		if err := json.Unmarshal(built, &got); err != nil {
			t.Fatalf("%q becomes %q: %v", text, built, err)
		}
		if got.ID != "12" || got.Method != e.method || got.SessionID != "OURS" {
			t.Fatalf("%q becomes %q", text, built)
		}
		var exact map[string]json.RawMessage
		if err := json.Unmarshal(text, &exact); err != nil {
			t.Fatalf("%q is no object: %v", text, err)
		}
		was.Params = exact["params"]
		if string(exact["id"]) != string(e.id) || string(exact["method"]) != `"`+e.method+`"` || e.session != strings.Trim(string(exact["sessionId"]), `"`) ||
			!bytes.Equal(was.Params, e.params) {
			t.Fatalf("%q was read as %+v", text, e)
		}
	})
}

// A message of the browser is taken apart without reading its values. Of valid JSON no
// value is lost or changed on its way.
func FuzzReply(f *testing.F) {
	for _, seed := range seeds {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		e, err := parse(text)
		if err != nil || !json.Valid(text) {
			return
		}
		var was, got map[string]json.RawMessage
		must(t, json.Unmarshal(text, &was))
		reply := e.reply([]byte("7"), "FIRST")
		if err := json.Unmarshal(reply, &got); err != nil {
			t.Fatalf("%q becomes %q: %v", text, reply, err)
		}
		for key, value := range was {
			if key != "id" && !bytes.Equal(got[key], value) {
				t.Fatalf("%q becomes %q", text, reply)
			}
		}
		if string(got["id"]) != "7" {
			t.Fatalf("%q becomes %q", text, reply)
		}
	})
}

// The pipe's messages are those between its NULs, however they arrive.
func FuzzFrames(f *testing.F) {
	f.Add([]byte("{}\x00{\"id\":1}\x00"), uint8(3))
	f.Add([]byte("\x00\x00abcdefghijklmnop\x00x"), uint8(1))
	f.Fuzz(func(t *testing.T, text []byte, most uint8) {
		frames := newFrames(&trickle{text, int(most%7) + 1})
		frames.max = int(most)
		parts := bytes.Split(text, []byte{0})
		for _, want := range parts[:len(parts)-1] {
			got, err := frames.next()
			switch {
			case len(want) > frames.max && err != errTooLarge, len(want) <= frames.max && (err != nil || !bytes.Equal(got, want)):
				t.Fatalf("%q: %q, %v", want, got, err)
			case err == errTooLarge && !bytes.HasPrefix(want, got):
				t.Fatalf("%q begins with %q", want, got)
			}
			leadingID(got)
		}
		if got, err := frames.next(); err == nil {
			t.Fatalf("at the end came %q", got)
		}
	})
}

// trickle reads a few bytes at a time.
type trickle struct {
	text []byte
	step int
}

func (r *trickle) Read(b []byte) (int, error) {
	n := min(len(b), len(r.text), r.step)
	copy(b, r.text[:n])
	r.text = r.text[n:]
	if n == 0 {
		return 0, errAtEnd
	}
	return n, nil
}

var errAtEnd = ErrClosed
