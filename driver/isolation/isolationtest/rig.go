// SPDX-License-Identifier: MPL-2.0

package isolationtest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"fmt"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/display"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/driver/supervise"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is one screen with its directories, its sandbox and its supervisor.
type rig struct {
	t        *testing.T
	suite    Suite
	boundary isolation.Boundary
	binary   string
	dir      string
	log      string
	order    isolation.Order
	sandbox  isolation.Sandbox

	supervisor *exec.Cmd
	uid        uint32 // the supervisor's
	client     *control.Client
}

func newRig(t *testing.T, s Suite, binary string) *rig {
	t.Helper()
	// Short, because sockets lie below it; with a space and a quote (S13).
	dir, err := os.MkdirTemp("", "b's ")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o711))
	uid := 300_000 + uint32(mathrand.IntN(1_000_000))*2
	r := &rig{t: t, suite: s, boundary: s.New(t), binary: binary, dir: dir, log: filepath.Join(dir, "log"), uid: uid + 1}
	log, err := os.OpenFile(r.log, os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	must(t, err)
	t.Cleanup(func() { _ = log.Close() })
	r.order = isolation.Order{
		ID:       screen.ID{Namespace: "conformance", Profile: screen.Profile("bot-" + strconv.Itoa(int(uid)))},
		Instance: NewInstance(), Binary: binary, Image: s.Image,
		Account: isolation.Account{UID: uid, GID: uid, Name: "screen"},
		DialDir: r.make("dial", 0, 0o711), XDir: r.make("x", uid, 0o700), Home: r.make("home", uid, 0o700),
		Scratch: r.make("boundary", 0, 0o700), Log: log, ErrorLog: log,
		Labels: map[string]string{"job": "conformance"},
	}
	r.make("control", r.uid, 0o700)
	t.Cleanup(r.close)
	return r
}

// NewInstance names a run, as a driver does.
func NewInstance() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return hex.EncodeToString(b[:])
}

func (r *rig) make(name string, uid uint32, mode os.FileMode) string {
	r.t.Helper()
	return makeDir(r.t, r.dir, name, uid, mode)
}

func makeDir(t *testing.T, dir, name string, uid uint32, mode os.FileMode) string {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must(t, err)
	defer root.Close()
	must(t, root.Mkdir(name, mode))
	must(t, root.Chown(name, int(uid), int(uid)))
	must(t, root.Chmod(name, mode))
	return filepath.Join(dir, name)
}

func (r *rig) context() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(r.t.Context()), limit)
}

func (r *rig) launch() {
	r.t.Helper()
	ctx, cancel := r.context()
	defer cancel()
	sandbox, err := r.boundary.Launch(ctx, r.order)
	must(r.t, err)
	r.sandbox = sandbox
}

func (r *rig) plan() *dialhome.Plan {
	return &dialhome.Plan{
		Display: freeDisplay(r.t), WidthPx: 800, HeightPx: 600, Depth: 24, DPI: 96, KeyboardLayout: "us", Look: "lean",
		Home: r.order.Home, XDir: r.order.XDir, RuntimeDir: filepath.Join(r.order.XDir, "runtime"), Deadline: limit,
		Env: []string{"FROM_THE_JOB=yes", "PATH=/usr/local/bin:/usr/bin:/bin"},
	}
}

// supervise starts a supervisor for the sandbox: with a plan it starts the desktop,
// without it adopts the session.
func (r *rig) supervise(plan *dialhome.Plan) {
	r.t.Helper()
	config, err := json.Marshal(supervise.Config{
		Namespace: r.order.ID.Namespace, Profile: r.order.ID.Profile, Isolation: r.boundary.Kind(), Instance: r.order.Instance,
		Session: r.sandbox.Session(), Geometry: screen.Geometry{WidthPx: 800, HeightPx: 600},
		Exec: screen.ExecPolicy{Shell: true, Role: screen.RoleOperator}, SharedPIDs: r.boundary.Kind() == screen.Host, Plan: plan,
	})
	must(r.t, err)
	directory, err := os.Open(filepath.Join(r.dir, "control"))
	must(r.t, err)
	files := []*os.File{memory(r.t, config), directory, r.listen("unix", r.operator(), 0o600), r.listen("unixpacket", filepath.Join(r.order.DialDir, "s"), 0o666)}
	r.supervisor = exec.Command(r.binary, "supervise")
	r.supervisor.Env, r.supervisor.Dir, r.supervisor.ExtraFiles = []string{"PATH=/usr/bin:/bin"}, "/", files
	r.supervisor.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: r.uid, Gid: r.uid}}
	must(r.t, r.supervisor.Start())
	for _, f := range files {
		_ = f.Close()
	}
	r.client = control.NewClient(control.Unix(r.operator()))
}

func (r *rig) operator() string { return filepath.Join(r.dir, "op") }

func (r *rig) listen(network, path string, mode os.FileMode) *os.File {
	r.t.Helper()
	_ = os.Remove(path)
	l, err := net.ListenUnix(network, &net.UnixAddr{Name: path, Net: network})
	must(r.t, err)
	l.SetUnlinkOnClose(false)
	defer l.Close()
	must(r.t, os.Chmod(path, mode))
	f, err := l.File()
	must(r.t, err)
	return f
}

func memory(t *testing.T, text []byte) *os.File {
	t.Helper()
	fd, err := unix.MemfdCreate("test", unix.MFD_CLOEXEC)
	must(t, err)
	f := os.NewFile(uintptr(fd), "memfd")
	_, err = f.Write(text)
	must(t, err)
	return f
}

// awaitReady waits for the supervisor to call the screen ready, by its event.
func (r *rig) awaitReady() {
	r.t.Helper()
	ctx, cancel := r.context()
	defer cancel()
	for e, err := range r.client.Events(ctx, 0) {
		if err != nil || e.State == screen.Failed {
			r.describe()
			r.t.Fatalf("the screen does not become ready: %v %s", err, e.Reason)
		}
		if e.State == screen.Ready {
			return
		}
	}
	r.t.Fatal("the events ended before the screen was ready")
}

// awaitFailure is the reason the supervisor gives for a start that failed.
func (r *rig) awaitFailure() string {
	r.t.Helper()
	ctx, cancel := r.context()
	defer cancel()
	for e, err := range r.client.Events(ctx, 0) {
		must(r.t, err)
		if e.State == screen.Failed {
			return fmt.Sprint(e.Reason)
		}
	}
	r.t.Fatal("the start did not fail")
	return ""
}

// describe shows what the sandbox said.
func (r *rig) describe() {
	for _, path := range []string{r.log, filepath.Join(r.dir, "control", "supervise.log")} {
		if text, err := os.ReadFile(path); err == nil {
			r.t.Logf("%s:\n%s", filepath.Base(path), text)
		}
	}
}

func (r *rig) endSupervisor(signal os.Signal) {
	if r.supervisor == nil {
		return
	}
	r.client.Close()
	_ = r.supervisor.Process.Signal(signal)
	_ = r.supervisor.Wait()
	r.supervisor = nil
}

// close leaves nothing behind whatever the test came to.
func (r *rig) close() {
	ctx, cancel := r.context()
	defer cancel()
	if r.sandbox != nil {
		if err := r.sandbox.Kill(ctx); err != nil {
			r.t.Error(err)
		}
		if err := r.sandbox.Remove(ctx); err != nil {
			r.t.Error(err)
		}
	}
	r.endSupervisor(unix.SIGTERM)
}

// freeDisplay picks a number far from those that people and other tests use.
func freeDisplay(t *testing.T) int {
	t.Helper()
	must(t, display.Host{}.PrepareSocketDir())
	for range 100 {
		n := display.Number(30000 + mathrand.IntN(20000)) // 20000 to 29999 are those of suites that look for what is left
		if status, err := (display.Host{}).Inspect(n); err == nil && status.State == display.Free {
			return int(n)
		}
	}
	t.Fatal("no free display")
	return 0
}

// processesOf are the names of the processes of a uid by pid, zombies left out.
func processesOf(uid uint32) map[int]string {
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
