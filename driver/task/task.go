// SPDX-License-Identifier: MPL-2.0

package task

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// Exit is how a task ended, in Nomad's terms.
type Exit struct {
	Code   int       `json:"code"`
	Signal int       `json:"signal,omitempty"`
	OOM    bool      `json:"oom,omitempty"`
	Err    string    `json:"err,omitempty"` // why, where it was not asked for
	At     time.Time `json:"at"`
}

// Task is one run of a screen that this process manages. A recovered task is no
// different from one it started.
type Task struct {
	m       *Manager
	places  places
	sandbox isolation.Sandbox // nil when the task had ended before it was recovered
	client  *control.Client
	done    chan struct{} // closed when nothing of the run is left and exit is final

	mu       sync.Mutex // guards all below
	record   runRecord
	sup      *supervisor
	stopping bool // its end was asked for
	forced   bool // SIGKILL was our own
	// finishing says that the session has ended and no supervisor is started any more.
	finishing bool
	exit      Exit
	lease     control.Event // its holder and epoch are those last heard of
	last      screen.State  // the one last heard of
	auth      screen.RegistryAuth
}

// state is the screen's as it was last heard of: a screen is followed once it is ready.
func (t *Task) state() screen.State {
	t.mu.Lock()
	defer t.mu.Unlock()
	return cmp.Or(t.last, screen.Ready)
}

// follow puts a launched run under management.
func (m *Manager) follow(r runRecord, sandbox isolation.Sandbox, sup *supervisor, seen uint64) *Task {
	t := &Task{
		m: m, places: m.settings.places(r.id()), sandbox: sandbox, record: r, sup: sup,
		done: make(chan struct{}),
	}
	t.client = control.NewClient(control.Unix(t.places.op))
	m.add(t)
	ctx, cancel := context.WithCancel(context.Background())
	go t.followEvents(ctx, seen)
	go t.watchMemory(ctx)
	go func() {
		defer cancel()
		t.supervise()
		t.finish()
	}()
	return t
}

// finished is a task of which nothing runs any more.
func (m *Manager) finished(r runRecord, exit Exit) *Task {
	t := &Task{m: m, places: m.settings.places(r.id()), record: r, exit: exit, done: make(chan struct{})}
	close(t.done)
	m.add(t)
	return t
}

func (t *Task) over() bool {
	select {
	case <-t.done:
		return true
	default:
		return false
	}
}

// ending says whether the end of the screen was asked for, or has begun by itself.
func (t *Task) ending() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.stopping || t.finishing
}

// Done is closed when the task has ended.
func (t *Task) Done() <-chan struct{} { return t.done }

// Exit is how the task ended; it is final after Done.
func (t *Task) Exit() Exit {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.exit
}

// View is what can be said of a task.
type View struct {
	ID                ID
	Name              string
	Started           time.Time
	Isolation         screen.Isolation
	Profile           screen.Profile
	Display           int
	SessionPID        int
	SupervisorPID     int
	OperatorSocket    string
	Instance          string
	Account           isolation.Account
	Exec              screen.ExecPolicy
	Running           bool
	ControlDir        string
	SupervisorAccount uint32
}

// View describes the task now.
func (t *Task) View() View {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := t.record
	return View{
		ID: r.TaskID, Name: r.TaskName, Started: r.Started, Isolation: r.Isolation, Profile: r.Profile,
		Display: r.Display, SessionPID: r.Sandbox.Session.PID, SupervisorPID: r.Supervisor.PID,
		OperatorSocket: t.places.op, Instance: r.Instance, Account: r.Account, Exec: r.Exec, Running: !t.over(),
		ControlDir: t.places.control, SupervisorAccount: r.SupervisorUID,
	}
}

// followEvents turns the supervisor's events into task events, across supervisors.
func (t *Task) followEvents(ctx context.Context, seen uint64) {
	for ctx.Err() == nil {
		t.noteLease(ctx) // what was said while nobody listened
		for event, err := range t.client.Events(ctx, seen) {
			if err != nil {
				break
			}
			seen = event.Seq
			t.hear(event)
			t.announce(event)
		}
		select { // a supervisor that has just died is being replaced
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
}

func (t *Task) noteLease(ctx context.Context) {
	if held, err := t.client.Lease(ctx); err == nil {
		t.hear(control.Event{Holder: held.Holder, Epoch: held.Epoch})
	}
}

// hear keeps who holds the screen, for its last event and for the profile's next run.
func (t *Task) hear(e control.Event) {
	t.mu.Lock()
	t.lease = control.Event{Holder: e.Holder, Epoch: e.Epoch}
	if e.State != "" {
		t.last = e.State
	}
	id := t.record.id()
	t.mu.Unlock()
	t.m.noteEpoch(id, uint64(e.Epoch))
}

// announce says what is news to an operator. How a screen ended is said once, by finish.
func (t *Task) announce(e control.Event) {
	if e.State == screen.Failed || e.State == screen.Stopped {
		return
	}
	message := ""
	switch e.Name {
	case control.EventReady:
		message = "Desktop adopted by a new supervisor"
	case control.EventAsleep:
		message = "Asleep" + because(e)
	case control.EventFrozen:
		message = "Frozen" + because(e)
	case control.EventWoken:
		message = "Desktop woken " + e.Reason.String()
		t.noteDisplay()
	case control.EventBlocked:
		message = "Not woken" + because(e)
	case control.EventFence:
		message = "Fence " + string(e.Fence) + because(e)
	case control.EventRestarted:
		message = "Restarted a program of the desktop: " + e.Reason.String()
	case control.EventAgentDoor:
		message = e.Reason.String()
	case control.EventHumanWanted:
		message = "The agent asks for a person" + because(e)
	case control.EventTaken:
		message = "A person took control" + because(e)
	case control.EventHandedBack:
		message = "Control was handed back to the agent"
	case control.EventHumanAway:
		message = "The person in control left without handing back"
	default:
		return
	}
	t.mu.Lock()
	r := t.record
	t.mu.Unlock()
	t.m.publish(&r, message, e)
}

// noteDisplay keeps the number that a woken desktop has: it may be another one than
// before, and what is left of it at the end is tidied by it.
func (t *Task) noteDisplay() {
	ctx, cancel := context.WithTimeout(context.Background(), exitLimit)
	defer cancel()
	status, err := t.client.Status(ctx)
	var number int
	if err == nil {
		_, err = fmt.Sscanf(status.Display, ":%d", &number)
	}
	if err != nil {
		return // it sleeps again, or its supervisor has died
	}
	t.mu.Lock()
	changed := t.record.Display != number
	t.record.Display = number
	r := t.record
	t.mu.Unlock()
	if changed {
		t.complain(&r, "keep the display of the woken desktop", t.m.runs.save(r.id().Hash(), r))
	}
}

func because(e control.Event) string {
	if e.Reason.String() == "" {
		return ""
	}
	return ": " + e.Reason.String()
}

// supervise replaces supervisors that die until the session has ended.
func (t *Task) supervise() {
	for failures := 0; ; {
		t.mu.Lock()
		sup := t.sup
		t.mu.Unlock()
		var gone <-chan struct{}
		if sup != nil {
			gone = sup.handle.Done()
		}
		began := time.Now()
		select {
		case <-t.sandbox.Done():
			return
		case <-gone:
		}
		if t.ended() {
			return // both have, and select takes either
		}
		if time.Since(began) > time.Minute {
			failures = 0
		}
		failures++
		t.replaceSupervisor(failures)
	}
}

// ended reports whether the session has.
func (t *Task) ended() bool {
	select {
	case <-t.sandbox.Done():
		return true
	default:
		return false
	}
}

// replaceSupervisor starts another one; after repeated failures it waits longer, while
// the desktop runs on.
func (t *Task) replaceSupervisor(failures int) {
	t.mu.Lock()
	r := t.record
	t.mu.Unlock()
	t.m.log.Warn("the supervisor died; starting another one", "profile", r.Profile, "pid", r.Supervisor.PID)
	wait := min(time.Duration(failures-1)*500*time.Millisecond, 30*time.Second)
	select {
	case <-time.After(wait):
	case <-t.sandbox.Done():
	}
	if t.ended() {
		return
	}
	sup, err := t.m.launchSupervisor(&r, t.places, nil)
	if err != nil {
		t.m.log.Error("cannot start another supervisor", "profile", r.Profile, "error", err)
		sup = nil
	}
	t.mu.Lock()
	if t.finishing { // nobody would end it
		t.mu.Unlock()
		t.complain(&r, "end supervisor", endSupervisor(sup))
		t.clear(&r)
		return
	}
	if t.sup != nil {
		_ = t.sup.handle.Close()
	}
	t.sup = sup
	if sup != nil {
		t.record.Supervisor = sup.identity
	}
	r = t.record
	t.mu.Unlock()
	if err := t.m.runs.save(r.id().Hash(), r); err != nil {
		t.m.log.Error("cannot save the run's record", "profile", r.Profile, "error", err)
	}
}

// finish removes everything of the run and makes the exit final.
func (t *Task) finish() {
	exit := t.collectExit()
	t.mu.Lock()
	r, sup := t.record, t.sup
	t.sup, t.finishing = nil, true
	t.mu.Unlock()
	t.complain(&r, "end what is left of the screen", endSandbox(t.sandbox))
	t.complain(&r, "end supervisor", endSupervisor(sup))
	t.complain(&r, "keep result", t.m.results.save(r.Instance, endRecord{V: recordVersion, AllocDir: r.AllocDir, Exit: exit}))
	t.clear(&r)
	t.mu.Lock()
	t.exit = exit
	t.mu.Unlock()
	t.client.Close()
	t.m.release(r.TaskID, r.id().Hash())
	t.announceEnd(&r, exit)
	close(t.done)
}

// clear removes what the screen's next run will have too. Where another driver process has
// begun that run already, it is that one's.
func (t *Task) clear(r *runRecord) {
	hash := r.id().Hash()
	turn, err := t.m.lockScreen(context.Background(), hash)
	if err != nil {
		t.complain(r, "wait for the screen's turn", err)
		return // the next run clears it
	}
	defer turn.Release()
	var current runRecord
	if t.m.runs.load(hash, &current) == nil && current.Instance != r.Instance {
		t.m.log.Info("another driver process has this screen now", "profile", r.Profile)
		return
	}
	t.complain(r, "tidy display", t.m.tidyDisplay(r.Display))
	t.complain(r, "remove run directory", t.places.removeRun())
	t.complain(r, "remove agent's socket", r.removeAgentDoor())
	t.complain(r, "remove record", t.m.runs.remove(hash))
}

// complain logs what went wrong in a clean-up, which goes on all the same.
func (t *Task) complain(r *runRecord, step string, err error) {
	if err != nil {
		t.m.log.Error("clean-up of a screen", "step", step, "profile", r.Profile, "error", err)
	}
}

func (t *Task) announceEnd(r *runRecord, exit Exit) {
	publish := func(state screen.State, message, reason string) {
		e := stateOnly(state, control.EventState, reason)
		t.mu.Lock()
		e.Holder, e.Epoch = t.lease.Holder, t.lease.Epoch // the lease outlives the screen (L11)
		t.mu.Unlock()
		t.m.publish(r, message, e)
	}
	if exit.Code == 0 {
		message := "Desktop stopped"
		if exit.Err != "" {
			message += ": " + exit.Err
		}
		publish(screen.Stopped, message, exit.Err)
		return
	}
	message := exit.Err
	if message == "" {
		message = fmt.Sprintf("the screen was killed by signal %d", exit.Signal)
	}
	publish(screen.Failed, "Screen ended: "+message, message)
}

func endSupervisor(sup *supervisor) error {
	sup.end()
	return nil
}

// endRecord keeps how a run ended, for an agent that asks again after its own restart.
type endRecord struct {
	V        int    `json:"v"`
	AllocDir string `json:"alloc_dir"`
	Exit     Exit   `json:"exit"`
}

// collectExit puts together what the kernel, the supervisor and this process know.
func (t *Task) collectExit() Exit {
	ctx, cancel := context.WithTimeout(context.Background(), exitLimit)
	defer cancel()
	told, err := t.client.Wait(ctx)
	status, parent := t.sandbox.Status()
	t.mu.Lock()
	forced := t.forced
	t.mu.Unlock()
	exit := Exit{At: time.Now().UTC()}
	switch {
	case forced:
		exit.Code, exit.Signal = 137, 9
	case err == nil && !told.Lost:
		exit.Code, exit.Err = told.Code, told.Reason.String()
	case parent:
		exit.Code, exit.Signal, exit.Err = status.Code, status.Signal, describeStatus(status)
	default:
		exit.Code, exit.Err = -1, "the session process was killed from outside or crashed; how is not known, because the driver was restarted since it started it"
	}
	if explainer, ok := t.sandbox.(isolation.Explainer); ok && exit.Code != 0 && !forced {
		if reason := explainer.EndReason(); reason != "" {
			exit.Err = reason
		}
	}
	// A screen that was stopped did not end of it, whatever the kernel has taken from it before.
	if exit.Code != 0 && !forced && t.sandbox.OOMKilled() {
		exit.OOM = true
		exit.Err = "out of memory: the kernel killed a process of the screen. " + exit.Err
	}
	return exit
}
