// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/jezek/xgb/xproto"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/display"
)

// The component tests run real desktops under a spare uid. The test binary
// starts itself twice: as root in a mount namespace of its own, to give the uid
// a passwd entry, and then, as that uid, as the session that the test drives
// over a pipe.
const (
	roleVariable = "BOTSCREEN_TEST_ROLE"
	roleRoot     = "namespace"
	roleSession  = "session"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == FenceProbeCommand {
		os.Exit(FenceProbeMain(os.Args[2:]))
	}
	var err error
	switch os.Getenv(roleVariable) {
	case roleRoot:
		err = enterSession()
	case roleSession:
		err = serveSession()
	default:
		os.Exit(m.Run())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "test session:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

// order is what the test tells its session, one JSON value per line.
type order struct {
	Op       string        `json:"op"` // start, stop, fence, windows, dial
	Options  wireOptions   `json:"options"`
	Deadline time.Duration `json:"deadline"`
	Grace    time.Duration `json:"grace"`
	Layout   string        `json:"layout"`
}

// wireOptions are the Options without what cannot be sent.
type wireOptions struct {
	Display                            int
	WidthPx, HeightPx, Depth, DPI      int
	GLX                                bool
	KeyboardLayout                     string
	Look                               Look
	Home, ConfigHome, RuntimeDir, XDir string
	Env, Command                       []string
	Executable                         string
	SlowLog                            bool // nobody reads the log
	Dumpable                           bool // the session is not hidden
	NoTrace                            bool // tracing is forbidden, as Yama or a sandbox may do
}

func (w wireOptions) options() Options {
	return Options{
		Display: w.Display, WidthPx: w.WidthPx, HeightPx: w.HeightPx, Depth: w.Depth, DPI: w.DPI, GLX: w.GLX,
		KeyboardLayout: w.KeyboardLayout, Look: w.Look, Home: w.Home, ConfigHome: w.ConfigHome,
		RuntimeDir: w.RuntimeDir, XDir: w.XDir, Env: w.Env, Command: w.Command, Executable: w.Executable,
	}
}

// news is what the session answers and reports.
type news struct {
	Kind    string   `json:"kind"` // answer, event, done
	Event   Event    `json:"event,omitzero"`
	Err     string   `json:"err,omitempty"`
	Type    string   `json:"type,omitempty"` // of the error
	XServer int      `json:"xserver,omitempty"`
	Env     []string `json:"env,omitempty"`
	Fence   Fence    `json:"fence,omitzero"`
	Windows []Window `json:"windows,omitempty"`
	Greets  int      `json:"greets,omitempty"` // RFB connections that were greeted
	Lines   []string `json:"lines,omitempty"`
	Took    float64  `json:"took,omitempty"` // seconds
}

// enterSession runs as root in its own mount namespace.
func enterSession() error {
	uid := os.Getenv("BOTSCREEN_TEST_UID")
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return err
	}
	shadow := os.Getenv("BOTSCREEN_TEST_PASSWD")
	if err := unix.Mount(shadow, "/etc/passwd", "", unix.MS_BIND, ""); err != nil {
		return err
	}
	env := keep(os.Environ(), func(name string) bool { return name != roleVariable })
	return unix.Exec("/usr/bin/setpriv", []string{
		"setpriv", "--reuid", uid, "--regid", uid, "--clear-groups", os.Args[0],
	}, append(env, roleVariable+"="+roleSession))
}

// serveSession is a small session: it obeys orders until stdin ends.
func serveSession() error {
	if err := PrepareProcess(); err != nil {
		return err
	}
	s := &testSession{out: json.NewEncoder(os.Stdout), reaper: NewReaper()}
	go func() { _ = s.reaper.Run(context.Background()) }()
	in := json.NewDecoder(os.Stdin)
	for {
		var o order
		if err := in.Decode(&o); err != nil {
			if s.desktop != nil {
				_ = s.desktop.Stop(context.Background(), time.Second)
			}
			return nil
		}
		s.obey(o)
	}
}

type testSession struct {
	mu      sync.Mutex // guards out
	out     *json.Encoder
	reaper  *Reaper
	desktop *Desktop
}

func (s *testSession) tell(n news) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_ = s.out.Encode(n)
}

func (s *testSession) obey(o order) {
	began := time.Now()
	answer := news{Kind: "answer"}
	var err error
	ctx, cancel := context.WithTimeout(context.Background(), max(o.Deadline, 30*time.Second))
	defer cancel()
	switch o.Op {
	case "start":
		err = s.start(o, &answer)
	case "stop":
		err = s.desktop.Stop(ctx, o.Grace)
	case "fence":
		answer.Fence, err = s.desktop.Fence(ctx)
	case "windows":
		answer.Windows, err = s.desktop.Windows(ctx)
	case "dial":
		answer.Greets, err = s.greets(ctx, 100)
	case "layout":
		err = s.desktop.SetKeyboardLayout(ctx, o.Layout)
	case "lines":
		answer.Lines = s.desktop.LastLines()
	}
	answer.Took = time.Since(began).Seconds()
	if err != nil {
		answer.Err, answer.Type = err.Error(), fmt.Sprintf("%T", err)
	}
	s.tell(answer)
}

func (s *testSession) start(o order, answer *news) error {
	if o.Options.Dumpable {
		if err := unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0); err != nil {
			return err
		}
	}
	if o.Options.NoTrace {
		if err := forbidTracing(); err != nil {
			return err
		}
	}
	options := o.Options.options()
	options.Log = os.Stderr
	if o.Options.SlowLog {
		options.Log = blockedWriter{}
	}
	options.Notify = func(e Event) { s.tell(news{Kind: "event", Event: e}) }
	ctx, cancel := context.WithTimeout(context.Background(), o.Deadline)
	defer cancel()
	d, err := Start(ctx, options, s.reaper)
	if err != nil {
		return err
	}
	s.desktop = d
	answer.XServer, answer.Env = d.XServerPID(), d.Env()
	go func() {
		<-d.Done()
		done := news{Kind: "done"}
		if err := d.Err(); err != nil {
			done.Err, done.Type = err.Error(), fmt.Sprintf("%T", err)
		}
		s.tell(done)
	}()
	return nil
}

func (s *testSession) greets(ctx context.Context, count int) (int, error) {
	for i := range count {
		conn, err := s.desktop.DialRFB(ctx)
		if err != nil {
			return i, err
		}
		version := make([]byte, 12)
		_, err = io.ReadFull(conn, version)
		_ = conn.Close()
		if err != nil || !strings.HasPrefix(string(version), "RFB 003.") {
			return i, fmt.Errorf("greeted with %q: %v", version, err)
		}
	}
	return count, nil
}

// forbidTracing makes ptrace(2) fail in this whole process and what it starts.
func forbidTracing() error {
	program := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: offsetNumber},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_PTRACE, Jt: 0, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: retErrno | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: retAllow},
	}
	fprog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	_, _, errno := unix.Syscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC,
		uintptr(unsafe.Pointer(&fprog)))
	if errno != 0 {
		return errno
	}
	return nil
}

// blockedWriter is a log that nobody reads.
type blockedWriter struct{}

func (blockedWriter) Write([]byte) (int, error) { select {} }

// rig is a session process and the directories of one desktop.
type rig struct {
	t       *testing.T
	uid     int
	options wireOptions
	wrap    []string // what starts the session, before its own command line
	leak    *os.File // an inherited descriptor that nobody closed
	in      io.WriteCloser
	news    chan news
	seen    []news // what came before the answer that was waited for
	cmd     *exec.Cmd
	log     *syncBuffer
}

// newRig needs root and the desktop's programs; on CI their absence is a failure.
func newRig(t *testing.T) *rig { return newRigAt(t, "plain") }

// newRigAt makes the directories below a folder of the given name.
func newRigAt(t *testing.T, folder string, adjust ...func(*rig)) *rig {
	t.Helper()
	require(t)
	uid := 61000 + rand.IntN(900)
	base, err := os.MkdirTemp("", "bsd-") // short: sockets lie below it
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(base) })
	must(t, os.Chmod(base, 0o755))
	inner := filepath.Join(base, folder)
	r := &rig{t: t, uid: uid, news: make(chan news, 100), log: &syncBuffer{}}
	r.options = wireOptions{
		Display: freeDisplay(t), WidthPx: 1024, HeightPx: 640,
		Home: filepath.Join(inner, "home"), RuntimeDir: filepath.Join(inner, "run"), XDir: filepath.Join(inner, "x"),
		Env: []string{"PATH=/usr/local/bin:/usr/bin:/bin"},
	}
	for _, dir := range []string{inner, r.options.Home, r.options.XDir} {
		must(t, os.Mkdir(dir, 0o700))
		must(t, os.Chown(dir, uid, uid))
	}
	for _, change := range adjust {
		change(r)
	}
	r.launch(base)
	return r
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
		fail("needs root, to run a desktop under a spare uid")
	}
	find := finder(nil)
	for _, program := range []string{nameXServer, nameBus, nameWM, nameDesktop, namePanel, nameSettings, "setpriv"} {
		if _, err := find(program); err != nil {
			fail("needs %s", program)
		}
	}
	must(t, display.Host{}.PrepareSocketDir())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// freeDisplay picks a number far from those that people and other tests use.
func freeDisplay(t *testing.T) int {
	t.Helper()
	for range 100 {
		n := display.Number(10000 + rand.IntN(40000))
		if status, err := (display.Host{}).Inspect(n); err == nil && status.State == display.Free {
			return int(n)
		}
	}
	t.Fatal("no free display")
	return 0
}

func (r *rig) launch(base string) {
	t := r.t
	passwd, err := os.ReadFile("/etc/passwd")
	must(t, err)
	passwd = fmt.Appendf(passwd, "screen:x:%d:%d::%s:/bin/sh\n", r.uid, r.uid, r.options.Home)
	shadow := filepath.Join(base, "passwd")
	must(t, os.WriteFile(shadow, passwd, 0o644))
	// The uid must be able to execute us: go test builds into a private folder.
	self := filepath.Join(base, "session.test")
	binary, err := os.ReadFile("/proc/self/exe")
	must(t, err)
	must(t, os.WriteFile(self, binary, 0o755))

	r.cmd = exec.Command(self)
	if len(r.wrap) > 0 {
		r.cmd = exec.Command(r.wrap[0], append(r.wrap[1:], self)...)
	}
	if r.leak != nil {
		r.cmd.ExtraFiles = []*os.File{r.leak}
	}
	// Values a careless caller would pass on; DSP-15 looks for them.
	r.cmd.Env = append(os.Environ(),
		roleVariable+"="+roleRoot, fmt.Sprintf("BOTSCREEN_TEST_UID=%d", r.uid), "BOTSCREEN_TEST_PASSWD="+shadow,
		"DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/0/inherited", "SESSION_MANAGER=inherited",
		"WAYLAND_DISPLAY=inherited", "XDG_RUNTIME_DIR=/run/user/inherited", "DISPLAY=:inherited", "XAUTHORITY=/inherited",
		"NOMAD_TOKEN=CANARY", "AWS_SECRET_ACCESS_KEY=CANARY")
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: unix.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	r.in, err = r.cmd.StdinPipe()
	must(t, err)
	out, err := r.cmd.StdoutPipe()
	must(t, err)
	r.cmd.Stderr = r.log
	r.cmd.WaitDelay = 10 * time.Second
	must(t, r.cmd.Start())
	go func() {
		defer close(r.news)
		in := json.NewDecoder(bufio.NewReader(out))
		for {
			var n news
			if in.Decode(&n) != nil {
				return
			}
			r.news <- n
		}
	}()
	t.Cleanup(r.close)
}

// close ends the session and checks that nothing of its uid is left.
func (r *rig) close() {
	_ = r.in.Close()
	for range r.news {
	}
	_ = r.cmd.Wait()
	if left := processesOf(r.uid); len(left) > 0 {
		r.t.Errorf("left running: %v", left)
		for _, p := range left {
			_ = unix.Kill(p.pid, unix.SIGKILL)
		}
	}
	if r.t.Failed() {
		r.t.Logf("output of the desktop:\n%s", r.log)
	}
}

const answerLimit = time.Minute

// next returns the next news of a kind; what comes before it is kept in seen.
func (r *rig) next(kind string) news {
	r.t.Helper()
	limit := time.NewTimer(answerLimit)
	defer limit.Stop()
	for {
		select {
		case n, open := <-r.news:
			if !open {
				r.t.Fatalf("the session ended:\n%s", r.log)
			}
			if n.Kind == kind {
				return n
			}
			r.seen = append(r.seen, n)
		case <-limit.C:
			r.t.Fatalf("no %s within %s:\n%s", kind, answerLimit, r.log)
		}
	}
}

// event waits for an event of a kind, also if it came already.
func (r *rig) event(kind EventKind) Event {
	r.t.Helper()
	for i, n := range r.seen {
		if n.Kind == "event" && n.Event.Kind == kind {
			r.seen = append(r.seen[:i:i], r.seen[i+1:]...)
			return n.Event
		}
	}
	for {
		n := r.next("event")
		if n.Event.Kind == kind {
			return n.Event
		}
		r.seen = append(r.seen, n)
	}
}

func (r *rig) order(o order) news {
	r.t.Helper()
	if err := json.NewEncoder(r.in).Encode(o); err != nil {
		r.t.Fatalf("order %s: %v\n%s", o.Op, err, r.log)
	}
	return r.next("answer")
}

// tryStart starts the desktop and returns the answer, an error or not.
func (r *rig) tryStart(deadline time.Duration) news {
	r.t.Helper()
	return r.order(order{Op: "start", Options: r.options, Deadline: deadline})
}

func (r *rig) start() news {
	r.t.Helper()
	n := r.tryStart(30 * time.Second)
	if n.Err != "" {
		r.t.Fatalf("start: %s\n%s", n.Err, r.log)
	}
	return n
}

func (r *rig) stop() {
	r.t.Helper()
	if n := r.order(order{Op: "stop", Grace: 5 * time.Second}); n.Err != "" {
		r.t.Fatalf("stop: %s", n.Err)
	}
}

// x connects to the desktop's display as one of its programs would.
func (r *rig) x() *xclient {
	r.t.Helper()
	cookie, err := cookieFromFile(filepath.Join(r.options.XDir, fileAuthority))
	must(r.t, err)
	x, err := dialX(r.t.Context(), display.Number(r.options.Display), cookie, 0)
	must(r.t, err)
	r.t.Cleanup(x.close)
	return x
}

// command builds a command that runs as a program of the desktop does.
func (r *rig) command(name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(r.t.Context(), name, args...)
	cmd.Env = []string{
		"PATH=/usr/bin:/bin", "HOME=" + r.options.Home, fmt.Sprintf("DISPLAY=:%d", r.options.Display),
		"XAUTHORITY=" + filepath.Join(r.options.XDir, fileAuthority),
	}
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(r.uid), Gid: uint32(r.uid)}}
	return cmd
}

type runningProcess struct {
	pid  int
	name string
}

// processesOf lists the processes of a uid, zombies left out.
func processesOf(uid int) []runningProcess {
	entries, _ := os.ReadDir("/proc")
	var found []runningProcess
	for _, entry := range entries {
		var pid int
		if _, err := fmt.Sscan(entry.Name(), &pid); err != nil {
			continue
		}
		status, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "status"))
		if err != nil || !bytes.Contains(status, fmt.Appendf(nil, "\nUid:\t%d\t", uid)) || bytes.Contains(status, []byte("\nState:\tZ")) {
			continue
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(string(status), "Name:\t"), "\n")
		found = append(found, runningProcess{pid, name})
	}
	return found
}

func (r *rig) pidsOf(name string) []int {
	var pids []int
	for _, p := range processesOf(r.uid) {
		if p.name == name {
			pids = append(pids, p.pid)
		}
	}
	return pids
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

// selectionOwned reports whether somebody owns a selection.
func (x *xclient) selectionOwned(name string) (bool, error) {
	atom, err := x.atom(name)
	if err != nil {
		return false, err
	}
	reply, err := xproto.GetSelectionOwner(x.conn, atom).Reply()
	if err != nil {
		return false, err
	}
	return reply.Owner != 0, nil
}
