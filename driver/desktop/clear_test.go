// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jezek/xgb/xproto"
)

// names are the programs that run under the desktop's uid, sorted.
func (r *rig) names() []string {
	var all []string
	for _, p := range processesOf(r.uid) {
		all = append(all, p.name)
	}
	slices.Sort(all)
	return all
}

// count waits until as many programs of a name run.
func (r *rig) count(name string, want int) {
	r.t.Helper()
	deadline := time.Now().Add(answerLimit)
	for len(r.pidsOf(name)) != want {
		if time.Now().After(deadline) {
			r.t.Fatalf("%d %s run, want %d: %v", len(r.pidsOf(name)), name, want, r.names())
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// hiding starts three programs: one stays, one leaves its session, and one its parent and
// its environment too.
var hiding = []string{"sh", "-c", `sleep 1001 & setsid sleep 1002 & (env -i setsid sh -c 'sleep 1003; true' &) ; exec sleep 1004`}

// X20: what a marked command started is found, however it hides, and nothing else is.
func TestX20MarkedCommands(t *testing.T) {
	r := newRig(t)
	r.start()
	must(t, r.try(order{Op: "fence"}))
	before := r.names()
	must(t, r.try(order{Op: "spawn", Argv: hiding, Marked: true}))
	r.count("sleep", 4)
	must(t, r.try(order{Op: "spawn", Argv: []string{"tail", "-f", "/dev/null"}}))
	r.count("tail", 1)
	must(t, r.try(order{Op: "end marked"}))
	if after := r.names(); !slices.Equal(after, slices.Sorted(slices.Values(append(before, "tail")))) {
		t.Errorf("before %v, after %v", before, after)
	}
	if n := r.order(order{Op: "dial"}); n.Err != "" {
		t.Errorf("the desktop does not answer: %s", n.Err)
	}
	r.stop()
}

// A node that forbids to trace gets its commands unmarked, and hears so.
func TestX20WithoutTracing(t *testing.T) {
	r := newRigAt(t, "plain", func(r *rig) { r.options.NoTrace = true })
	r.start()
	err := r.try(order{Op: "spawn", Argv: []string{"sleep", "1000"}, Marked: true})
	if err == nil || !strings.Contains(err.Error(), "mark command") {
		t.Errorf("the weakness is not told: %v", err)
	}
	r.count("sleep", 1)
	r.stop()
}

func (r *rig) try(o order) error {
	r.t.Helper()
	if n := r.order(o); n.Err != "" {
		return fmt.Errorf("%s", n.Err)
	}
	return nil
}

// X3: clear leaves the desktop and the job's command alone, and ends every other program
// and X client, in both looks.
func TestX3Clear(t *testing.T) {
	for _, look := range []Look{LookLean, LookFull} {
		t.Run(string(look), func(t *testing.T) {
			r := newRigAt(t, "plain", func(r *rig) {
				r.options.Look = look
				r.options.Command = []string{"/bin/sh", "-c", "tail -f /dev/null & wait"}
			})
			r.start()
			r.count("tail", 1)
			must(t, r.try(order{Op: "fence"}))
			before := r.names()
			must(t, r.try(order{Op: "spawn", Argv: hiding}))
			must(t, r.try(order{Op: "spawn", Argv: []string{"xev"}}))
			r.count("xev", 1)
			r.count("sleep", 4)
			stranger := r.x() // a client of another process, with a window
			id, err := xproto.NewWindowId(stranger.conn)
			must(t, err)
			must(t, xproto.CreateWindowChecked(stranger.conn, 0, id, stranger.root, 0, 0, 1, 1, 0, xproto.WindowClassInputOnly, 0, 0, nil).Check())
			must(t, r.try(order{Op: "clear"}))
			if _, err := xproto.QueryKeymap(stranger.conn).Reply(); err == nil {
				t.Error("another process still asks the X server for keys")
			}
			if after := r.names(); !slices.Equal(before, after) {
				t.Errorf("before %v, after %v", before, after)
			}
			if n := r.order(order{Op: "windows"}); n.Err != "" {
				t.Errorf("the session lost its own connection: %s", n.Err)
			}
			r.stop()
		})
	}
}

// X3: a client that cannot be ended is told, not overlooked.
func TestX3ClearFails(t *testing.T) {
	r := newRig(t)
	r.start()
	stranger := r.x() // without a resource, and of root's process, which the session cannot end
	if err := r.try(order{Op: "clear"}); err == nil || !strings.Contains(err.Error(), "cut X clients off") {
		t.Errorf("cleared: %v", err)
	}
	stranger.close()
	must(t, r.try(order{Op: "clear"}))
	r.stop()
}
