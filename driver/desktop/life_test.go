// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/display"
)

// fakes makes a PATH in front of the system's with the given scripts.
func (r *rig) fakes(scripts map[string]string) {
	dir := filepath.Join(filepath.Dir(r.options.XDir), "fakes")
	_ = os.RemoveAll(dir)
	must(r.t, os.Mkdir(dir, 0o755))
	for name, body := range scripts {
		must(r.t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	}
	r.options.Env = []string{"PATH=" + dir + ":/usr/bin:/bin"}
}

// nothingLeft checks what a failed or ended desktop may not leave.
func (r *rig) nothingLeft() {
	r.t.Helper()
	for _, p := range processesOf(r.uid) {
		if p.pid != r.cmd.Process.Pid {
			r.t.Errorf("%s (%d) is left", p.name, p.pid)
		}
	}
	entries, err := os.ReadDir(r.options.XDir)
	must(r.t, err)
	for _, entry := range entries {
		r.t.Errorf("file %s is left", entry.Name())
	}
	if status, err := (display.Host{}).Inspect(display.Number(r.options.Display)); err != nil || status.State != display.Free {
		r.t.Errorf("display: %+v, %v, want free", status, err)
	}
}

// S6: nothing is published before the desktop is ready, and 0600 then.
func TestS6PublishedWhenReady(t *testing.T) {
	r := newRig(t)
	r.start()
	for _, name := range []string{fileEnv, fileDisplay, fileAuthority} {
		info, err := os.Stat(filepath.Join(r.options.XDir, name))
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(r.options.XDir, fileEnv))
	must(t, err)
	if !strings.Contains(string(text), fmt.Sprintf("DISPLAY=:%d\n", r.options.Display)) {
		t.Errorf("env is %q", text)
	}
	r.stop()
	r.nothingLeft()
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

// S9, DSP-16: who leaves its process group and ignores TERM ends, too, and
// orphans leave no zombies.
func TestDSP16DaemonsDieWithTheDesktop(t *testing.T) {
	r := newRig(t)
	mark := filepath.Join(r.options.Home, "up")
	daemon := `trap "" TERM HUP; echo up >>"$1"; while :; do sleep 1; done`
	r.options.Command = []string{"sh", "-c", `
		for i in 1 2 3; do setsid sh -c '(setsid sh -c "$0" sh "$1" &) ; exit 0' "$0" "$1"; done; exit 3`, daemon, mark}
	r.start()
	if e := r.event(EventExited); e.Status != 3 {
		t.Errorf("the command ended with %d, want 3", e.Status)
	}
	awaitLines(t, mark, 3)
	n := r.order(order{Op: "stop", Grace: 500 * time.Millisecond})
	if n.Err != "" || n.Took < 0.5 || n.Took > 5 {
		t.Errorf("stop took %.2f s: %s", n.Took, n.Err)
	}
	r.nothingLeft()
	if done := r.next("done"); done.Err != "" {
		t.Errorf("an ordinary stop left the reason %q", done.Err)
	}
	if zombies := zombiesOf(r.cmd.Process.Pid); zombies > 0 {
		t.Errorf("%d zombies", zombies)
	}
}

// awaitLines waits until a file has so many lines.
func awaitLines(t *testing.T, path string, count int) {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	must(t, err)
	watch := os.NewFile(uintptr(fd), "inotify")
	defer watch.Close()
	_, err = unix.InotifyAddWatch(fd, filepath.Dir(path), unix.IN_MODIFY|unix.IN_CREATE|unix.IN_CLOSE_WRITE)
	must(t, err)
	must(t, watch.SetReadDeadline(time.Now().Add(20*time.Second)))
	for {
		text, err := os.ReadFile(path)
		if err == nil && strings.Count(string(text), "\n") >= count {
			return
		}
		if _, err := watch.Read(make([]byte, 4096)); err != nil {
			t.Fatalf("%s has not %d lines: %q, %v", path, count, text, err)
		}
	}
}

func zombiesOf(parent int) int {
	entries, _ := os.ReadDir("/proc")
	count := 0
	for _, entry := range entries {
		status, err := os.ReadFile(filepath.Join("/proc", entry.Name(), "status"))
		if err == nil && strings.Contains(string(status), "\nState:\tZ") && strings.Contains(string(status), fmt.Sprintf("\nPPid:\t%d\n", parent)) {
			count++
		}
	}
	return count
}

// D6, I3: stopped and started again in one session, ten times: nothing adds up.
func TestSleepAndWake(t *testing.T) {
	r := newRig(t)
	descriptors := func() int {
		entries, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.cmd.Process.Pid))
		must(t, err)
		return len(entries)
	}
	var after []int
	for range 5 {
		r.start()
		r.order(order{Op: "fence"})
		r.stop()
		r.nothingLeft()
		after = append(after, descriptors())
	}
	if after[4] > after[1] {
		t.Errorf("open descriptors after each stop: %v", after)
	}
}

// The end of Xvnc is the end of the desktop, with the reason.
func TestXServerDeathEndsTheDesktop(t *testing.T) {
	r := newRig(t)
	pid := r.start().XServer
	must(t, unix.Kill(pid, unix.SIGKILL))
	done := r.next("done")
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

// DSP-15: no process of the desktop has a value of its caller's session, and the
// runtime directory is private.
func TestDSP15NothingInherited(t *testing.T) {
	r := newRig(t)
	n := r.start()
	checked := 0
	for _, p := range processesOf(r.uid) {
		if p.pid == r.cmd.Process.Pid {
			continue // the session itself has what its caller gave it
		}
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", p.pid))
		if err != nil {
			continue
		}
		checked++
		for _, entry := range strings.Split(string(text), "\x00") {
			if strings.Contains(entry, "inherited") || strings.Contains(entry, "CANARY") || strings.HasPrefix(entry, roleVariable) {
				t.Errorf("%s has %s", p.name, entry)
			}
		}
	}
	if checked < 5 {
		t.Errorf("only %d processes looked at", checked)
	}
	for _, entry := range n.Env {
		if strings.Contains(entry, "inherited") || strings.Contains(entry, "CANARY") {
			t.Errorf("Env has %s", entry)
		}
	}
	info, err := os.Stat(r.options.RuntimeDir)
	if err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("runtime directory: %v, %v", info, err)
	}
}

// S13: spaces, quotes and XML's own characters in every path.
func TestS13OddPaths(t *testing.T) {
	r := newRigAt(t, `it's "a" <b> & c`)
	r.start()
	if got, want := rgb(r.screenshot(), pointInWallpaper), rgb(drawWallpaper(r.options.WidthPx, r.options.HeightPx), pointInWallpaper); got != want {
		t.Errorf("wallpaper is %v, want %v", got, want)
	}
	r.stop()
	r.nothingLeft()
}

// S8a: children have default signals and no descriptor that our caller forgot.
func TestS8aDefaultSignalsNoLeakedDescriptors(t *testing.T) {
	leak, err := os.Open("/etc/hostname")
	must(t, err)
	defer leak.Close()
	out := ""
	r := newRigAt(t, "plain", func(r *rig) {
		r.leak = leak
		r.wrap = []string{"/bin/sh", "-c", `trap "" HUP PIPE USR1; exec "$0"`}
		out = filepath.Join(r.options.Home, "out")
		r.options.Command = []string{"sh", "-c", `{ cat /proc/self/status; ls -l /proc/self/fd; } >"$0"`, out}
	})
	r.start()
	r.event(EventExited)
	text, err := os.ReadFile(out)
	must(t, err)
	if !strings.Contains(string(text), "\nSigIgn:\t0000000000000000\n") {
		t.Errorf("signals are ignored: %s", text)
	}
	if strings.Contains(string(text), "/etc/hostname") {
		t.Errorf("a descriptor leaked: %s", text)
	}
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.pidsOf(nameXServer)[0]))
	must(t, err)
	for _, name := range names {
		target, _ := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", r.pidsOf(nameXServer)[0], name.Name()))
		if target == "/etc/hostname" {
			t.Error("a descriptor leaked into Xvnc")
		}
	}
}

// DSP-17: nobody reads the log and a program floods it; the screen still answers.
func TestDSP17UnreadLog(t *testing.T) {
	r := newRig(t)
	r.options.SlowLog = true
	r.options.Command = []string{"sh", "-c", "head -c 20000000 /dev/zero | tr '\\0' x | fold -w 500; exit 4"}
	r.start()
	if e := r.event(EventExited); e.Status != 4 {
		t.Errorf("the flooding program ended with %d, want 4: %s", e.Status, e.Detail)
	}
	if n := r.order(order{Op: "dial"}); n.Greets != 100 { // each writes some lines to Xvnc's log
		t.Errorf("%d viewers greeted: %s", n.Greets, n.Err)
	}
	r.screenshot()
	r.stop()
}

// S4: what a person changed survives the next start.
func TestS4SettingsSurvive(t *testing.T) {
	r := newRig(t)
	r.start()
	r.stop()
	channels := filepath.Join(r.options.Home, ".config", channelDir)
	panel := filepath.Join(channels, "xfce4-panel.xml")
	text, err := os.ReadFile(panel)
	must(t, err)
	changed := strings.Replace(string(text), `name="size" type="uint" value="28"`, `name="size" type="uint" value="40"`, 1)
	if changed == string(text) {
		t.Fatal("the panel's size is not where the test looks for it")
	}
	must(t, os.WriteFile(panel, []byte(changed), 0o600))
	must(t, os.Chown(panel, r.uid, r.uid))
	r.start()
	for _, w := range r.order(order{Op: "windows"}).Windows {
		if w.Type == "dock" && w.HeightPx < 40 { // 28 unchanged, plus a border
			t.Errorf("the panel is %d px high, want 40", w.HeightPx)
		}
	}
}

// The complete settings are complete: xfwm4 writes nothing back on a first start.
func TestSettingsAreNotWrittenBack(t *testing.T) {
	r := newRig(t)
	r.start()
	r.stop() // xfconfd writes what has changed when it ends
	o := r.options.options().withDefaults()
	files, err := seeds(o)
	must(t, err)
	for _, f := range files {
		if !strings.HasSuffix(f.Path, "/xfwm4.xml") && !strings.HasSuffix(f.Path, "/xfce4-panel.xml") {
			continue
		}
		now, err := os.ReadFile(filepath.Join(o.ConfigHome, f.Path))
		must(t, err)
		if string(now) != string(f.Content) {
			t.Errorf("%s was written back: an entry is missing or has another type", f.Path)
		}
	}
}

func TestWindows(t *testing.T) {
	r := newRig(t)
	r.options.Command = []string{"xfce4-terminal", "--title=the title", "--disable-server"}
	if _, err := exec.LookPath("xfce4-terminal"); err != nil {
		t.Skip("needs xfce4-terminal")
	}
	r.start()
	seen := map[string]Window{}
	deadline := time.Now().Add(20 * time.Second)
	for seen["normal"].ID == 0 && time.Now().Before(deadline) {
		for _, w := range r.order(order{Op: "windows"}).Windows {
			seen[w.Type] = w
		}
	}
	if w := seen["dock"]; w.WidthPx != r.options.WidthPx || w.Y != 0 {
		t.Errorf("panel: %+v", w)
	}
	if w := seen["desktop"]; w.WidthPx != r.options.WidthPx || w.HeightPx != r.options.HeightPx {
		t.Errorf("background: %+v", w)
	}
	if w := seen["normal"]; !strings.Contains(w.Title.String(), "the title") || w.PID == 0 {
		t.Errorf("terminal: %+v", w)
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

// The reaper takes orphans and leaves the status of owned children alone.
func TestReaperLeavesOwnedChildrenAlone(t *testing.T) {
	r := newRig(t)
	r.options.Command = []string{"sh", "-c", "for i in $(seq 200); do (true &) ; done; exit 42"}
	r.start()
	if e := r.event(EventExited); e.Status != 42 {
		t.Errorf("status %d, want 42", e.Status)
	}
	r.stop()
	if zombies := zombiesOf(r.cmd.Process.Pid); zombies > 0 {
		t.Errorf("%d zombies", zombies)
	}
}

// S4: what was changed while the desktop ran is on disk after a stop.
func TestS4ChangesAreSaved(t *testing.T) {
	if _, err := exec.LookPath("xfconf-query"); err != nil {
		t.Skip("needs xfconf-query")
	}
	r := newRig(t)
	r.options.Command = []string{"xfconf-query", "-c", "xfwm4", "-p", "/general/title_alignment", "-s", "left"}
	r.start()
	if e := r.event(EventExited); e.Status != 0 {
		t.Fatalf("xfconf-query: %+v", e)
	}
	r.stop()
	text, err := os.ReadFile(filepath.Join(r.options.Home, ".config", channelDir, "xfwm4.xml"))
	must(t, err)
	if !strings.Contains(string(text), `name="title_alignment" type="string" value="left"`) {
		t.Error("the change is lost")
	}
}

// D6: several sessions come up at once, each with a desktop of its own.
func TestD6SeveralAtOnce(t *testing.T) {
	var rigs []*rig
	for range 3 {
		rigs = append(rigs, newRig(t))
	}
	for _, r := range rigs {
		must(t, json.NewEncoder(r.in).Encode(order{Op: "start", Options: r.options, Deadline: 40 * time.Second}))
	}
	servers := map[int]bool{}
	for _, r := range rigs {
		if n := r.next("answer"); n.Err != "" {
			t.Errorf("start: %s", n.Err)
		}
		servers[r.pidsOf(nameXServer)[0]] = true
	}
	if len(servers) != len(rigs) {
		t.Errorf("%d X servers for %d desktops", len(servers), len(rigs))
	}
	for _, r := range rigs {
		if n := r.order(order{Op: "fence"}); !n.Fence.Enforced {
			t.Errorf("fence: %s", n.Fence.Reason)
		}
		r.stop()
		r.nothingLeft()
	}
}
