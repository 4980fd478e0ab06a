// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"fmt"
	"strings"
	"time"
)

// DisplayTakenError says that another X server has the display number. The
// caller picks the next one.
type DisplayTakenError struct {
	Display int
	Detail  string
}

func (e *DisplayTakenError) Error() string {
	return fmt.Sprintf("start Xvnc on :%d: display is taken: %s", e.Display, e.Detail)
}

// DiedError says that a program the desktop cannot do without has ended.
type DiedError struct {
	Program   string
	Status    string // "exited 1" or "killed by signal 9"
	After     time.Duration
	LastLines []string // of that program; untrusted text, cleaned of control characters
}

func (e *DiedError) Error() string {
	text := fmt.Sprintf("%s %s after %s", e.Program, e.Status, e.After.Round(time.Millisecond))
	if len(e.LastLines) > 0 {
		text += fmt.Sprintf(": %q", strings.Join(e.LastLines, " | "))
	}
	return text
}

// NotReadyError says which steps of a start were not reached in time.
type NotReadyError struct {
	Missing []string // what did not happen, in words
	Cause   error    // the context's
	Lines   []string // last output of all programs
}

func (e *NotReadyError) Error() string {
	text := fmt.Sprintf("await desktop: %v: %s", e.Cause, strings.Join(e.Missing, ", "))
	if len(e.Lines) > 0 {
		text += fmt.Sprintf("; last output: %q", strings.Join(e.Lines, " | "))
	}
	return text
}

func (e *NotReadyError) Unwrap() error { return e.Cause }

// SurvivorsError says that processes are left in spite of SIGKILL.
type SurvivorsError struct {
	Processes []string // "1234 (name)"
}

func (e *SurvivorsError) Error() string {
	return "stop desktop: still running after SIGKILL: " + strings.Join(e.Processes, ", ")
}

// HeldError says that another desktop has what this one needs: its XDir, or
// this process.
type HeldError struct{ What string }

func (e *HeldError) Error() string {
	return "start desktop: another desktop holds " + e.What
}
