// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// order is what the test tells its session, one JSON value per line.
type order struct {
	Op       string        `json:"op"` // start, stop, fence, windows, dial
	Options  wireOptions   `json:"options"`
	Deadline time.Duration `json:"deadline"`
	Grace    time.Duration `json:"grace"`
	Layout   string        `json:"layout"`
	Text     string        `json:"text"`
	Argv     []string      `json:"argv"`
	Marked   bool          `json:"marked"`
	Grabs    bool          `json:"grabs"`
	Client   uint32        `json:"client"`
	PID      int           `json:"pid"`
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
	ClipboardEvents                    bool
	Crowded                            bool
	NoTrace                            bool // tracing is forbidden, as Yama or a sandbox may do
}

func (w wireOptions) options() Options {
	return Options{
		Display: w.Display, WidthPx: w.WidthPx, HeightPx: w.HeightPx, Depth: w.Depth, DPI: w.DPI, GLX: w.GLX,
		KeyboardLayout: w.KeyboardLayout, Look: w.Look, Home: w.Home, ConfigHome: w.ConfigHome,
		RuntimeDir: w.RuntimeDir, XDir: w.XDir, Env: w.Env, Command: w.Command, Executable: w.Executable,
		ClipboardEvents: w.ClipboardEvents, Crowded: w.Crowded,
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
	Focus   Focus    `json:"focus"`
	Pointer Pointer  `json:"pointer,omitzero"`
	Text    string   `json:"text,omitempty"`   // of the clipboard
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
	held    []*os.File // viewers' connections
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
	case "compare":
		s.desktop.Compare()
	case "hold":
		err = s.holdViewer(ctx, o.Text, int([]rune(o.Layout)[0]))
	case "pointer":
		answer.Pointer, err = s.desktop.Pointer(ctx)
	case "clipboard":
		answer.Text, err = s.desktop.Clipboard(ctx)
	case "set clipboard":
		err = s.desktop.SetClipboard(ctx, o.Text)
	case "wipe clipboard":
		err = s.desktop.WipeClipboard(ctx)
	case "type":
		err = s.typeText(ctx, o.Text)
	case "layout":
		err = s.desktop.SetKeyboardLayout(ctx, o.Layout)
	case "spawn":
		err = s.spawn(o)
	case "end marked":
		err = s.desktop.EndMarked(ctx)
	case "clear":
		err = s.desktop.Clear(ctx)
	case "focus":
		answer.Focus, err = s.desktop.Focus(ctx, o.Grabs)
	case "end client":
		err = s.desktop.EndClient(ctx, o.Client, o.PID)
	case "lines":
		answer.Lines = s.desktop.LastLines()
	}
	answer.Took = time.Since(began).Seconds()
	if err != nil {
		answer.Err, answer.Type = err.Error(), fmt.Sprintf("%T", err)
	}
	s.tell(answer)
}

// spawn starts a program beside the desktop, as a command of exec.
func (s *testSession) spawn(o order) error {
	cmd := exec.Command(o.Argv[0], o.Argv[1:]...)
	cmd.Env = s.desktop.Env()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	start := s.reaper.Start
	if o.Marked {
		start = func(cmd *exec.Cmd) error {
			weak, err := s.reaper.StartMarked(cmd)
			return errors.Join(weak, err)
		}
	}
	if err := start(cmd); err != nil {
		return err
	}
	go func() { _ = s.reaper.Wait(cmd) }()
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

// holdViewer opens a connection, sends something and waits until the server has sent so
// many bytes. It stays open.
func (s *testSession) holdViewer(ctx context.Context, send string, receive int) error {
	conn, err := s.desktop.DialRFB(ctx)
	if err != nil {
		return err
	}
	s.held = append(s.held, conn)
	if _, err := io.WriteString(conn, send); err != nil {
		return err
	}
	_, err = io.ReadFull(conn, make([]byte, receive))
	return err
}

// typeText types characters as a person's first keys on this desktop.
func (s *testSession) typeText(ctx context.Context, text string) error {
	conn, err := s.desktop.DialRFB(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := shakeHands(conn); err != nil {
		return err
	}
	var keys []byte
	for _, r := range text {
		for _, down := range []byte{1, 0} {
			keys = append(keys, 4, down, 0, 0)
			keys = binary.BigEndian.AppendUint32(keys, 0x01000000|uint32(r)) // X11's Unicode keysyms
		}
	}
	if _, err := conn.Write(keys); err != nil {
		return err
	}
	return firstKey(conn) // waits for it too
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

// The component tests run real desktops under a spare uid. The test binary
// starts itself twice: as root in a mount namespace of its own, to give the uid
// a passwd entry, and then, as that uid, as the session that the test drives
// over a pipe.
const (
	roleVariable = "BOTSCREEN_TEST_ROLE"
	roleRoot     = "namespace"
	roleSession  = "session"
)

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

func (blockedWriter) Write([]byte) (int, error) { select {} }
