// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"bytes"
	"errors"
)

// scanner walks over JSON (RFC 8259) and returns values as they stand there. Of what is
// inside a value it sees only where that ends.
type scanner struct{ rest []byte }

var errNotJSON = errors.New("not a JSON object")

// object calls take for each member of an object.
func (s *scanner) object(take func(key, value []byte) error) error {
	if !s.token('{') {
		return errNotJSON
	}
	if s.token('}') {
		return nil
	}
	for {
		s.space()
		key, ok := s.str()
		if !ok || !s.token(':') {
			return errNotJSON
		}
		value, ok := s.value()
		if !ok {
			return errNotJSON
		}
		if err := take(key, value); err != nil {
			return err
		}
		if s.token('}') {
			return nil
		}
		if !s.token(',') {
			return errNotJSON
		}
	}
}

func (s *scanner) space() { s.rest = bytes.TrimLeft(s.rest, " \t\r\n") }

func (s *scanner) token(c byte) bool {
	s.space()
	if len(s.rest) == 0 || s.rest[0] != c {
		return false
	}
	s.rest = s.rest[1:]
	return true
}

// cut takes the first n bytes.
func (s *scanner) cut(n int) []byte {
	part := s.rest[:n:n]
	s.rest = s.rest[n:]
	return part
}

// str takes a string with its quotes.
func (s *scanner) str() ([]byte, bool) {
	end, ok := stringEnd(s.rest)
	if !ok {
		return nil, false
	}
	return s.cut(end), true
}

// stringEnd is where the string ends that text begins with.
func stringEnd(text []byte) (int, bool) {
	if len(text) == 0 || text[0] != '"' {
		return 0, false
	}
	for at := 1; ; {
		quote := bytes.IndexByte(text[at:], '"')
		if quote < 0 {
			return 0, false
		}
		quote += at
		escapes := 0
		for text[quote-escapes-1] == '\\' { // ends at the first quote at the latest
			escapes++
		}
		if escapes%2 == 0 {
			return quote + 1, true
		}
		at = quote + 1
	}
}

func (s *scanner) value() ([]byte, bool) {
	s.space()
	if len(s.rest) == 0 {
		return nil, false
	}
	switch s.rest[0] {
	case '"':
		return s.str()
	case '{', '[':
		return s.nested()
	}
	end := bytes.IndexAny(s.rest, ",}] \t\r\n")
	if end <= 0 {
		return nil, false
	}
	return s.cut(end), true
}

// nested takes an object or an array. Brackets inside of strings do not count.
func (s *scanner) nested() ([]byte, bool) {
	depth := 0
	for at := 0; at < len(s.rest); at++ {
		switch s.rest[at] {
		case '"':
			end, ok := stringEnd(s.rest[at:])
			if !ok {
				return nil, false
			}
			at += end - 1
		case '{', '[':
			depth++
		case '}', ']':
			if depth--; depth == 0 {
				return s.cut(at + 1), true
			}
		}
	}
	return nil, false
}
