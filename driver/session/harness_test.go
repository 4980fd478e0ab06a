// SPDX-License-Identifier: MPL-2.0

package session

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/browser"
	"github.com/botscreen/botscreen/driver/desktop"
	"github.com/botscreen/botscreen/driver/display"
	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/driver/supervise"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// The component tests run real sessions under a spare uid. The test binary starts
// itself: as root in a mount namespace of its own, to give the uid a passwd entry; then
// as that uid, as the session; as a supervisor under another uid; and as a program on
// the desktop that tries what X3 forbids.
const (
	roleVariable   = "BOTSCREEN_TEST_ROLE"
	roleRoot       = "namespace"
	roleSession    = "session"
	roleSupervisor = "supervisor"
	roleSpy        = "spy"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == desktop.FenceProbeCommand {
		os.Exit(desktop.FenceProbeMain(os.Args[2:]))
	}
	if len(os.Args) > 1 && os.Args[1] == browser.ProbeCommand {
		os.Exit(0)
	}
	if filepath.Base(os.Args[0]) == OpenerName {
		os.Exit(OpenerMain(os.Args))
	}
	switch os.Getenv(roleVariable) {
	case roleRoot:
		fmt.Fprintln(os.Stderr, "test session:", enterSession())
		os.Exit(1)
	case roleSession:
		os.Exit(Main(os.Getenv("BOTSCREEN_TEST_DIAL")))
	case roleSupervisor:
		os.Exit(supervise.Main())
	case roleSpy:
		os.Exit(spy())
	}
	os.Exit(m.Run())
}

// enterSession runs as root in its own mount namespace. The pid stays the same.
func enterSession() error {
	uid := os.Getenv("BOTSCREEN_TEST_UID")
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	if err := unix.Mount(os.Getenv("BOTSCREEN_TEST_PASSWD"), "/etc/passwd", "", unix.MS_BIND, ""); err != nil {
		return err
	}
	env := []string{roleVariable + "=" + roleSession, "BOTSCREEN_TEST_DIAL=" + os.Getenv("BOTSCREEN_TEST_DIAL")}
	return unix.Exec("/usr/bin/setpriv", []string{
		"setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", os.Args[0],
	}, env)
}

// rig is a session process and what its screen needs.
type rig struct {
	t        *testing.T
	uid      int
	base     string
	self     string // a copy of this binary that everybody may execute
	listener *net.UnixListener
	plan     dialhome.Plan
	log      *syncBuffer
	cmd      *exec.Cmd
	identity process.Identity
	ended    chan struct{} // closed when the session process has ended
}

func newRig(t *testing.T) *rig {
	t.Helper()
	require(t)
	base, err := os.MkdirTemp("", "bsn-") // short: sockets lie below it
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	must(t, os.Chmod(base, 0o755))
	uid := 62000 + rand.IntN(900)
	r := &rig{t: t, uid: uid, base: base, self: filepath.Join(base, "session.test"), log: &syncBuffer{}, ended: make(chan struct{})}
	r.plan = dialhome.Plan{
		Display: freeDisplay(t), WidthPx: 800, HeightPx: 600, Depth: 24, DPI: 96, KeyboardLayout: "us", Look: "lean",
		Home: filepath.Join(base, "home"), XDir: filepath.Join(base, "x"), RuntimeDir: filepath.Join(base, "x/runtime"),
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin", "FROM_THE_JOB=yes"}, Deadline: limit,
	}
	for _, dir := range []string{r.plan.Home, r.plan.XDir} {
		must(t, os.Mkdir(dir, 0o700))
		must(t, os.Chown(dir, uid, uid))
	}
	binary, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(r.self, binary, 0o755))
	path := filepath.Join(base, "s")
	r.listener, err = net.ListenUnix("unixpacket", &net.UnixAddr{Name: path, Net: "unixpacket"})
	must(t, err)
	t.Cleanup(func() { _ = r.listener.Close() })
	must(t, os.Chmod(path, 0o666))
	must(t, r.listener.SetDeadline(time.Now().Add(2*limit)))
	r.launch(path)
	return r
}

func (r *rig) launch(dial string) {
	t := r.t
	passwd, err := os.ReadFile("/etc/passwd")
	must(t, err)
	shadow := filepath.Join(r.base, "passwd")
	must(t, os.WriteFile(shadow, fmt.Appendf(passwd, "screen:x:%d:%d::%s:/bin/sh\n", r.uid, r.uid, r.plan.Home), 0o644))
	r.cmd = exec.Command(r.self)
	r.cmd.Env = []string{
		roleVariable + "=" + roleRoot, "BOTSCREEN_TEST_DIAL=" + dial,
		"BOTSCREEN_TEST_UID=" + strconv.Itoa(r.uid), "BOTSCREEN_TEST_PASSWD=" + shadow,
	}
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	r.cmd.WaitDelay = limit
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS}
	must(t, r.cmd.Start())
	r.identity, err = process.Observe(r.cmd.Process.Pid)
	must(t, err)
	go func() { _ = r.cmd.Wait(); close(r.ended) }()
	t.Cleanup(r.close)
}

// close ends the session and checks that nothing of its uid is left.
func (r *rig) close() {
	if r.identity.Alive() {
		_ = r.cmd.Process.Signal(unix.SIGTERM)
	}
	r.exitCode()
	if left := processesOf(r.uid); len(left) > 0 {
		r.t.Errorf("left running: %v", left)
		for pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
	if r.t.Failed() {
		r.t.Logf("log of the session:\n%s", r.log)
	}
}

// exitCode waits for the session's end.
func (r *rig) exitCode() int {
	r.t.Helper()
	select {
	case <-r.ended:
	case <-time.After(limit):
		r.t.Error("the session does not end")
		_ = r.cmd.Process.Kill()
		<-r.ended
	}
	return r.cmd.ProcessState.ExitCode()
}

// command is the test as the session's supervisor, with the desktop up.
func (r *rig) command() *supervisor {
	r.t.Helper()
	s := accept(r.t, r.listener)
	s.hello()
	if p, _ := s.ask(dialhome.OpStart, dialhome.Start{HasPlan: true}, memory(r.t, string(dialhome.Encode(r.plan)))); p.Err != nil {
		r.t.Fatalf("start: %s", p.Err.Message)
	}
	return s
}

// supervised is the session with a real supervisor, in a process and under a uid of
// its own.
type supervised struct {
	*rig
	client     *control.Client
	supervisor *exec.Cmd
}

func newSupervised(t *testing.T) *supervised { return newSupervisedWith(t, func(*supervise.Config) {}) }

func newSupervisedWith(t *testing.T, change func(*supervise.Config)) *supervised {
	r := newRig(t)
	s := &supervised{rig: r}
	uid := 63000 + rand.IntN(900)
	dir := filepath.Join(r.base, "control")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.Chown(dir, uid, uid))
	op := filepath.Join(r.base, "op")
	operator, err := net.ListenUnix("unix", &net.UnixAddr{Name: op, Net: "unix"})
	must(t, err)
	config := supervise.Config{
		Profile: "bot", Isolation: screen.Host, Instance: "i", Session: r.identity, SharedPIDs: true, Plan: &r.plan,
		Geometry: screen.Geometry{WidthPx: r.plan.WidthPx, HeightPx: r.plan.HeightPx},
	}
	config.Deadline = r.plan.Deadline
	change(&config)
	directory, err := os.Open(dir)
	must(t, err)
	operatorFile, err := operator.File()
	must(t, err)
	dialFile, err := r.listener.File()
	must(t, err)
	s.supervisor = exec.Command(r.self)
	s.supervisor.Env = []string{roleVariable + "=" + roleSupervisor}
	s.supervisor.Dir = "/"
	s.supervisor.ExtraFiles = []*os.File{memory(t, string(dialhome.Encode(config))), directory, operatorFile, dialFile}
	s.supervisor.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	must(t, s.supervisor.Start())
	for _, f := range s.supervisor.ExtraFiles {
		_ = f.Close()
	}
	operator.SetUnlinkOnClose(false)
	_ = operator.Close()
	s.client = control.NewClient(control.Unix(op))
	t.Cleanup(func() {
		s.client.Close()
		_ = s.supervisor.Process.Signal(unix.SIGTERM)
		if err := s.supervisor.Wait(); err != nil {
			t.Errorf("the supervisor ended with %v", err)
		}
		if text, err := os.ReadFile(filepath.Join(dir, "supervise.log")); err == nil && t.Failed() {
			t.Logf("log of the supervisor:\n%s", text)
		}
	})
	for e, err := range s.client.Events(t.Context(), 0) {
		must(t, err)
		if e.State == screen.Ready {
			return s
		}
		if e.State == screen.Failed {
			t.Fatalf("the start failed: %s", e.Reason)
		}
	}
	return s
}

func require(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a real desktop")
	}
	fail := t.Skipf
	if os.Getenv("CI") != "" {
		fail = t.Fatalf
	}
	if os.Geteuid() != 0 {
		fail("needs root, to run a session under a spare uid")
	}
	for _, program := range []string{"Xvnc", "dbus-daemon", "xfwm4", "xfdesktop", "xfce4-panel", "xfsettingsd", "setpriv"} {
		if _, err := exec.LookPath(program); err != nil {
			fail("needs %s", program)
		}
	}
	must(t, display.Host{}.PrepareSocketDir())
}

// freeDisplay picks a number far from those that people and other tests use.
func freeDisplay(t *testing.T) int {
	t.Helper()
	for range 100 {
		n := display.Number(30000 + rand.IntN(20000)) // 20000 to 29999 are those of suites that look for what is left
		if status, err := (display.Host{}).Inspect(n); err == nil && status.State == display.Free {
			return int(n)
		}
	}
	t.Fatal("no free display")
	return 0
}

// processesOf are the names of the processes of a uid by pid, zombies left out.
func processesOf(uid int) map[int]string {
	found := map[int]string{}
	entries, _ := filepath.Glob("/proc/[0-9]*/status")
	for _, path := range entries {
		status, err := os.ReadFile(path)
		if err != nil || !bytes.Contains(status, fmt.Appendf(nil, "\nUid:\t%d\t", uid)) || bytes.Contains(status, []byte("\nState:\tZ")) {
			continue
		}
		pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		name, _, _ := strings.Cut(strings.TrimPrefix(string(status), "Name:\t"), "\n")
		found[pid] = name
	}
	return found
}

// await waits for something that nobody announces.
func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !is(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

func descriptorsOf(t *testing.T, pid int) int {
	t.Helper()
	entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	must(t, err)
	return len(entries)
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *syncBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *syncBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}

func decode[T any](t *testing.T, text []byte) T {
	t.Helper()
	var v T
	if err := json.Unmarshal(text, &v); err != nil {
		t.Fatalf("decode %q: %v", text, err)
	}
	return v
}
