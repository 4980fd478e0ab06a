// SPDX-License-Identifier: MPL-2.0

package screen

import (
	"fmt"
	"strings"
)

// FieldError is one fault of one field: what the user wrote and what is wanted.
type FieldError struct {
	Field string // as the user writes it, for example "geometry" or "exec.role"
	Value string // what was written, empty where nothing was
	Want  string // a clause such as "is not one of auto, host, docker, apptainer"
}

func (e FieldError) Error() string {
	if e.Value == "" {
		return e.Field + ": " + e.Want
	}
	return fmt.Sprintf("%s: %q %s", e.Field, shorten(e.Value), e.Want)
}

// Faults collects every fault of one input: validation reports all at once.
type Faults []FieldError

// Add appends one fault.
func (f *Faults) Add(field, value, want string) {
	*f = append(*f, FieldError{Field: field, Value: value, Want: want})
}

// Err is nil when nothing was wrong.
func (f Faults) Err() error {
	if len(f) == 0 {
		return nil
	}
	return f
}

func (f Faults) Error() string {
	texts := make([]string, len(f))
	for i, fault := range f {
		texts[i] = fault.Error()
	}
	return strings.Join(texts, "; ")
}

// shorten keeps a hostile value from flooding an event or a terminal.
func shorten(s string) string {
	const most = 80
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
