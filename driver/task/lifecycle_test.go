// SPDX-License-Identifier: MPL-2.0

package task_test

import (
	"bytes"
	"errors"
	"fmt"
	"image/png"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/memory"
	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

func TestStartLookStop(t *testing.T) {
	n := newNode(t)
	k := n.start(n.request("walk"))
	v := k.View()
	shot, err := client(v).Screenshot(t.Context(), control.ScreenshotRequest{})
	if err != nil {
		t.Fatal(err)
	}
	img, err := png.Decode(bytes.NewReader(shot.Data))
	if err != nil || img.Bounds().Dx() != 800 || img.Bounds().Dy() != 600 {
		t.Fatalf("picture %v, %v", img.Bounds(), err)
	}
	colours := map[string]bool{}
	for y := 0; y < 600; y += 5 {
		for x := 0; x < 800; x += 5 {
			r, g, b, _ := img.At(x, y).RGBA()
			colours[fmt.Sprint(r>>8, g>>8, b>>8)] = true
		}
	}
	if len(colours) < 20 {
		t.Fatalf("a desktop with panel and wallpaper has more than %d colours", len(colours))
	}
	status, err := client(v).Status(t.Context())
	if err != nil || status.State != screen.Ready || status.Display != fmt.Sprintf(":%d", v.Display) {
		t.Fatalf("status %+v, %v", status, err)
	}
	if err := k.Stop(t.Context(), 5*time.Second, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if exit := k.Exit(); exit.Code != 0 || exit.Err != "" {
		t.Fatalf("exit %+v", exit)
	}
	n.nothingLeft(v)
	if err := k.Stop(t.Context(), 0, unix.SIGTERM); err != nil {
		t.Fatalf("a second stop: %v", err)
	}
}

// S11, N2: the session is the screen. When it is killed nothing of the desktop runs on
// and the task says why.
func TestS11SessionKilled(t *testing.T) {
	n := newNode(t)
	k := n.start(n.request("orphan"))
	v := k.View()
	x := xserver(t, v)
	if err := syscall.Kill(v.SessionPID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	await(t, "the task to end", k.Done())
	exit := k.Exit()
	if exit.Code != 137 || exit.Signal != 9 || !strings.Contains(exit.Err, "signal 9") {
		t.Fatalf("exit %+v", exit)
	}
	if x.Alive() {
		t.Fatal("the X server outlived its session")
	}
	n.nothingLeft(v)
}

// S11, P4: a dead supervisor is replaced; the new one adopts the session and the X
// server keeps its pid.
func TestS11SupervisorKilled(t *testing.T) {
	n := newNode(t)
	k := n.start(n.request("adopt"))
	for range 3 {
		before := k.View()
		x := xserver(t, before)
		if err := syscall.Kill(before.SupervisorPID, syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		awaitSupervisor(t, k, before.SupervisorPID)
		if after := xserver(t, k.View()); after != x {
			t.Fatalf("X server %v became %v", x, after)
		}
		if _, err := client(k.View()).Screenshot(t.Context(), control.ScreenshotRequest{}); err != nil {
			t.Fatalf("screenshot after the adoption: %v", err)
		}
	}
}

// S11: a supervisor that dies with its session has no successor, in whichever order they do.
func TestS11BothKilled(t *testing.T) {
	n := newNode(t)
	for range 8 {
		k := n.start(n.request("both"))
		v := k.View()
		for _, pid := range []int{v.SupervisorPID, v.SessionPID} {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Fatal(err)
			}
		}
		await(t, "the task to end", k.Done())
		n.nothingLeft(v)
	}
}

// awaitSupervisor follows the events of the successor until it says that it is ready.
func awaitSupervisor(t *testing.T, k *task.Task, old int) {
	t.Helper()
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		if k.View().SupervisorPID == old {
			<-time.After(10 * time.Millisecond) // the driver has not seen the death yet
			continue
		}
		for event, err := range client(k.View()).Events(t.Context(), 0) {
			if err != nil {
				break
			}
			if event.State == screen.Ready {
				return
			}
		}
	}
	t.Fatal("no other supervisor became ready within 20 s")
}

// N1, NMD-03: a driver that died finds its screens again, and a task that ended meanwhile
// is recovered as ended.
func TestN1DriverRestart(t *testing.T) {
	n := newNode(t)
	k := n.start(n.request("keep"))
	v := k.View()
	x := xserver(t, v)
	state, err := k.State()
	if err != nil {
		t.Fatal(err)
	}
	again := n.recovered(v.ID, state)
	n.endWithTest(again)
	if got := xserver(t, again.View()); got != x {
		t.Fatalf("X server %v became %v", x, got)
	}
	if err := n.Recover(t.Context(), v.ID, state); err != nil {
		t.Fatalf("recover what is known already: %v", err)
	}
	if result, out := run(t, again, "exit 7"); result.ExitCode != 7 {
		t.Fatalf("exec after the recovery: %+v %s", result, out)
	}
	if err := again.Stop(t.Context(), 5*time.Second, unix.SIGTERM); err != nil {
		t.Fatal(err)
	}
	n.nothingLeft(v)

	// NMD-03: the handle of a finished task recovers as finished, and starts nothing.
	n.restart()
	if err := n.Recover(t.Context(), v.ID, state); err != nil {
		t.Fatal(err)
	}
	dead, err := n.Get(v.ID)
	if err != nil {
		t.Fatal(err)
	}
	await(t, "the finished task", dead.Done())
	if exit := dead.Exit(); exit.Code != 0 || exit.Err != "" {
		t.Fatalf("exit of the finished task %+v", exit)
	}
	n.nothingLeft(v)
}

// N1, S10: a handle whose pid belongs to somebody else recovers as lost, and the
// innocent process lives on (NMD-02).
func TestNMD02ForeignPID(t *testing.T) {
	n := newNode(t)
	k := n.start(n.request("forged"))
	v := k.View()
	state, err := k.State()
	if err != nil {
		t.Fatal(err)
	}
	if err := k.Destroy(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	sleep := startSleep(t)
	forged := strings.ReplaceAll(string(state), fmt.Sprintf(`"pid":%d`, v.SessionPID), fmt.Sprintf(`"pid":%d`, sleep.Process.Pid))
	if forged == string(state) {
		t.Fatalf("no pid to forge in %s", state)
	}
	n.restart()
	if err := n.Recover(t.Context(), v.ID, []byte(forged)); err != nil {
		t.Fatal(err)
	}
	lost, err := n.Get(v.ID)
	if err != nil {
		t.Fatal(err)
	}
	if err := lost.Destroy(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if err := sleep.Process.Signal(syscall.Signal(0)); err != nil {
		t.Fatalf("the innocent process: %v", err)
	}
}

func TestRecoverRefusesRubbish(t *testing.T) {
	n := newNode(t)
	for name, state := range map[string]string{
		"empty": "", "garbage": "\x00\x01", "version 0": `{"v":0}`, "version 99": `{"v":99}`, "other task": `{"v":1,"task_id":"b"}`,
	} {
		if err := n.Recover(t.Context(), "a", []byte(state)); err == nil {
			t.Errorf("%s: recovered", name)
		}
	}
}

// D6, N1: two starts of one profile make one screen; the other is refused in words.
func TestD6OneScreenPerProfile(t *testing.T) {
	n := newNode(t)
	first, second := n.request("one"), n.request("one")
	second.AllocID = "another-alloc" // or it would be the same task once more
	var wait sync.WaitGroup
	tasks := make([]*task.Task, 2)
	errs := make([]error, 2)
	for i, request := range []task.Request{first, second} {
		wait.Add(1)
		go func() {
			defer wait.Done()
			tasks[i], errs[i] = n.Start(t.Context(), request)
		}()
	}
	wait.Wait()
	started := 0
	for i := range tasks {
		if errs[i] == nil {
			started++
			n.endWithTest(tasks[i])
			continue
		}
		var busy *task.ProfileBusyError
		if !errors.As(errs[i], &busy) || !task.Transient(errs[i]) || !strings.Contains(task.Explain(errs[i]), "in use by task") {
			t.Errorf("refusal %v", errs[i])
		}
	}
	if started != 1 {
		t.Fatalf("%d screens for one profile", started)
	}
}

// DSP-08: a second driver on the same node does not start what another one runs, and a
// new run of the same task replaces what a dead driver left (N1, checklist 45).
func TestDSP08SecondDriver(t *testing.T) {
	n := newNode(t)
	request := n.request("twice")
	k := n.start(request)
	v := k.View()
	n.restart()
	foreign := n.request("twice")
	foreign.AllocID = "another-alloc"
	if _, err := n.Start(t.Context(), foreign); err == nil || !task.Transient(err) {
		t.Fatalf("a second screen of a profile that lives: %v", err)
	}
	if !xserver(t, v).Alive() {
		t.Fatal("the refused start touched the living screen")
	}
	same := n.request("twice") // the same alloc and task, another run
	again := n.start(same)
	if exists(v.SessionPID, v) {
		t.Fatal("the orphan of the earlier run lives beside the new one")
	}
	if again.View().SessionPID == v.SessionPID {
		t.Fatal("not a new session")
	}
}

func exists(pid int, v task.View) bool {
	return strings.HasPrefix(statusField(pid, "Uid"), fmt.Sprint(v.Account.UID))
}

// D6, DSP-12, X15: twenty starts at once are twenty desktops with twenty numbers and
// uids, and nothing is left after their stop.
func TestD6TwentyAtOnce(t *testing.T) {
	if testing.Short() {
		t.Skip("twenty desktops take a while")
	}
	n := newNode(t)
	const count = 20
	tasks := make([]*task.Task, count)
	errs := make([]error, count)
	var wait sync.WaitGroup
	for i := range count {
		request := n.request(fmt.Sprintf("bot-%d", i))
		wait.Add(1)
		go func() {
			defer wait.Done()
			tasks[i], errs[i] = n.Start(t.Context(), request)
		}()
	}
	wait.Wait()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
	displays, uids := map[int]bool{}, map[uint32]bool{}
	views := make([]task.View, count)
	for i, k := range tasks {
		n.endWithTest(k)
		views[i] = k.View()
		displays[views[i].Display] = true
		uids[views[i].Account.UID] = true
		uids[views[i].SupervisorAccount] = true
		if !xserver(t, views[i]).Alive() {
			t.Errorf("screen %d has no X server", i)
		}
	}
	if len(displays) != count || len(uids) != 2*count {
		t.Fatalf("%d displays and %d uids for %d screens", len(displays), len(uids), count)
	}
	for _, k := range tasks {
		wait.Add(1)
		go func() {
			defer wait.Done()
			if err := k.Stop(t.Context(), 10*time.Second, unix.SIGTERM); err != nil {
				t.Error(err)
			}
		}()
	}
	wait.Wait()
	for _, v := range views {
		n.nothingLeft(v)
	}
	entries, err := os.ReadDir(n.settings.RunDir)
	if err != nil || len(entries) != 1 || entries[0].Name() != "node" {
		t.Fatalf("run directory after the stop: %v, %v", entries, err)
	}
}

// M5: with a floor above what is free the start is refused recoverably, with the
// figures, and takes nothing (MEM-08): the floor comes before a display number.
func TestM5FloorRefuses(t *testing.T) {
	n := newNode(t)
	request := n.request("hungry")
	request.Spec.MinFreeMemoryMB = 1 << 30
	_, err := n.Start(t.Context(), request)
	var floor *memory.FloorError
	if !errors.As(err, &floor) || !task.Transient(err) {
		t.Fatalf("error %v", err)
	}
	if text := task.Explain(err); !strings.Contains(text, "1073741824 MB asked for by `min_free_memory_mb`") {
		t.Fatalf("text %q", text)
	}
	if runs, _ := os.ReadDir(filepath.Join(n.settings.StateDir, "runs")); len(runs) > 0 {
		t.Fatal("a refused start left a record")
	}
	event := firstEvent(t, n)
	if !strings.Contains(event.Message, "Not enough memory") || event.Annotations["botscreen.event"] != "blocked" {
		t.Fatalf("event %+v", event)
	}
}

func firstEvent(t *testing.T, n *node) task.Event {
	t.Helper()
	stop := errors.New("enough")
	var first task.Event
	if err := n.Events().Follow(t.Context(), func(e task.Event) error { first = e; return stop }); !errors.Is(err, stop) {
		t.Fatal(err)
	}
	return first
}

// P1: isolations that cannot be had are refused and name the option that would allow
// them; auto never means the host.
func TestP1Refusals(t *testing.T) {
	n := newNode(t)
	for _, kind := range []screen.Isolation{screen.Auto, screen.Docker, screen.Apptainer} {
		request := n.request("policy")
		request.Spec.Isolation = kind
		_, err := n.Start(t.Context(), request)
		if err == nil {
			t.Fatalf("%s was started", kind)
		}
		if text := task.Explain(err); !strings.HasPrefix(text, "isolation_refused:") || !strings.Contains(text, "allow_unsandboxed_host") {
			t.Errorf("%s: %q", kind, text)
		}
	}
	n.settings.AllowHost = false
	n.restart()
	_, err := n.Start(t.Context(), n.request("policy"))
	if err == nil || !strings.Contains(task.Explain(err), "allow_unsandboxed_host = true") {
		t.Fatalf("raw host without leave: %v", err)
	}
	if _, err := os.Stat(filepath.Join(n.settings.StateDir, "data")); err == nil {
		t.Error("a refused start made directories")
	}
}

// DSP-10, NMD-23, S7: a start that fails in the middle leaves nothing, and the next one
// works without cleaning by hand.
func TestNMD23FailedStart(t *testing.T) {
	n := newNode(t)
	k := n.start(n.request("broken"))
	v := k.View()
	home := filepath.Join(n.settings.StateDir, "data", "default", "broken")
	if err := k.Destroy(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	// The profile's configuration cannot be read: the desktop refuses to come up.
	config := filepath.Join(home, ".config")
	if err := os.Rename(config, config+".away"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(config, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := n.Start(t.Context(), n.request("broken"))
	var failed *task.StartError
	if !errors.As(err, &failed) || failed.Reason == "" {
		t.Fatalf("error %v", err)
	}
	n.nothingLeft(v)
	if err := errors.Join(os.Remove(config), os.Rename(config+".away", config)); err != nil {
		t.Fatal(err)
	}
	n.start(n.request("broken"))
}

// S9, DSP-16, NMD-13: programs that ignore TERM or leave the session's group end too.
func TestS9StopEndsAll(t *testing.T) {
	n := newNode(t)
	k := n.start(n.request("stubborn"))
	v := k.View()
	for _, script := range []string{
		`(trap "" TERM; exec setsid sleep 600) >/dev/null 2>&1 </dev/null &`,
		`setsid setsid sh -c 'trap "" TERM HUP INT; while :; do sleep 600; done' >/dev/null 2>&1 </dev/null &`,
	} {
		if result, out := run(t, k, script); result.ExitCode != 0 {
			t.Fatalf("%+v %s", result, out)
		}
	}
	if err := k.Stop(t.Context(), time.Second, unix.SIGINT); err != nil {
		t.Fatal(err)
	}
	n.nothingLeft(v)
}
