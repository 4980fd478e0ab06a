// SPDX-License-Identifier: MPL-2.0

package task

import (
	"errors"
	"fmt"
	"strings"

	"github.com/botscreen/botscreen/driver/display"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/memory"
	"github.com/botscreen/botscreen/shared/screen"
)

// ProfileBusyError says that another task has the profile's screen.
type ProfileBusyError struct {
	Task  ID
	Alloc string // set where the other task is known only from its record
}

func (e *ProfileBusyError) Error() string {
	return fmt.Sprintf("profile in use by task %q", string(e.Task))
}

// Sentence is for the person who reads the task's events.
func (e *ProfileBusyError) Sentence() string {
	return fmt.Sprintf("the profile's screen is in use by task %s. A profile has one screen at a time: stop that task, or give this job another profile", e.Task)
}

// RefusedError says that this node does not run what the job asks for.
type RefusedError struct {
	Reason  string // a sentence that names the option which would allow it
	Passing bool   // no policy but the state of now, such as an engine that does not answer
}

func (e *RefusedError) Error() string    { return "isolation_refused: " + e.Reason }
func (e *RefusedError) Sentence() string { return e.Error() }

// StartError says that a screen was launched and did not become ready.
type StartError struct {
	Cause  string // the session's word, such as display_taken
	Reason string
}

func (e *StartError) Error() string    { return "screen did not become ready: " + e.Reason }
func (e *StartError) Sentence() string { return e.Reason }

// leftoverError says that what an earlier run left is still there, such as a process that a busy
// node has not ended yet. By the next attempt it may have gone.
type leftoverError struct{ err error }

func (e *leftoverError) Error() string { return "clear leftovers: " + e.err.Error() }
func (e *leftoverError) Unwrap() error { return e.err }

// Sentence is for the person who reads the task's events; a boundary's own word comes first.
func (e *leftoverError) Sentence() string {
	var plain interface{ Sentence() string }
	if errors.As(e.err, &plain) {
		return plain.Sentence()
	}
	return fmt.Sprintf("what an earlier run of this screen left could not be removed (%s). It is tried again by the job's restart policy", e.err)
}

// Transient reports whether another attempt, here or elsewhere, may succeed: Nomad
// retries those by the job's restart policy (M5).
func Transient(err error) bool {
	var floor *memory.FloorError
	var gate *memory.GateTimeoutError
	var displays *display.ExhaustedError
	var busy *ProfileBusyError
	var start *StartError
	var logs *logError
	var left *leftoverError
	var refused *RefusedError
	var boundary *isolation.RefusedError
	switch {
	case errors.As(err, &floor), errors.As(err, &gate), errors.As(err, &displays), errors.As(err, &busy), errors.As(err, &logs), errors.As(err, &left):
		return true
	case errors.As(err, &refused):
		return refused.Passing
	case errors.As(err, &start):
		return start.Cause != causeMissing // a missing program does not appear by itself
	case errors.As(err, &boundary):
		return boundary.Passes // its own word, not that of a connection that broke beside it
	}
	return false
}

// Explain is the error as a person reads it in a task event.
func Explain(err error) string {
	var faults screen.Faults
	if errors.As(err, &faults) {
		return fmt.Sprintf("Cannot start the screen: %s in the job. %s.", count(len(faults), "fault"), faults.Error())
	}
	var plain interface{ Sentence() string }
	if errors.As(err, &plain) {
		text := strings.TrimSuffix(plain.Sentence(), ".")
		if strings.HasPrefix(text, "isolation_refused") || strings.HasPrefix(text, "Not enough memory") {
			return text + "." // these words are looked for at the beginning
		}
		return "Cannot start the screen: " + lowerFirst(text) + "."
	}
	return "Cannot start the screen: " + err.Error() + "."
}

func count(n int, noun string) string {
	if n == 1 {
		return "one " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// lowerFirst lets a sentence go on after a colon; names in capitals stay.
func lowerFirst(text string) string {
	if len(text) < 2 || text[1] >= 'A' && text[1] <= 'Z' {
		return text
	}
	first := strings.Fields(text)[0]
	switch first {
	case "No", "This", "The", "Not", "None", "A", "An", "It":
		return strings.ToLower(text[:1]) + text[1:]
	}
	return text
}
