// SPDX-License-Identifier: MPL-2.0

package plugin

import (
	"bytes"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// X19: what a command from Nomad may be, and that only an operator forces one.
func TestX19ExecRequests(t *testing.T) {
	operator := screen.ExecPolicy{Shell: true, Role: screen.RoleOperator}
	for text, tc := range map[string]struct {
		allowed    screen.ExecPolicy
		gui, force bool
		argv       []string
		want       string // in the refusal
	}{
		"ls -l":                             {allowed: operator, argv: []string{"ls", "-l"}},
		"botscreen:gui ls":                  {allowed: operator, gui: true, argv: []string{"ls"}},
		"botscreen:force ls":                {allowed: operator, force: true, argv: []string{"ls"}},
		"botscreen:force botscreen:gui ls":  {allowed: operator, gui: true, force: true, argv: []string{"ls"}},
		"botscreen:gui botscreen:force ls":  {allowed: operator, gui: true, force: true, argv: []string{"ls"}},
		"botscreen:gui":                     {allowed: operator, want: "botscreen:gui needs a command"},
		"botscreen:gui botscreen:force":     {allowed: operator, want: "botscreen:force needs a command"},
		"botscreen:force botscreen:control": {allowed: operator, want: "is a stream"},
		"botscreen:force /bin/sh":           {allowed: screen.ExecPolicy{Shell: true, Role: screen.RoleControl}, want: `role = "operator"`},
		"sh":                                {allowed: screen.ExecPolicy{Role: screen.RoleOperator}, want: "shell = false"},
		"echo botscreen:force":              {allowed: operator, argv: []string{"echo", "botscreen:force"}},
	} {
		got, err := execRequest(tc.allowed, strings.Fields(text), true)
		if tc.want != "" {
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("%s: %v, want %q", text, err, tc.want)
			}
			continue
		}
		if err != nil || got.GUI != tc.gui || got.Force != tc.force || !slices.Equal(got.Argv, tc.argv) || !got.TTY {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
}

// X20: a command that was refused, or ended by a takeover, is no success and says why.
func TestX20ExecOutcome(t *testing.T) {
	over := control.TakenOver("the command")
	for name, tc := range map[string]struct {
		result control.ExecResult
		err    error
		code   int32
		want   string // on stderr
	}{
		"taken over": {result: control.ExecResult{ExitCode: 137, Signal: 9, Kind: over.Kind, Error: over.Error()}, code: 137, want: "took control"},
		"refused":    {err: fmt.Errorf("exec: %w", over), code: 126, want: "took control"},
		"missing":    {err: &control.Error{Kind: control.NotFound, Message: "No such program."}, code: 127, want: "No such program."},
		"ended":      {result: control.ExecResult{ExitCode: 3}, code: 3},
	} {
		var stderr bytes.Buffer
		exit, err := execOutcome(tc.result, tc.err, &stderr)
		if err != nil || exit.ExitCode != tc.code || !strings.Contains(stderr.String(), tc.want) || (tc.want == "") != (stderr.Len() == 0) {
			t.Errorf("%s: %+v, %v, %q", name, exit, err, stderr.String())
		}
	}
	for name, tc := range map[string]struct {
		result control.ExecResult
		err    error
	}{"a fault": {err: io.EOF}, "no exit code": {result: control.ExecResult{Error: "lost"}}} {
		if exit, err := execOutcome(tc.result, tc.err, io.Discard); err == nil {
			t.Errorf("%s: %+v", name, exit)
		}
	}
}
