// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bufio"
	"bytes"
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

	"github.com/jezek/xgb/xproto"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/display"
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
		n := display.Number(30000 + rand.IntN(20000)) // 20000 to 29999 are those of suites that look for what is left
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

// ended waits for the news that the desktop is done, which may have come before
// the answer of the stop.
func (r *rig) ended() news {
	r.t.Helper()
	for _, n := range r.seen {
		if n.Kind == "done" {
			return n
		}
	}
	return r.next("done")
}

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
