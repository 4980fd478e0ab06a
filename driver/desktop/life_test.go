// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
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

// A start in a crowd ends in the same desktop.
func TestCrowdedStart(t *testing.T) {
	r := newRig(t)
	r.options.Crowded = true
	r.start()
	for _, name := range []string{nameXServer, nameBus, nameWM, nameDesktop, namePanel} {
		if pids := r.pidsOf(name); len(pids) != 1 {
			t.Errorf("%s: %v", name, pids)
		}
	}
	for deadline := time.Now().Add(20 * time.Second); len(r.pidsOf(nameSettings)) != 1; runtime.Gosched() { // it goes to the background on its own
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", nameSettings, r.pidsOf(nameSettings))
		}
	}
	r.stop()
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
	if done := r.ended(); done.Err != "" {
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

// DSP-15: no process of the desktop has a value of its caller's session, and the
// runtime directory is private.
func TestDSP15NothingInherited(t *testing.T) {
	r := newRig(t)
	n := r.start()
	checked := 0
	session, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", r.cmd.Process.Pid))
	must(t, err)
	for _, p := range processesOf(r.uid) {
		if words, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", p.pid)); err != nil || bytes.Equal(words, session) {
			continue // the session itself has what its caller gave it, and a child before its execve has it, too
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
// ignoredByUs reads SigIgn of a status file, see proc(5), without the C library's own
// 32 to 34: whoever started the tests may ignore those, and Go cannot change them.
func ignoredByUs(status string) uint64 {
	_, rest, _ := strings.Cut(status, "\nSigIgn:\t")
	mask, err := strconv.ParseUint(strings.TrimSpace(rest[:min(len(rest), 16)]), 16, 64)
	if err != nil {
		return 1
	}
	return mask &^ (7 << 31)
}

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
	if ignored := ignoredByUs(string(text)); ignored != 0 {
		t.Errorf("signals %#x are ignored: %s", ignored, text)
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
