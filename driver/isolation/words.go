// SPDX-License-Identifier: MPL-2.0

package isolation

import (
	"strings"
	"unicode"
)

// RefusedError says why a boundary cannot run a screen and what would change that.
type RefusedError struct {
	Reason string // a sentence for a person
	Err    error  // the cause, where there is one
	Passes bool   // something is away: another attempt may succeed
}

func (e *RefusedError) Error() string {
	if e.Err == nil {
		return e.Reason
	}
	return e.Err.Error()
}

func (e *RefusedError) Unwrap() error { return e.Err }

// Sentence is for the person who reads the task's events.
func (e *RefusedError) Sentence() string { return e.Reason }

// Temporary reports whether another attempt may succeed.
func (e *RefusedError) Temporary() bool { return e.Passes }

// StatusOfCode is the exit code of an engine's client. A session ends with a small one, or
// by a signal, which such a client adds to 128.
func StatusOfCode(code int) Status {
	status := Status{Code: code}
	if code > 128 && code <= 128+64 {
		status.Signal = code - 128
	}
	return status
}

// OneLine makes one line of printable characters of what an engine or an image wrote.
func OneLine(text string) string {
	text = strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r):
			return ' '
		case unicode.IsPrint(r):
			return r
		}
		return -1
	}, strings.ToValidUTF8(text, ""))
	return strings.Join(strings.Fields(text), " ")
}
