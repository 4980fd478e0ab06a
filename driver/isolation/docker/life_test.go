// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/isolation"
)

// P3: somebody removes the container of a live screen.
func TestP3RemovedFromOutside(t *testing.T) {
	b := boundary(t)
	s := launched(t, b, newOrder(t, emptyImage(t, b)))
	must(t, b.discard(t.Context(), s.record.Container))
	awaitDone(t, s)
	if _, ok := s.Status(); ok {
		t.Error("a status is known that nobody has")
	}
	if reason := s.EndReason(); !strings.Contains(reason, "gone") || !strings.Contains(reason, "Start the screen again") {
		t.Errorf("the reason is %q", reason)
	}
}

// Status and reason are the engine's, also for a driver that did not launch it.
func TestStatusAfterAdoption(t *testing.T) {
	b := boundary(t)
	s := launched(t, b, newOrder(t, emptyImage(t, b)))
	adopted, err := b.Adopt(bounded(t), s.Record())
	must(t, err)
	must(t, unix.Kill(s.record.Session.PID, unix.SIGKILL)) // DOC-05: from the node
	for _, each := range []isolation.Sandbox{s, adopted} {
		awaitDone(t, each)
		if status, ok := each.Status(); !ok || status != killed {
			t.Errorf("%+v %t", status, ok)
		}
		if each.OOMKilled() {
			t.Error("taken for a death by memory")
		}
	}
	late, err := b.Adopt(bounded(t), s.Record())
	must(t, err)
	awaitDone(t, late)
	if status, ok := late.Status(); !ok || status != killed {
		t.Errorf("adopted after its end: %+v %t", status, ok)
	}
}

// P11: a paused container is killed and removed as any other.
func TestP11Paused(t *testing.T) {
	b := boundary(t)
	s := launched(t, b, newOrder(t, emptyImage(t, b)))
	pause(t, b, s.record.Container)
	if _, err := s.Usage(bounded(t)); err != nil {
		t.Errorf("usage of a paused container: %v", err)
	}
	must(t, s.Kill(bounded(t)))
	must(t, s.Remove(bounded(t)))
	if left := containersOf(t, b, s.record.Instance); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// A container that somebody started again after its session's end is still removed.
func TestStartedAgain(t *testing.T) {
	b := boundary(t)
	s := launched(t, b, newOrder(t, emptyImage(t, b)))
	now := 0
	must(t, b.api.ContainerRestart(t.Context(), s.record.Container, container.StopOptions{Timeout: &now}))
	adopted, err := b.Adopt(bounded(t), s.Record())
	must(t, err)
	must(t, adopted.Kill(bounded(t)))
	must(t, adopted.Remove(bounded(t)))
	if left := containersOf(t, b, s.record.Instance); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// N3: what the session says reaches the task's logs, each line once, and a driver that
// restarted goes on where it stands.
func TestLogs(t *testing.T) {
	b := boundary(t)
	order := newOrder(t, emptyImage(t, b))
	s := launched(t, b, order)
	makeItSpeak(t, order)
	must(t, unix.Kill(s.record.Session.PID, unix.SIGKILL))
	awaitDone(t, s)
	s.logs.drain(bounded(t))
	first, err := os.ReadFile(order.Log.Name())
	must(t, err)
	if n := bytes.Count(first, []byte("session: ")); n != 1 {
		t.Errorf("%d lines in the log:\n%s", n, first)
	}
	if bytes.Contains(first, []byte("Z session")) {
		t.Errorf("the engine's time is in the log: %s", first)
	}
	late, err := b.Adopt(bounded(t), s.Record())
	must(t, err)
	must(t, late.(isolation.LogFollower).FollowLogs(order.Log, order.ErrorLog, s.logs.since))
	late.(*sandbox).logs.drain(bounded(t))
	again, err := os.ReadFile(order.Log.Name())
	must(t, err)
	if !bytes.Equal(first, again) {
		t.Errorf("passed on twice:\n%s", again)
	}
}

// makeItSpeak lets a session meet a supervisor that talks nonsense, which it says in its
// log, and waits for that.
func makeItSpeak(t *testing.T, order isolation.Order) {
	t.Helper()
	path := filepath.Join(order.DialDir, "s")
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	must(t, err)
	must(t, os.Chmod(path, 0o666))
	must(t, l.SetDeadline(time.Now().Add(limit)))
	c, err := l.Accept()
	must(t, err)
	_, err = c.Write([]byte("nonsense"))
	must(t, err)
	_ = l.Close() // only once
	for end := time.Now().Add(limit); ; runtime.Gosched() {
		text, err := os.ReadFile(order.Log.Name())
		must(t, err)
		if bytes.Contains(text, []byte("session: ")) {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the session says nothing: %s", text)
		}
	}
	_ = c.Close()
}

// S8a: a log that nobody reads holds up neither the session nor its removal.
func TestS8aUnreadLog(t *testing.T) {
	b := boundary(t)
	order := newOrder(t, emptyImage(t, b))
	path := filepath.Join(t.TempDir(), "fifo")
	must(t, unix.Mkfifo(path, 0o600))
	fifo, err := os.OpenFile(path, os.O_RDWR, 0)
	must(t, err)
	defer fifo.Close()
	must(t, fifo.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
	_, _ = fifo.Write(make([]byte, 1<<20)) // full
	order.Log = fifo
	s := launched(t, b, order)
	must(t, unix.Kill(s.record.Session.PID, unix.SIGTERM))
	awaitDone(t, s)
	must(t, s.Remove(bounded(t)))
}

// engine is a docker of the test's own, which can be stopped and started.
type engine struct {
	t        *testing.T
	dir      string
	live     bool
	network  bool // it may make bridges and rules
	cmd      *exec.Cmd
	endpoint string
}

func newEngine(t *testing.T, live bool) *engine {
	t.Helper()
	return startEngine(t, engine{live: live})
}

func startEngine(t *testing.T, like engine) *engine {
	t.Helper()
	boundary(t) // the same needs
	if _, err := exec.LookPath("dockerd"); err != nil {
		t.Skip("needs dockerd, to restart an engine that is nobody else's")
	}
	dir, err := os.MkdirTemp("", "bse-")
	must(t, err)
	e := &like
	e.t, e.dir, e.endpoint = t, dir, "unix://"+dir+"/sock"
	t.Cleanup(func() {
		e.stop()
		if t.Failed() {
			text, _ := os.ReadFile(dir + "/log")
			t.Logf("%s", text)
		}
		// An engine that keeps containers alive leaves its mounts to its successor.
		for _, m := range slices.Backward(mountPoints(t, dir)) {
			must(t, unix.Unmount(m, unix.MNT_DETACH))
		}
		must(t, os.RemoveAll(dir))
	})
	e.start()
	return e
}

// mountPoints are those below dir, in the order they were mounted, see
// proc_pid_mountinfo(5).
func mountPoints(t *testing.T, dir string) []string {
	t.Helper()
	text, err := os.ReadFile("/proc/self/mountinfo")
	must(t, err)
	var points []string
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], dir+"/") {
			points = append(points, fields[4])
		}
	}
	return points
}

func (e *engine) start() {
	e.t.Helper()
	log, err := os.OpenFile(e.dir+"/log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	must(e.t, err)
	defer log.Close()
	e.cmd = exec.Command("dockerd", "--data-root", e.dir+"/data", "--exec-root", e.dir+"/exec", "--pidfile", e.dir+"/pid",
		"-H", e.endpoint, "--bridge", "none", fmt.Sprintf("--iptables=%t", e.network), "--ip6tables=false", fmt.Sprintf("--live-restore=%t", e.live), "--log-level", "warn")
	e.cmd.Stdout, e.cmd.Stderr = log, log
	must(e.t, e.cmd.Start())
	b := boundaryAt(e.t, e.endpoint)
	for end := time.Now().Add(limit); !b.Check(e.t.Context()).Ready; {
		if time.Now().After(end) {
			e.t.Fatalf("the engine does not start: %+v", b.Check(e.t.Context()))
		}
	}
}

func (e *engine) stop() {
	if e.cmd != nil {
		_ = e.cmd.Process.Signal(unix.SIGTERM)
		_ = e.cmd.Wait()
		e.cmd = nil
	}
}

// DOC-05, DOC-06: an engine that restarts with live-restore, or is away, ends nothing; the
// real end is reported once, with its status, also when it comes while the engine is away.
func TestDOC05LiveRestore(t *testing.T) {
	e := newEngine(t, true)
	b := boundaryAt(t, e.endpoint)
	order := newOrder(t, emptyImage(t, b))
	s := launched(t, b, order)
	e.stop()
	if left := b.Check(t.Context()); left.Ready || !strings.Contains(left.Reason, "docker") {
		t.Errorf("an engine that is away: %+v", left)
	}
	// DOC-06: away is not dead, for the driver that runs and for one that starts.
	select {
	case <-s.Done():
		t.Fatal("the engine's end was taken for the session's")
	default:
	}
	adopted, err := b.Adopt(bounded(t), s.Record())
	must(t, err)
	select {
	case <-adopted.Done():
		t.Fatal("a session without engine counts as ended")
	default:
	}
	_, err = s.Usage(bounded(t))
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Sentence(), "docker does not answer") {
		t.Errorf("usage without an engine: %v", err)
	}
	e.start()
	makeItSpeak(t, order)
	must(t, unix.Kill(s.record.Session.PID, unix.SIGTERM))
	awaitDone(t, s)
	if status, ok := s.Status(); !ok || status.Code != 1 {
		t.Errorf("%+v %t", status, ok) // the session says 1 where it was ended from outside
	}
	if reason := s.EndReason(); reason != "" {
		t.Errorf("somebody else is blamed: %s", reason)
	}
	s.logs.drain(bounded(t))
	text, err := os.ReadFile(order.Log.Name())
	must(t, err)
	if n := bytes.Count(text, []byte("ended from outside")); n != 1 {
		t.Errorf("%d times in the log: %s", n, text)
	}
}

// DOC-05: what ends while the engine is away has a status when it is back.
func TestDOC05EndWithoutEngine(t *testing.T) {
	e := newEngine(t, true)
	b := boundaryAt(t, e.endpoint)
	s := launched(t, b, newOrder(t, emptyImage(t, b)))
	e.stop()
	must(t, unix.Kill(s.record.Session.PID, unix.SIGKILL))
	e.start()
	awaitDone(t, s)
	if status, ok := s.Status(); !ok || status != killed {
		t.Errorf("%+v %t", status, ok)
	}
}

// Without live-restore an engine takes its containers along; that is an end.
func TestDOC05Restart(t *testing.T) {
	e := newEngine(t, false)
	b := boundaryAt(t, e.endpoint)
	s := launched(t, b, newOrder(t, emptyImage(t, b)))
	e.stop()
	e.start()
	awaitDone(t, s)
	if _, ok := s.Status(); !ok {
		t.Error("the engine's word on it is lost")
	}
}

// A screen can be ended while its engine is away; only the container's remains wait.
func TestKillWithoutEngine(t *testing.T) {
	e := newEngine(t, true)
	b := boundaryAt(t, e.endpoint)
	s := launched(t, b, newOrder(t, emptyImage(t, b)))
	e.stop()
	must(t, s.Kill(bounded(t)))
	if s.record.Session.Alive() {
		t.Error("the session lives")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if err := s.Remove(ctx); err == nil {
		t.Error("removed without an engine")
	}
	e.start()
	must(t, s.Remove(bounded(t)))
	if left := containersOf(t, b, s.record.Instance); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}
