// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
)

// running starts a command and returns its id on the session's side.
func (r *rig) running(f *fake, force bool) (id uint64, outcome chan execOutcome, far []*dialhome.Descriptor) {
	r.t.Helper()
	stream, outcome := r.exec(control.ExecRequest{Argv: []string{"sleep", "inf"}, Force: force})
	p, passed := f.asked(dialhome.OpExec)
	f.answer(p.ID, nil)
	select {
	case <-stream:
	case got := <-outcome:
		r.t.Fatalf("the command did not start: %+v", got)
	}
	return p.ID, outcome, passed
}

// over waits for a command's end.
func over(t *testing.T, outcome chan execOutcome) execOutcome {
	t.Helper()
	select {
	case got := <-outcome:
		return got
	case <-time.After(limit):
		t.Fatalf("the command has not ended within %s", limit)
		return execOutcome{}
	}
}

// killed is the command that the session is told to kill next.
func (f *fake) killed() uint64 {
	f.t.Helper()
	p, _ := f.asked(dialhome.OpSignal)
	var signal dialhome.Signal
	must(f.t, dialhome.Decode(p.Body, &signal))
	if signal.Signal != sigKill {
		f.t.Errorf("signal %d", signal.Signal)
	}
	f.answer(p.ID, nil)
	return signal.Command
}

// X20: a takeover ends the commands that run without force, at once and whatever the
// session does about it; those with force go on. X19: while the person holds there are
// new ones with force only.
func TestX20Takeover(t *testing.T) {
	r := newRig(t, nil)
	f := r.session(starting())
	id, outcome, far := r.running(f, false)
	forced, going, farForced := r.running(f, true)
	r.take("ann")
	// Neither a report of its end nor that of its outputs comes from the session.
	got := over(t, outcome)
	if got.err != nil || got.result.Kind != control.HumanHasControl || got.result.Signal != sigKill || got.result.Error == "" {
		t.Errorf("the caller hears %+v", got)
	}
	if killed := f.killed(); killed != id {
		t.Errorf("command %d was killed, want %d (%d has force)", killed, id, forced)
	}
	dialhome.CloseAll(far)
	r.await("it is forgotten", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.commands) == 0
	})
	if _, err := r.client.Exec(t.Context(), control.ExecRequest{Argv: []string{"true"}}); !isKind(err, control.HumanHasControl) {
		t.Errorf("a new one: %v", err)
	}
	another, ended, farAnother := r.running(f, true)
	for command, outcome := range map[uint64]chan execOutcome{forced: going, another: ended} {
		f.event(dialhome.EventExited, dialhome.Exited{Command: command, Code: 5})
		dialhome.CloseAll(map[uint64][]*dialhome.Descriptor{forced: farForced, another: farAnother}[command])
		if got := over(t, outcome); got.err != nil || got.result.ExitCode != 5 || got.result.Kind != "" {
			t.Errorf("with force: %+v", got)
		}
	}
	r.release("ann")
	id, outcome, far = r.running(f, false)
	f.event(dialhome.EventExited, dialhome.Exited{Command: id})
	dialhome.CloseAll(far)
	if got := over(t, outcome); got.err != nil || got.result.ExitCode != 0 {
		t.Errorf("after the hand-back: %+v", got)
	}
}

// X20: a takeover that comes while a command starts ends it too, also when it is over
// again by then.
func TestX20TakeoverDuringTheStart(t *testing.T) {
	for name, tc := range map[string]struct {
		back bool
		want control.Kind
	}{
		"held":            {false, control.HumanHasControl},
		"take and return": {true, control.LeaseChanged},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			f := r.session(starting())
			_, outcome := r.exec(control.ExecRequest{Argv: []string{"sleep", "inf"}})
			p, far := f.asked(dialhome.OpExec)
			r.take("ann")
			if tc.back {
				r.release("ann")
			}
			f.answer(p.ID, nil)
			if got := over(t, outcome); !isKind(got.err, tc.want) {
				t.Errorf("the caller hears %+v", got)
			}
			if killed := f.killed(); killed != p.ID {
				t.Errorf("command %d was killed, want %d", killed, p.ID)
			}
			dialhome.CloseAll(far)
		})
	}
}
