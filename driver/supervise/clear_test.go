// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"strings"
	"testing"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// cleared is what the session is asked to clear next.
func (f *fake) cleared() (uint64, dialhome.Clear) {
	f.t.Helper()
	p, _ := f.asked(dialhome.OpClear)
	var request dialhome.Clear
	must(f.t, dialhome.Decode(p.Body, &request))
	return p.ID, request
}

// X20: commands without force are marked, and a takeover ends what they left; a hand-back
// asks for nothing.
func TestX20Leftovers(t *testing.T) {
	r := newRig(t, nil)
	f := r.session(starting())
	for _, force := range []bool{false, true} {
		_, outcome := r.exec(control.ExecRequest{Argv: []string{"true"}, Force: force})
		p, far := f.asked(dialhome.OpExec)
		dialhome.CloseAll(far)
		var request dialhome.Exec
		must(t, dialhome.Decode(p.Body, &request))
		if request.Marked == force {
			t.Errorf("force %v: marked %v", force, request.Marked)
		}
		f.answer(p.ID, nil)
		f.event(dialhome.EventExited, dialhome.Exited{Command: p.ID})
		over(t, outcome)
	}
	r.take("ann")
	id, request := f.cleared()
	if request.All {
		t.Error("the desktop is cleared although the job keeps it")
	}
	f.answer(id, nil)
	r.release("ann")
	r.take("bob")
	if _, request := f.cleared(); request.All {
		t.Error("the desktop is cleared although the job keeps it")
	}
}

// X3: with takeover = "clean" a person gets the screen once it is cleared, and not before;
// meanwhile the agent is kept out.
func TestX3CleanBeforeTheGrant(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Takeover.Takeover = screen.TakeoverClean })
	f := r.session(starting())
	before := r.leaseNow()
	taken := make(chan lease.Public, 1)
	go func() {
		held, err := r.client.Take(t.Context(), control.TakeRequest{Viewer: "ann"})
		if err != nil {
			t.Error(err)
		}
		taken <- held
	}()
	id, request := f.cleared()
	if !request.All {
		t.Error("not all is cleared")
	}
	if held := r.leaseNow(); held != before {
		t.Errorf("before the desktop is clear the lease is %+v", held)
	}
	if err := r.keeper.Admit(before.Epoch); err == nil {
		t.Error("the agent acts while the desktop is cleared")
	}
	f.answer(id, nil)
	if held := <-taken; held.Holder != lease.Human {
		t.Errorf("the lease is %+v", held)
	}
}

// X3: a desktop that cannot be cleared is not handed to a person, who hears why; the agent
// goes on under the same epoch.
func TestX3CleanFails(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Takeover.Takeover = screen.TakeoverClean })
	f := r.session(starting())
	before := r.leaseNow()
	refused := make(chan error, 1)
	go func() {
		_, err := r.client.Take(t.Context(), control.TakeRequest{Viewer: "ann"})
		refused <- err
	}()
	id, _ := f.cleared()
	must(t, f.Send(dialhome.Packet{ID: id, Err: &dialhome.Error{Kind: dialhome.KindFailed, Message: "7 (logger) outlived KILL"}}))
	if err := <-refused; !isKind(err, control.Refused) || !strings.Contains(err.Error(), "outlived KILL") {
		t.Errorf("the person hears %v", err)
	}
	if held := r.leaseNow(); held != before {
		t.Errorf("the lease is %+v, was %+v", held, before)
	}
	must(t, r.keeper.Admit(before.Epoch))
}

// X3: where no desktop runs nothing can read what is typed.
func TestX3CleanWithoutDesktop(t *testing.T) {
	r := newRig(t, func(c *Config) { c.Takeover.Takeover = screen.TakeoverClean })
	f := r.session(starting())
	taken := make(chan lease.Public, 1)
	go func() { taken <- r.take("ann") }()
	id, _ := f.cleared()
	must(t, f.Send(dialhome.Packet{ID: id, Err: &dialhome.Error{Kind: dialhome.KindState, Message: "no desktop"}}))
	if held := <-taken; held.Holder != lease.Human {
		t.Errorf("the lease is %+v", held)
	}
}
