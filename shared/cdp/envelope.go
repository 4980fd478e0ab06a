// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"unicode/utf8"
)

// maxMembers bounds the members of a message itself; the protocol knows six.
const maxMembers = 16

// envelope is what of a message decides where it goes. Values are as they stand in the
// message, of which they are parts.
type envelope struct {
	id      []byte // a number; nil: an event
	method  string
	session string
	params  []byte
	rest    []member // all but id and session
}

type member struct{ key, value []byte } // the key with its quotes

// parse reads the members of a message without reading their values: results are large.
// The browser's own messages are taken apart by this alone.
func parse(msg []byte) (envelope, error) {
	var e envelope
	s := scanner{rest: msg}
	err := s.object(func(key, value []byte) error { return e.take(key, value) })
	if err == nil && len(bytes.TrimLeft(s.rest, " \t\r\n")) > 0 {
		err = errors.New("more than one value")
	}
	if err != nil {
		return envelope{}, fmt.Errorf("read message: %w", err)
	}
	return e, nil
}

// take needs each member once: of two the browser could believe another one than we.
func (e *envelope) take(key, value []byte) error {
	if bytes.IndexByte(key, '\\') >= 0 || len(e.rest) == maxMembers {
		return errors.New("unusual members")
	}
	for _, m := range e.rest {
		if bytes.Equal(m.key, key) {
			return fmt.Errorf("two members %s", key)
		}
	}
	switch string(key) {
	case `"id"`:
		if e.id != nil {
			return errors.New("two ids")
		}
		if !isInteger(value) {
			return errors.New("the id is no integer")
		}
		e.id = value
		return nil
	case `"sessionId"`:
		text, ok := plain(value)
		if !ok || text == "" || e.session != "" {
			return errors.New("the session is no name")
		}
		e.session = text
		return nil
	case `"method"`:
		text, ok := plain(value)
		if !ok {
			return errors.New("the method is no name")
		}
		e.method = text
	case `"params"`:
		e.params = value
	}
	e.rest = append(e.rest, member{key, value})
	return nil
}

// parseCommand reads a client's message, whose every byte has to be what it seems: the
// browser must not find another session or method in it than we. With an error the id is
// still good where there is one.
func parseCommand(msg []byte) (envelope, error) {
	if !utf8.Valid(msg) || !json.Valid(msg) {
		return envelope{}, errors.New("read message: not JSON")
	}
	e, err := parse(msg)
	switch {
	case err != nil:
		return envelope{}, err
	case e.id == nil:
		return envelope{}, errors.New("read message: no id")
	case e.method == "":
		return e, errors.New("read message: no method")
	case e.params != nil && e.params[0] != '{':
		return e, errors.New("read message: the params are no object")
	}
	return e, nil
}

// command is what the browser is sent, built of nothing but what was understood.
func command(id int32, method, session string, params []byte) []byte {
	out := make([]byte, 0, len(params)+len(method)+len(session)+64)
	out = append(out, `{"id":`...)
	out = strconv.AppendInt(out, int64(id), 10)
	out = append(out, `,"method":"`...)
	out = append(append(out, method...), '"')
	if len(params) > 0 {
		out = append(append(out, `,"params":`...), params...)
	}
	return append(appendSession(out, session), '}')
}

// reply is the envelope's message as its client sees it, with the client's own id, and with
// its session unless that is the client's first.
func (e envelope) reply(id []byte, first string) []byte {
	size := len(id) + len(e.session) + 32
	for _, m := range e.rest {
		size += len(m.key) + len(m.value) + 2
	}
	out := append(make([]byte, 0, size), '{')
	if id != nil {
		out = append(append(append(out, `"id":`...), id...), ',')
	}
	for i, m := range e.rest {
		if i > 0 {
			out = append(out, ',')
		}
		out = append(append(append(out, m.key...), ':'), m.value...)
	}
	if len(e.rest) == 0 {
		out = append(out, `"result":{}`...)
	}
	if e.session != first {
		out = appendSession(out, e.session)
	}
	return append(out, '}')
}

// refusal is an answer of ours.
func refusal(id []byte, session string, code int, message string) []byte {
	if id == nil {
		id = []byte("null")
	}
	text, _ := json.Marshal(message) // a string always marshals
	out := append(append([]byte(`{"id":`), id...), `,"error":{"code":`...)
	out = strconv.AppendInt(out, int64(code), 10)
	out = append(append(append(out, `,"message":`...), text...), '}')
	return append(appendSession(out, session), '}')
}

func appendSession(out []byte, session string) []byte {
	if session == "" {
		return out
	}
	return append(append(append(out, `,"sessionId":"`...), session...), '"')
}

// plain is the text of a JSON string that needs no unescaping, as all names of the protocol.
func plain(value []byte) (string, bool) {
	const longest = 256
	if len(value) < 2 || len(value) > longest || value[0] != '"' {
		return "", false
	}
	text := value[1 : len(value)-1]
	for _, c := range text {
		if c < ' ' || c > '~' || c == '"' || c == '\\' {
			return "", false
		}
	}
	return string(text), true
}

// isInteger accepts what an id may be: the browser takes 32 bits.
func isInteger(value []byte) bool {
	_, err := strconv.ParseInt(string(value), 10, 32)
	return err == nil && value[0] != '+'
}

// leadingID is the id at the beginning of a message that is not whole; the browser puts it
// first.
func leadingID(head []byte) []byte {
	rest, ok := bytes.CutPrefix(bytes.TrimLeft(head, " \t\r\n"), []byte(`{"id":`))
	if !ok {
		return nil
	}
	end := bytes.IndexByte(rest, ',')
	if end < 0 || !isInteger(rest[:end]) {
		return nil
	}
	return rest[:end]
}
