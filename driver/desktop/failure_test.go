// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/display"
)

// D3: a number that somebody has is told apart, however it is held.
func TestDisplayTaken(t *testing.T) {
	for name, occupy := range map[string]func(t *testing.T, n display.Number){
		"abstract name": func(t *testing.T, n display.Number) {
			listener, err := net.Listen("unix", fmt.Sprintf("@/tmp/.X11-unix/X%d", int(n)))
			must(t, err)
			t.Cleanup(func() { _ = listener.Close() })
		},
		"lock of a living process": func(t *testing.T, n display.Number) {
			must(t, os.WriteFile(n.LockPath("/tmp"), fmt.Appendf(nil, "%10d\n", os.Getpid()), 0o444))
			t.Cleanup(func() { _ = os.Remove(n.LockPath("/tmp")) })
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			occupied := r.options.Display
			occupy(t, display.Number(occupied))
			if n := r.tryStart(10 * time.Second); n.Type != "*desktop.DisplayTakenError" {
				t.Errorf("start: %s %s, want *desktop.DisplayTakenError", n.Type, n.Err)
			}
			r.options.Display = freeDisplay(t)
			r.nothingLeft()
			r.start() // the next number works
		})
	}
}

// DSP-10: the error lists every missing program, nothing is left, and the next
// start works.
func TestDSP10NothingLeftAfterMissing(t *testing.T) {
	r := newRig(t)
	empty := filepath.Join(filepath.Dir(r.options.XDir), "bin")
	must(t, os.Mkdir(empty, 0o755))
	must(t, os.Symlink("/usr/bin/"+nameXServer, filepath.Join(empty, nameXServer)))
	r.options.Env = []string{"PATH=" + empty}
	n := r.tryStart(10 * time.Second)
	if n.Type != "*desktop.MissingError" {
		t.Fatalf("start: %s %s", n.Type, n.Err)
	}
	for _, program := range []string{nameBus, nameWM, nameDesktop, namePanel, nameSettings} {
		if !strings.Contains(n.Err, program) {
			t.Errorf("%s is not named in %q", program, n.Err)
		}
	}
	if strings.Contains(n.Err, nameXServer) {
		t.Errorf("%s is there, but named in %q", nameXServer, n.Err)
	}
	r.nothingLeft()
	r.options.Env = nil
	r.start()
}

// S8: a start that dies young says so at once, with status and last lines.
func TestS8EarlyDeathIsReported(t *testing.T) {
	for _, program := range []string{nameWM, namePanel, nameDesktop, nameBus, nameXServer} {
		t.Run(program, func(t *testing.T) {
			r := newRig(t)
			r.fakes(map[string]string{program: "echo the reason is here >&2; exit 7"})
			n := r.tryStart(20 * time.Second)
			if n.Type != "*desktop.DiedError" || !strings.Contains(n.Err, program+" exited 7") || !strings.Contains(n.Err, "the reason is here") {
				t.Errorf("start: %s %s", n.Type, n.Err)
			}
			if n.Took > 10 {
				t.Errorf("reported after %.1f s only", n.Took)
			}
			r.nothingLeft()
		})
	}
}

// S7, DSP-13: a start that misses its deadline is killed whole, says what is
// missing, and does not publish itself later.
func TestDSP13Deadline(t *testing.T) {
	r := newRig(t)
	r.fakes(map[string]string{nameWM: "trap '' TERM; echo hanging; while :; do sleep 1; done"})
	n := r.tryStart(2 * time.Second)
	if n.Type != "*desktop.NotReadyError" || !strings.Contains(n.Err, "no window manager announced itself") || !strings.Contains(n.Err, "hanging") {
		t.Errorf("start: %s %s", n.Type, n.Err)
	}
	if n.Took < 1.9 || n.Took > 8 {
		t.Errorf("ended after %.1f s, want about 2", n.Took)
	}
	r.nothingLeft()
	r.options.Env = nil
	r.start()
}

// S7: the same when the X server itself hangs.
func TestS7HangingServer(t *testing.T) {
	r := newRig(t)
	r.fakes(map[string]string{nameXServer: "sleep 600"})
	n := r.tryStart(time.Second)
	if n.Type != "*desktop.NotReadyError" || !strings.Contains(n.Err, "Xvnc did not accept clients") {
		t.Errorf("start: %s %s", n.Type, n.Err)
	}
	r.nothingLeft()
}

// The end of Xvnc is the end of the desktop, with the reason.
func TestXServerDeathEndsTheDesktop(t *testing.T) {
	r := newRig(t)
	pid := r.start().XServer
	must(t, unix.Kill(pid, unix.SIGKILL))
	done := r.ended()
	if done.Type != "*desktop.DiedError" || !strings.Contains(done.Err, "Xvnc killed by signal 9") {
		t.Errorf("done: %s %s", done.Type, done.Err)
	}
	r.nothingLeft()
}

// A component that dies comes back; the desktop lives.
func TestComponentIsRestarted(t *testing.T) {
	r := newRig(t)
	pid := r.start().XServer
	for _, name := range []string{nameWM, namePanel, nameDesktop} {
		for _, pid := range r.pidsOf(name) {
			must(t, unix.Kill(pid, unix.SIGKILL))
		}
		e := r.event(EventRestarted)
		if e.Program != name || e.PID == 0 || !strings.Contains(e.Detail, "signal 9") {
			t.Errorf("event %+v, want a restart of %s", e, name)
		}
	}
	if unix.Kill(pid, 0) != nil {
		t.Error("the X server is gone")
	}
}

// A component that dies in a loop is given up, and the desktop lives.
func TestComponentIsGivenUp(t *testing.T) {
	r := newRig(t)
	// Comes up well once; afterwards it dies at once.
	mark := filepath.Join(r.options.Home, "seen")
	r.fakes(map[string]string{namePanel: `if [ -e "` + mark + `" ]; then exit 9; fi; : >"` + mark + `"; exec /usr/bin/` + namePanel + ` "$@"`})
	pid := r.start().XServer
	for _, pid := range r.pidsOf(namePanel) {
		must(t, unix.Kill(pid, unix.SIGKILL))
	}
	if e := r.event(EventGaveUp); e.Program != namePanel || !strings.Contains(e.Detail, "exited 9") {
		t.Errorf("event %+v", e)
	}
	if unix.Kill(pid, 0) != nil {
		t.Error("the X server is gone")
	}
}

// X2: an X server that the desktop itself could replace is not started.
func TestX2OwnServerIsRefused(t *testing.T) {
	r := newRig(t)
	dir := filepath.Join(r.options.Home, "bin")
	must(t, os.Mkdir(dir, 0o755))
	must(t, os.Symlink("/usr/bin/"+nameXServer, filepath.Join(dir, nameXServer)))
	must(t, os.Chown(dir, r.uid, r.uid))
	r.options.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
	if n := r.tryStart(10 * time.Second); n.Type != "*desktop.ownProgramError" {
		t.Errorf("start: %s %s", n.Type, n.Err)
	}
}

// X29: never as root.
func TestX29NeverAsRoot(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root to be refused")
	}
	o := plainOptions()
	if _, err := Start(t.Context(), o, NewReaper()); err == nil || !strings.Contains(err.Error(), "never runs as root") {
		t.Errorf("start as root: %v", err)
	}
}

// DSP-08: a second desktop in the same place is refused before anything runs.
func TestDSP08SecondStartInOnePlace(t *testing.T) {
	r := newRig(t)
	pid := r.start().XServer
	first := r.options.Display
	r.options.Display = freeDisplay(t)
	if n := r.tryStart(10 * time.Second); n.Type != "*desktop.HeldError" {
		t.Errorf("second start: %s %s, want *desktop.HeldError", n.Type, n.Err)
	}
	if n := r.order(order{Op: "dial"}); n.Greets != 100 {
		t.Errorf("the first desktop's viewers are gone: %s", n.Err)
	}
	if unix.Kill(pid, 0) != nil {
		t.Error("the first desktop's X server is gone")
	}
	r.options.Display = first
}
