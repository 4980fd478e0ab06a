// SPDX-License-Identifier: MPL-2.0

package task

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/supervise"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// S5, X21: what of a task's environment a desktop sees.
func TestS5Environment(t *testing.T) {
	order := environmentOrder{
		task: map[string]string{
			"FROM_JOB": "1", "FROM_NODE": "n", "CHANGED": "job", "NOMAD_ALLOC_ID": "a", "NOMAD_TOKEN": "t", "NOMAD_TOKEN_vault": "t",
			"VAULT_ADDR": "v", "NOMAD_UNIX_ADDR": "u", "NOMAD_SECRETS_DIR": "s", "DISPLAY": ":0", "HOME": "/root", "WANTED": "w",
			"DBUS_SESSION_BUS_ADDRESS": "x", "NUL": "a\x00b", "": "empty", "A=B": "c",
		},
		node:    []string{"FROM_NODE=n", "CHANGED=node", "WANTED=w", "NOMAD_TOKEN=t"},
		passEnv: []string{"WANTED", "NOMAD_TOKEN"},
	}
	want := []string{"CHANGED=job", "FROM_JOB=1", "NOMAD_ALLOC_ID=a", "WANTED=w"}
	if got := environment(order); !slices.Equal(got, want) {
		t.Errorf("environment %q, want %q", got, want)
	}
	order.exposeSecrets = true
	want = []string{"CHANGED=job", "FROM_JOB=1", "NOMAD_ALLOC_ID=a", "NOMAD_SECRETS_DIR=s", "NOMAD_TOKEN=t", "NOMAD_TOKEN_vault=t", "NOMAD_UNIX_ADDR=u", "VAULT_ADDR=v", "WANTED=w"}
	if got := environment(order); !slices.Equal(got, want) {
		t.Errorf("with secrets %q, want %q", got, want)
	}
}

// The two forms of the supervisor's configuration must be one: this package executes
// the supervisor without importing it.
func TestSupervisorConfigForm(t *testing.T) {
	ours, theirs := reflect.TypeFor[supervisorConfig](), reflect.TypeFor[supervise.Config]()
	if ours.NumField() != theirs.NumField() {
		t.Fatalf("%d fields here, %d there", ours.NumField(), theirs.NumField())
	}
	for i := range ours.NumField() {
		a, b := ours.Field(i), theirs.Field(i)
		if a.Name != b.Name || a.Type != b.Type || a.Tag != b.Tag {
			t.Errorf("%s %s %q here, %s %s %q there", a.Name, a.Type, a.Tag, b.Name, b.Type, b.Tag)
		}
	}
}

// Errors reach the task's events as sentences.
func TestExplain(t *testing.T) {
	for want, err := range map[string]error{
		"Cannot start the screen: 2 faults in the job. geometry: \"0x0\" is wrong; depth: is wrong.": fmt.Errorf("x: %w",
			screen.Faults{{Field: "geometry", Value: "0x0", Want: "is wrong"}, {Field: "depth", Want: "is wrong"}}),
		"isolation_refused: no.":                       &RefusedError{Reason: "no"},
		"Cannot start the screen: Xvnc said no.":       &StartError{Reason: "Xvnc said no"},
		"Cannot start the screen: open state: denied.": errors.New("open state: denied"),
		"Cannot start the screen: the profile's screen is in use by task t. A profile has one screen at a time: stop that task, or give this job another profile.": &ProfileBusyError{Task: "t"},
	} {
		if got := Explain(err); got != want {
			t.Errorf("got  %q\nwant %q", got, want)
		}
	}
}

// X19: a job never gets more of exec than the operator allows.
func TestX19ExecBounds(t *testing.T) {
	operator, viewer := screen.ExecPolicy{Shell: true, Role: screen.RoleOperator}, screen.ExecPolicy{Role: screen.RoleViewer}
	if got := boundExec(operator, viewer); got != viewer {
		t.Errorf("bounded to %+v", got)
	}
	if got := boundExec(viewer, operator); got != viewer {
		t.Errorf("a modest job got %+v", got)
	}
}

// Events wait for a reader, oldest dropped, and never a task for them.
func TestEventsWithoutReader(t *testing.T) {
	events := newEvents()
	for i := range keptEvents + 10 {
		events.publish(Event{Message: fmt.Sprint(i)})
	}
	enough := errors.New("enough")
	var got []string
	follow := func(most int) {
		err := events.Follow(t.Context(), func(e Event) error {
			if len(got) == most {
				return enough
			}
			got = append(got, e.Message)
			return nil
		})
		if !errors.Is(err, enough) {
			t.Fatal(err)
		}
	}
	follow(3)
	follow(5) // a second reader goes on where the first stopped
	if want := []string{"10", "11", "12", "13", "14"}; !slices.Equal(got, want) {
		t.Fatalf("read %v, want %v", got, want)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := events.Follow(ctx, func(Event) error { return nil }); err != nil && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// wire.md section 4: every event carries the whole picture, and nothing empty.
func TestAnnotations(t *testing.T) {
	r := &runRecord{Profile: "bot", Isolation: screen.Host}
	got := annotate(r, control.Event{Name: control.EventTaken, State: screen.Ready, Holder: "human", Epoch: 42, Fence: control.Enforced})
	want := map[string]string{
		"botscreen.state": "ready", "botscreen.event": "taken", "botscreen.profile": "bot", "botscreen.isolation": "host",
		"botscreen.holder": "human", "botscreen.epoch": "42", "botscreen.fence": "enforced",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("annotations %v, want %v", got, want)
	}
}

// Checklist 88: a screen whose allocation is gone is ended after the grace, not before.
func TestReapLost(t *testing.T) {
	if !privileged() {
		t.Skip("needs root: records belong to root")
	}
	dir := t.TempDir()
	settings := Settings{StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), Executable: os.Args[0]}
	m := New(settings, nil, nil, hclog.NewNullLogger())
	alloc := filepath.Join(dir, "alloc")
	if err := os.Mkdir(alloc, 0o755); err != nil {
		t.Fatal(err)
	}
	r := runRecord{V: recordVersion, Namespace: "default", Profile: "lost", TaskID: "a/b/c", AllocDir: alloc, Isolation: screen.Host}
	hash := r.id().Hash()
	if err := m.runs.save(hash, r); err != nil {
		t.Fatal(err)
	}
	missing := map[string]time.Time{}
	now := time.Now()
	recorded := func() bool { return m.runs.load(hash, &runRecord{}) == nil }
	m.reapOnce(t.Context(), missing, now)
	if len(missing) != 0 {
		t.Fatal("an allocation that is there counts as gone")
	}
	if err := os.Remove(alloc); err != nil {
		t.Fatal(err)
	}
	m.reapOnce(t.Context(), missing, now)
	m.reapOnce(t.Context(), missing, now.Add(reapGrace-time.Second))
	if !recorded() {
		t.Fatal("ended within the grace")
	}
	m.reapOnce(t.Context(), missing, now.Add(reapGrace+time.Second))
	if recorded() {
		t.Fatal("not ended after the grace")
	}
}

// refusing is a boundary that its node cannot use.
type refusing struct{ isolation.Boundary }

func (refusing) Kind() screen.Isolation         { return screen.Docker }
func (refusing) Refusal(context.Context) string { return "the engine is away" }

// stuck is a boundary whose sandboxes are not to be had.
type stuck struct{ isolation.Boundary }

func (stuck) Kind() screen.Isolation { return screen.Docker }
func (stuck) Adopt(context.Context, isolation.Record) (isolation.Sandbox, error) {
	return nil, fmt.Errorf("kill session: pid 12 still runs: %w", context.DeadlineExceeded)
}

// M5, issue 7: what a run left that a busy node has not ended within the limit is no reason to
// give the task up.
func TestLeftoversThatStay(t *testing.T) {
	if !privileged() {
		t.Skip("needs root: records belong to root")
	}
	dir := t.TempDir()
	m := New(Settings{StateDir: dir, RunDir: dir}, []isolation.Boundary{stuck{}}, nil, hclog.NewNullLogger())
	s := &start{m: m, request: Request{AllocID: "a", TaskName: "b", Namespace: "default", Spec: screen.Spec{Profile: "bot"}}}
	old := runRecord{V: recordVersion, Namespace: "default", Profile: "bot", TaskID: "a/b/c", AllocID: "a", TaskName: "b", Isolation: screen.Docker}
	if err := m.runs.save(old.id().Hash(), old); err != nil {
		t.Fatal(err)
	}
	err := s.clearLeftovers(t.Context())
	if err == nil || !Transient(err) {
		t.Errorf("error %v, transient %v", err, Transient(err))
	}
	want := "Cannot start the screen: what an earlier run of this screen left could not be removed " +
		"(kill session: pid 12 still runs: context deadline exceeded). It is tried again by the job's restart policy."
	if got := Explain(err); got != want {
		t.Errorf("it says %q, want %q", got, want)
	}
}

// M5: Nomad tries again after an engine that is away, never against a node's policy.
func TestRefusalsThatPass(t *testing.T) {
	dir := t.TempDir()
	settings := Settings{StateDir: dir, RunDir: dir, Order: []screen.Isolation{screen.Docker, screen.Host}}
	m := New(settings, []isolation.Boundary{refusing{}}, nil, hclog.NewNullLogger())
	for wanted, transient := range map[screen.Isolation]bool{
		screen.Docker: true, screen.Auto: true, screen.Host: false, screen.Apptainer: false,
	} {
		if _, err := m.chooseIsolation(t.Context(), wanted, nil); err == nil || Transient(err) != transient {
			t.Errorf("%s: error %v, transient %v, want %v", wanted, err, Transient(err), transient)
		}
	}
}

// works is a boundary that can be had.
type works struct {
	isolation.Boundary
	kind screen.Isolation
}

func (w works) Kind() screen.Isolation { return w.kind }

// P1: what a job lets `auto` choose is a wall, and the order is the job's: a node that would
// rather have something else, or the host, does not give it to this job.
func TestP1JobsOrder(t *testing.T) {
	dir := t.TempDir()
	const docker, apptainer, host = screen.Docker, screen.Apptainer, screen.Host
	kinds := func(k ...screen.Isolation) []screen.Isolation { return k }
	for name, tc := range map[string]struct {
		node, job []screen.Isolation
		allowHost bool
		want      screen.Isolation // empty: refused
	}{
		"the node's":               {kinds(docker, apptainer, host), nil, true, apptainer},
		"the job's":                {kinds(apptainer, host), kinds(host, apptainer), true, host},
		"not what is left":         {kinds(docker, apptainer, host), kinds(docker), true, ""},
		"the host is not allowed":  {kinds(host), kinds(docker, host), false, ""},
		"the host by both":         {kinds(docker), kinds(docker, host), true, host},
		"never more than the node": {kinds(docker), nil, true, ""},
	} {
		settings := Settings{StateDir: dir, RunDir: dir, Order: tc.node, AllowHost: tc.allowHost}
		m := New(settings, []isolation.Boundary{refusing{}, works{kind: apptainer}, works{kind: host}}, nil, hclog.NewNullLogger())
		got, err := m.chooseIsolation(t.Context(), screen.Auto, tc.job)
		if got != tc.want || (err == nil) != (tc.want != "") {
			t.Errorf("%s: %q, %v, want %q", name, got, err, tc.want)
		}
	}
}

// sweeping is a boundary with sandboxes, by instance, of which it is asked to let go.
type sweeping struct {
	isolation.Boundary
	left   map[string]bool
	images map[string]bool // that it has fetched
}

func (b *sweeping) SweepImages(_ context.Context, keep func(string) bool, grace time.Duration) ([]string, error) {
	if grace != imageGrace {
		return nil, fmt.Errorf("grace %v", grace)
	}
	for image := range b.images {
		if !keep(image) {
			delete(b.images, image)
		}
	}
	return nil, nil
}

func (*sweeping) Kind() screen.Isolation { return screen.Docker }

func (b *sweeping) Sweep(_ context.Context, keep func(string) bool, grace time.Duration) ([]string, error) {
	if grace != reapGrace {
		return nil, fmt.Errorf("grace %v", grace)
	}
	for instance := range b.left {
		if !keep(instance) {
			delete(b.left, instance)
		}
	}
	return nil, nil
}

// A sandbox without a record goes, and an image that no record names; with a record that
// cannot be read, every one stays.
func TestSweepKeepsWhatMayBeKnown(t *testing.T) {
	if !privileged() {
		t.Skip("needs root: records belong to root")
	}
	dir := t.TempDir()
	boundary := &sweeping{left: map[string]bool{"known": true, "lost": true}, images: map[string]bool{"running": true, "decided": true, "old": true}}
	m := New(Settings{StateDir: dir, RunDir: filepath.Join(dir, "run")}, []isolation.Boundary{boundary}, nil, hclog.NewNullLogger())
	if err := m.runs.save("one", runRecord{V: recordVersion, Instance: "known", Image: "running"}); err != nil {
		t.Fatal(err)
	}
	if err := m.profiles.save("one", profileRecord{V: recordVersion, Image: &imageRecord{Image: "decided"}}); err != nil {
		t.Fatal(err)
	}
	for dir, untouched := range map[string]func() bool{
		string(m.runs):     func() bool { return len(boundary.left) == 2 && len(boundary.images) == 3 },
		string(m.profiles): func() bool { return len(boundary.images) == 3 },
	} {
		unreadable := filepath.Join(dir, "two.json")
		if err := os.WriteFile(unreadable, []byte(`{"v":99}`), 0o600); err != nil {
			t.Fatal(err)
		}
		boundary.left["lost"] = true
		m.sweep(t.Context())
		if !untouched() {
			t.Fatalf("left %v and %v beside a record of %s that cannot be read", boundary.left, boundary.images, dir)
		}
		if err := os.Remove(unreadable); err != nil {
			t.Fatal(err)
		}
	}
	m.sweep(t.Context())
	if want := map[string]bool{"known": true}; !reflect.DeepEqual(boundary.left, want) {
		t.Errorf("left %v, want %v", boundary.left, want)
	}
	if want := map[string]bool{"running": true, "decided": true}; !reflect.DeepEqual(boundary.images, want) {
		t.Errorf("images left %v, want %v", boundary.images, want)
	}
}

// DSP-08: a driver that sees its screen end leaves alone what another driver process has
// begun in its place.
func TestDSP08ClearAfterReplacement(t *testing.T) {
	if !privileged() {
		t.Skip("needs root: records belong to root")
	}
	dir := t.TempDir()
	m := New(Settings{StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), Executable: os.Args[0]}, nil, nil, hclog.NewNullLogger())
	if err := m.prepare(); err != nil {
		t.Fatal(err)
	}
	ours := runRecord{V: recordVersion, Namespace: "default", Profile: "twice", Instance: "one"}
	theirs := ours
	theirs.Instance = "two"
	k := &Task{m: m, places: m.settings.places(ours.id())}
	hash := ours.id().Hash()
	if err := os.MkdirAll(k.places.op, 0o700); err != nil {
		t.Fatal(err)
	}
	left := func() bool {
		_, err := os.Stat(k.places.op)
		return err == nil && m.runs.load(hash, &runRecord{}) == nil
	}
	if err := m.runs.save(hash, theirs); err != nil {
		t.Fatal(err)
	}
	if k.clear(&ours); !left() {
		t.Fatal("another driver's run was cleared away")
	}
	if k.clear(&theirs); left() {
		t.Fatal("a run's own places are left")
	}
}

func FuzzDecodeRecord(f *testing.F) {
	good, err := json.Marshal(runRecord{V: recordVersion, Profile: "p"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte(`{"v":2}`))
	f.Add([]byte(strings.Repeat("[", 100)))
	f.Fuzz(func(t *testing.T, text []byte) {
		var r runRecord
		if decodeRecord(text, &r) == nil && r.V != recordVersion {
			t.Fatalf("accepted version %d", r.V)
		}
	})
}

// Who had to wait for its turn says so to its session.
func TestPlanOfACrowdedStart(t *testing.T) {
	for _, crowded := range []bool{false, true} {
		s := &start{m: &Manager{}, crowded: crowded}
		if plan := s.plan(); plan.Crowded != crowded {
			t.Errorf("crowded %v: the plan says %v", crowded, plan.Crowded)
		}
	}
}
