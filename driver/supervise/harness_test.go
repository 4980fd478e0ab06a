// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// Parts of these tests have to be processes of their own: the test binary starts
// itself in one of these roles, see roles_test.go.
const roleVariable = "BOTSCREEN_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" {
		os.Exit(playRole(role))
	}
	os.Exit(m.Run())
}

// limit bounds every wait of these tests; none takes nearly as long.
const limit = 20 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// rig is a supervisor in this process, on real sockets.
type rig struct {
	*supervisor
	t      *testing.T
	config Config
	log    *lockedBuffer
	dir    string // its control directory
	dial   string // its dial-home socket
	op     string // its operator socket
	client *control.Client
	end    func() // ends the supervisor and waits for that
}

// newRig supervises a session that is this very process.
func newRig(t *testing.T, change func(*Config)) *rig {
	t.Helper()
	return newRigWith(t, change, nil)
}

// newRigWith serves further doors.
func newRigWith(t *testing.T, change func(*Config), more func(*doors)) *rig {
	t.Helper()
	self, err := process.Observe(os.Getpid())
	must(t, err)
	c := Config{
		Profile: "bot", Isolation: screen.Host, Instance: "instance-1", Session: self, SharedPIDs: true,
		Geometry: screen.Geometry{WidthPx: 800, HeightPx: 600},
	}
	if change != nil {
		change(&c)
	}
	dir := filepath.Join(t.TempDir(), "control")
	must(t, os.Mkdir(dir, 0o700))
	return newRigAt(t, dir, c, more)
}

// newRigIn supervises in a directory that an earlier supervisor may have left.
func newRigIn(t *testing.T, dir string, c Config) *rig {
	t.Helper()
	return newRigAt(t, dir, c, nil)
}

func newRigAt(t *testing.T, dir string, c Config, more func(*doors)) *rig {
	t.Helper()
	root, err := os.OpenRoot(dir)
	must(t, err)
	sockets, err := os.MkdirTemp("", "bss-") // short
	must(t, err)
	r := &rig{t: t, config: c, log: &lockedBuffer{}, dir: dir, dial: filepath.Join(sockets, "s")}
	r.op = filepath.Join(sockets, "op")
	operator, err := net.ListenUnix("unix", &net.UnixAddr{Name: r.op, Net: "unix"})
	must(t, err)
	dial, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: r.dial, Net: "unixpacket"})
	must(t, err)
	r.supervisor, err = newSupervisor(c, root, hclog.New(&hclog.LoggerOptions{Output: r.log}))
	must(t, err)
	r.client = control.NewClient(control.Unix(r.op))
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	all := doors{operator: operator, dial: dial}
	if more != nil {
		more(&all)
	}
	go func() { served <- r.serve(ctx, all) }()
	r.end = sync.OnceFunc(func() {
		r.client.Close()
		cancel()
		select {
		case err := <-served:
			if err != nil {
				t.Errorf("the supervisor ended with %v", err)
			}
		case <-time.After(limit):
			t.Error("the supervisor does not end")
		}
		_ = root.Close()
		_ = os.RemoveAll(sockets)
	})
	r.await("the supervisor holds its session, or knows that it is gone", func() bool {
		return holdsProcess(t, c.Session.PID) || r.link.isOver()
	})
	t.Cleanup(func() {
		r.end()
		if t.Failed() {
			t.Logf("log of the supervisor:\n%s", r.log)
		}
	})
	return r
}

// plan makes the supervisor start a desktop.
func withPlan(c *Config) { c.Plan = &dialhome.Plan{Deadline: limit, Env: []string{"SECRET=CANARY"}} }

// fake is a session that does what its test says.
type fake struct {
	*dialhome.Conn
	t   *testing.T
	raw *net.UnixConn
}

func (r *rig) connect() *fake {
	r.t.Helper()
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: r.dial, Net: "unixpacket"})
	must(r.t, err)
	f := &fake{Conn: dialhome.NewConn(c), t: r.t, raw: c}
	r.t.Cleanup(func() { _ = f.Close() })
	return f
}

// session connects, waits until it is taken and shows the desktop.
func (r *rig) session(d dialhome.Desktop) *fake {
	r.t.Helper()
	r.forgive()
	f := r.connect()
	r.await("the session is taken", func() bool {
		r.link.mu.Lock()
		defer r.link.mu.Unlock()
		return r.link.line != nil
	})
	f.event(dialhome.EventHello, d)
	return f
}

// forgive lets a session that broke the protocol in again at once.
func (r *rig) forgive() {
	r.await("the last session has gone", func() bool {
		r.link.mu.Lock()
		defer r.link.mu.Unlock()
		r.link.quiet = time.Time{}
		return r.link.line == nil
	})
}

// await waits for something that nobody announces.
func (r *rig) await(what string, is func() bool) {
	r.t.Helper()
	await(r.t, what, is)
}

func await(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(limit); !is(); runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("not within %s: %s", limit, what)
		}
	}
}

func (f *fake) event(name dialhome.Event, body any) {
	f.t.Helper()
	must(f.t, f.Send(dialhome.Packet{Event: name, Body: dialhome.Encode(body)}))
}

// granted are what every change of hands asks for.
var granted = map[dialhome.Op]bool{dialhome.OpClear: true, dialhome.OpWipeClipboard: true, dialhome.OpWindows: true, dialhome.OpFocus: true, dialhome.OpBrowserPage: true}

// asked is the next request, which has to be op. What every change of hands asks for is
// granted where it is not what the test waits for.
func (f *fake) asked(op dialhome.Op) (dialhome.Packet, []*dialhome.Descriptor) {
	f.t.Helper()
	must(f.t, f.raw.SetReadDeadline(time.Now().Add(limit)))
	p, passed, err := f.Receive()
	must(f.t, err)
	if granted[p.Op] && op != p.Op {
		f.answer(p.ID, struct{}{})
		return f.asked(op)
	}
	if p.Op != op {
		f.t.Fatalf("asked to %s, want %s", p.Op, op)
	}
	return p, passed
}

func (f *fake) answer(id uint64, body any, files ...*os.File) {
	f.t.Helper()
	must(f.t, f.Send(dialhome.Packet{ID: id, OK: true, Body: dialhome.Encode(body)}, files...))
}

// awaitEnd waits until the supervisor has ended this connection.
func (f *fake) awaitEnd() {
	f.t.Helper()
	must(f.t, f.raw.SetReadDeadline(time.Now().Add(limit)))
	for {
		_, passed, err := f.Receive()
		dialhome.CloseAll(passed)
		if dialhome.IsClosed(err) {
			return
		}
		must(f.t, err)
	}
}

// becomeReady makes the screen ready with xserver as its X server.
func (r *rig) withServer(xserver process.Identity) dialhome.Desktop {
	d := dialhome.Desktop{State: dialhome.Running, Display: 77, XPID: xserver.PID, XStart: xserver.Start}
	r.session(d)
	r.awaitState(screen.Ready)
	return d
}

func (r *rig) awaitState(want screen.State) control.Event {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	for e, err := range r.client.Events(ctx, 0) {
		must(r.t, err)
		if e.State == want {
			return e
		}
	}
	r.t.Fatalf("the screen is not %s", want)
	return control.Event{}
}

func (r *rig) wait() control.Exit {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), limit)
	defer cancel()
	exit, err := r.client.Wait(ctx)
	must(r.t, err)
	return exit
}

// openFiles counts this process' descriptors, once those being closed are.
func openFiles(t *testing.T) int {
	t.Helper()
	await(t, "all discarded descriptors are closed", func() bool { return dialhome.Closing() == 0 })
	entries, err := os.ReadDir("/proc/self/fd")
	must(t, err)
	return len(entries)
}

// holdsProcess reports whether this process has a pidfd of pid, see pidfd_open(2).
func holdsProcess(t *testing.T, pid int) bool {
	t.Helper()
	infos, err := filepath.Glob("/proc/self/fdinfo/*")
	must(t, err)
	for _, path := range infos {
		if info, err := os.ReadFile(path); err == nil && bytes.Contains(info, fmt.Appendf(nil, "\nPid:\t%d\n", pid)) {
			return true
		}
	}
	return false
}

// helper is the test binary in another role.
type helper struct {
	*exec.Cmd
	t        *testing.T
	in       io.WriteCloser
	lines    chan string
	identity process.Identity
}

func startHelper(t *testing.T, role string, env ...string) *helper {
	t.Helper()
	h := &helper{Cmd: exec.Command("/proc/self/exe"), t: t, lines: make(chan string, 100)}
	h.Env = append(append(os.Environ(), roleVariable+"="+role), env...)
	h.Stderr = os.Stderr
	h.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	h.start()
	return h
}

func (h *helper) start() {
	var err error
	h.in, err = h.StdinPipe()
	must(h.t, err)
	out, err := h.StdoutPipe()
	must(h.t, err)
	// The parent-death signal is tied to the thread that forks (golang/go#27505).
	started := make(chan error)
	h.t.Cleanup(func() { _ = h.Process.Kill(); _ = h.in.Close(); _ = h.Wait() })
	go func() {
		runtime.LockOSThread() // kept for as long as the helper may live
		started <- h.Start()
		<-h.t.Context().Done()
		runtime.UnlockOSThread()
	}()
	must(h.t, <-started)
	h.identity, err = process.Observe(h.Process.Pid)
	must(h.t, err)
	go func() {
		defer close(h.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			h.lines <- s.Text()
		}
	}()
}

// says waits for a line that begins with prefix and returns what follows.
func (h *helper) says(prefix string) string {
	h.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case line, open := <-h.lines:
			if rest, ok := strings.CutPrefix(line, prefix); ok {
				return rest
			}
			if !open {
				h.t.Fatalf("the helper ended without %q", prefix)
			}
		case <-timer.C:
			h.t.Fatalf("no %q within %s", prefix, limit)
		}
	}
}

// next is the next line.
func (h *helper) next() string {
	h.t.Helper()
	select {
	case line := <-h.lines:
		return line
	case <-time.After(limit):
		h.t.Fatalf("the helper says nothing within %s", limit)
		return ""
	}
}

func (h *helper) tell(line string) {
	h.t.Helper()
	_, err := fmt.Fprintln(h.in, line)
	must(h.t, err)
}

// dialServer connects to a helper in the role server and returns a file of it.
func dialServer(t *testing.T, path string) *os.File {
	t.Helper()
	f, err := connectServer(path)
	must(t, err)
	t.Cleanup(func() { _ = f.Close() })
	return f
}

func connectServer(path string) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	return os.NewFile(uintptr(fd), "server"), unix.Connect(fd, &unix.SockaddrUnix{Name: path})
}

func serverPath(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bss-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return filepath.Join(dir, "server")
}

func isKind(err error, kind control.Kind) bool { return errors.Is(err, &control.Error{Kind: kind}) }

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.b.String()
}
