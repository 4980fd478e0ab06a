// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/botscreen/botscreen/shared/audit"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// audited is the screen's verified audit file.
func (r *rig) audited() []audit.Entry {
	r.t.Helper()
	text, headText, err := r.client.Audit(r.t.Context())
	must(r.t, err)
	head, err := audit.ParseHead(headText)
	must(r.t, err)
	entries, err := audit.Verify(text, head)
	must(r.t, err)
	if strings.Contains(string(text), "ann-secret") {
		r.t.Error("the file names a viewer by what makes it one")
	}
	return entries
}

// X39: who took and gave, through which door, with the epochs and who watched, is in the
// file, in one chain over two supervisors.
func TestX39WhoHadTheScreen(t *testing.T) {
	r, _ := newViewable(t)
	bob, err := r.view(control.Hello{Viewer: "bob", Mode: control.Watch})
	must(t, err)
	bob.send()
	taken := r.take("ann-secret")
	back := r.release("ann-secret")
	r.take("ann-secret")
	_, err = r.client.Release(t.Context(), control.ReleaseRequest{Force: true})
	must(t, err)
	r.end()
	next := newRigIn(t, r.dir, r.config)
	entries := next.audited()
	var acts []string
	for _, e := range entries {
		acts = append(acts, fmt.Sprint(e.Act, " ", e.Door))
	}
	want := []string{"supervisor_began time", "viewer_came exec", "taken operator", "handed_back operator", "taken operator", "handed_back operator", "supervisor_began time"}
	if !slices.Equal(acts, want) {
		t.Fatalf("acts %q, want %q", acts, want)
	}
	take, give := entries[2], entries[3]
	ann := lease.ViewerID("ann-secret").Handle()
	if take.Viewer != ann || take.UID == nil || *take.UID != os.Geteuid() || take.After != taken.Epoch || take.Before >= take.After ||
		!slices.Contains(take.Watchers, lease.ViewerID("bob").Handle()) || take.Reason.String() != "a captcha" {
		t.Errorf("the takeover reads %+v", take)
	}
	if give.Viewer != ann || give.Before != taken.Epoch || give.After != back.Epoch {
		t.Errorf("the hand-back reads %+v", give)
	}
}

// X39: fifty takes at once leave one unbroken chain.
func TestX39FiftyTakes(t *testing.T) {
	r := newRig(t, nil)
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			_, err := r.client.Take(t.Context(), control.TakeRequest{Viewer: lease.ViewerID(fmt.Sprint("v", i))})
			if err != nil && !isKind(err, control.Busy) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	entries := r.audited()
	last := lease.Epoch(0)
	takes := 0
	for _, e := range entries {
		if e.Act == audit.Taken {
			takes++
			if e.Before < last || e.After <= e.Before {
				t.Errorf("line %d goes from %d to %d after %d", e.Seq, e.Before, e.After, last)
			}
			last = e.After
		}
	}
	if held := r.leaseNow(); takes == 0 || held.Epoch != last {
		t.Errorf("%d takes to epoch %d, the lease has %d", takes, last, held.Epoch)
	}
}

// X39: a file from which the newest lines were cut is found, by the screen's record.
func TestX39CutFile(t *testing.T) {
	r := newRig(t, nil)
	r.take("ann")
	r.release("ann")
	r.end()
	path := filepath.Join(r.dir, audit.Name)
	text, err := os.ReadFile(path)
	must(t, err)
	lines := strings.SplitAfter(string(text), "\n")
	must(t, os.WriteFile(path, []byte(strings.Join(lines[:1], "")), 0o600))
	dir, err := os.OpenRoot(r.dir)
	must(t, err)
	defer dir.Close()
	saved, _, err := loadRecord(dir, r.config.Instance)
	must(t, err)
	if _, err := audit.Verify([]byte(lines[0]), saved.Audit); err == nil {
		t.Error("the cut is not found")
	}
	next := newRigIn(t, r.dir, r.config)
	if entries := next.audited(); len(entries) != 2 || !strings.Contains(entries[1].Reason.String(), "is missing") {
		t.Errorf("the next supervisor's file: %+v", entries)
	}
}

// X36: a file that takes no line keeps nobody from taking over, and the status says so.
func TestX36AuditTrouble(t *testing.T) {
	r := newRig(t, nil)
	path := filepath.Join(r.dir, audit.Name)
	must(t, os.Rename(path, path+".aside"))
	must(t, os.Mkdir(path, 0o700))
	r.forgive()
	if held := r.take("ann"); held.Holder != lease.Human {
		t.Errorf("the lease is %+v", held)
	}
	status, err := r.client.Status(t.Context())
	must(t, err)
	if !slices.ContainsFunc(status.Warnings, func(w string) bool { return strings.Contains(w, "not written down") }) {
		t.Errorf("warnings %q", status.Warnings)
	}
	must(t, os.Remove(path))
	must(t, os.Rename(path+".aside", path))
	r.release("ann")
	if entries := r.audited(); entries[len(entries)-1].Lost != 1 {
		t.Errorf("the last line is %+v", entries[len(entries)-1])
	}
}

// Only an operator reads the file.
func TestAuditIsTheOperators(t *testing.T) {
	route, ok := control.RouteOf(control.CallAudit)
	if !ok || !slices.Equal(route.Roles, []screen.Role{screen.RoleOperator}) {
		t.Errorf("the route is %+v", route)
	}
}
