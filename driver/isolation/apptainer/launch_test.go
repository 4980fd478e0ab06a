// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/isolationtest"
	"github.com/botscreen/botscreen/driver/isolation/namespace"
)

// APT-08 and DOC-09 among others.
func TestConformance(t *testing.T) {
	root, browser := desktopRoot(t), os.Getenv(browserVariable)
	dirs := []string{filepath.Dir(root)}
	if browser != "" {
		dirs = append(dirs, filepath.Dir(browser))
	}
	b := boundary(t, dirs...)
	isolationtest.Run(t, isolationtest.Suite{
		Image: root, BrowserImage: browser,
		Inside: map[string]string{
			"grep NoNewPrivs /proc/self/status":                                               "NoNewPrivs:\t1\n",
			"unshare --user --map-root-user echo works":                                       "works\n", // X23
			"grep ^Seccomp: /proc/self/status":                                                "Seccomp:\t2\n",
			"unshare --user --map-root-user sh -c 'mount -t tmpfs none /mnt && echo mounted'": "",       // X23
			"df -m --output=size /dev/shm | tail -n 1 | tr -d ' '":                            "1024\n", // DOC-09
			"df -m --output=size /tmp | tail -n 1 | tr -d ' '":                                "1024\n",
			"cat /proc/1/environ >/dev/null 2>&1 || echo refused":                             "refused\n", // X13
			"env | grep -i -e apptainer -e singularity -e LD_":                                "",          // X8
			"stat -c %A /tmp/.X11-unix":                                                       "drwxrwxrwt\n",
			"hostname | cut -d- -f1; cat /etc/machine-id | wc -c":                             "screen\n33\n",
			"ls /opt":                         "",
			"stat -c %a \"$XDG_RUNTIME_DIR\"": "700\n", // APT-08
			"touch /etc/x /usr/x 2>/dev/null || echo read-only": "read-only\n",
		},
		New:  func(t *testing.T) isolation.Boundary { return boundary(t, dirs...) },
		Left: func(t *testing.T, order isolation.Order) []string { return left(t, b, order) },
		Destroy: func(t *testing.T, record isolation.Record) {
			must(t, unix.Kill(record.Session.PID, unix.SIGKILL))
		},
	})
}

// P10: an image without a desktop is named with what it lacks.
func TestP10ImageWithoutDesktop(t *testing.T) {
	dir, image := emptyRoot(t)
	b := boundary(t, dir)
	isolationtest.RunWithoutDesktop(t, isolationtest.Suite{
		Image: image,
		New:   func(t *testing.T) isolation.Boundary { return boundary(t, dir) },
		Left:  func(t *testing.T, order isolation.Order) []string { return left(t, b, order) },
	}, "Xvnc")
}

// X7, P9, APT-03, X35: every process of a screen, apptainer's own included, has the
// screen's uid and no other, and is in the screen's cgroup; the session's are in
// namespaces of their own.
func TestX7OwnUidCgroupAndNamespaces(t *testing.T) {
	dir, image := emptyRoot(t)
	b := boundary(t, dir)
	order := newOrder(t, image)
	order.Limits = cgroup.Limits{PidsMax: 300, MemoryBytes: 512 << 20}
	s := launched(t, b, order)
	counted, err := s.group.Procs()
	must(t, err)
	pids := pidsOf(order.Account.UID)
	if len(pids) < 2 || fmt.Sprint(pids) != fmt.Sprint(counted) {
		t.Errorf("processes %v, in the cgroup %v", pids, counted)
	}
	for _, pid := range counted {
		status, err := namespace.Status(pid)
		must(t, err)
		uid := strconv.Itoa(int(order.Account.UID))
		if want := strings.Join([]string{uid, uid, uid, uid}, " "); status["Uid"] != want || status["Gid"] != want {
			t.Errorf("pid %d %s has uids %s and gids %s, want %s", pid, status["Name"], status["Uid"], status["Gid"], want)
		}
	}
	for _, kind := range []string{"user", "pid", "mnt", "ipc", "uts"} {
		ours, _ := os.Readlink("/proc/self/ns/" + kind)
		its, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", s.Session().PID, kind))
		if err != nil || its == ours {
			t.Errorf("the session's %s namespace is %s, ours %s (%v)", kind, its, ours, err)
		}
	}
	usage, err := s.Usage(bounded(t))
	if err != nil || usage.Pids == nil || usage.Pids.Max != 300 || usage.Memory == nil || usage.Memory.Limit != 512<<20 {
		t.Errorf("limits %+v %+v %v", usage.Pids, usage.Memory, err)
	}
}

// X7: of the node's folders nothing is inside but what is bound: its mount table says so.
func TestX7OnlyOurBinds(t *testing.T) {
	dir, image := emptyRoot(t)
	b := boundary(t, dir)
	order := newOrder(t, image)
	s := launched(t, b, order)
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", s.Session().PID))
	must(t, err)
	wanted := map[string]bool{}
	for _, bind := range binds(order, view{order.Scratch}) {
		wanted[bind.target] = false
	}
	for line := range strings.Lines(string(text)) {
		fields := strings.Fields(line)
		target, fs := cgroup.Unescape(fields[4]), fields[len(fields)-3]
		_, ours := wanted[target]
		switch {
		case ours:
			wanted[target] = true
		case target == "/" || strings.HasPrefix(target, "/dev") || strings.HasPrefix(target, "/proc") || strings.HasPrefix(target, "/sys"):
		case target == "/etc/resolv.conf" || target == "/etc/hostname": // the network is the node's, the name ours
		default:
			t.Errorf("mounted besides: %s (%s)", target, fs)
		}
	}
	for target, mounted := range wanted {
		if !mounted {
			t.Errorf("not mounted: %s", target)
		}
	}
}

// X35: a kill holds apptainer, which outlives the session by a moment, and nobody who ends
// with the session: a fork bomb has more processes than this one may have files.
func TestX35KillHoldsWhatIsOutside(t *testing.T) {
	dir, image := emptyRoot(t)
	s := launched(t, boundary(t, dir), newOrder(t, image))
	held := map[int]bool{}
	for _, h := range s.outside() {
		held[h.PID] = true
		must(t, h.Close())
	}
	if !held[s.cmd.Process.Pid] || held[s.Session().PID] {
		t.Errorf("holds %v, want apptainer (%d) and not the session (%d)", held, s.cmd.Process.Pid, s.Session().PID)
	}
}

// P9, X7: never as root, and refused in words that say what to do.
func TestP9NeverRoot(t *testing.T) {
	dir, image := emptyRoot(t)
	b := New(Options{Path: "/bin/true", ImageDirs: []string{dir}})
	for name, account := range map[string]isolation.Account{
		"root":   {UID: 0, GID: 0, Name: "root"},
		"wheel":  {UID: 1000, GID: 0, Name: "wheel"},
		"groups": {UID: 1000, GID: 1000, Groups: []uint32{44}, Name: "video"},
	} {
		order := isolation.Order{Account: account, Image: image, Instance: isolationtest.NewInstance(), Scratch: t.TempDir()}
		_, err := b.Launch(t.Context(), order)
		var refused *RefusedError
		if !errors.As(err, &refused) || !strings.Contains(refused.Sentence(), "user") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// X8, P8: apptainer sees nothing of the plugin's environment, and the session nothing
// that apptainer was told.
func TestX8EngineEnvironment(t *testing.T) {
	dir, image := emptyRoot(t)
	b := boundary(t, dir)
	for _, name := range []string{"APPTAINER_BIND", "SINGULARITY_BINDPATH", "APPTAINERENV_LD_PRELOAD"} {
		t.Setenv(name, "/etc/shadow:/x")
	}
	t.Setenv("LD_PRELOAD", "/x")
	order := newOrder(t, image)
	s := launched(t, b, order)
	for _, pid := range pidsOf(order.Account.UID) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
		must(t, err)
		for _, word := range []string{"/etc/shadow", "LD_PRELOAD", "BINDPATH"} {
			if strings.Contains(string(text), word) {
				t.Errorf("pid %d sees %s: %q", pid, word, text)
			}
		}
	}
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", s.Session().PID))
	must(t, err)
	if strings.Contains(string(mounts), "/shadow") {
		t.Errorf("bound by the environment:\n%s", mounts)
	}
}

// APT-05, APT-06: there is no instance record that another HOME could hide or a dead one
// that could lie: nothing is written outside of the launch's own directory.
func TestAPT05NoInstanceRecord(t *testing.T) {
	dir, image := emptyRoot(t)
	b := boundary(t, dir)
	t.Setenv("HOME", folder(t, 0o755))
	t.Setenv("APPTAINER_CONFIGDIR", folder(t, 0o755))
	order := newOrder(t, image)
	launched(t, b, order)
	for _, place := range []string{os.Getenv("HOME"), os.Getenv("APPTAINER_CONFIGDIR"), order.Home, order.Scratch} {
		entries, err := os.ReadDir(place)
		must(t, err)
		for _, entry := range entries {
			if entry.Name() != "messages" { // what apptainer says at a start
				t.Errorf("%s has %s", place, entry.Name())
			}
		}
	}
}

// S8: an image that apptainer cannot run is told in its own words, and nothing is left.
func TestBrokenImage(t *testing.T) {
	dir := folder(t, 0o755)
	b := boundary(t, dir)
	image := filepath.Join(dir, "broken.sif")
	must(t, os.WriteFile(image, []byte("not an image"), 0o644))
	order := newOrder(t, image)
	_, err := b.Launch(bounded(t), order)
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Sentence(), "image") || strings.Contains(refused.Sentence(), "last words: none") {
		t.Errorf("%v", err)
	}
	if found := left(t, b, order); len(found) > 0 {
		t.Errorf("left %v", found)
	}
}

// A SIF file runs as a directory does, and its helper that is its file system ends with it.
func TestSIF(t *testing.T) {
	dir, image := emptyRoot(t)
	b := boundary(t, dir)
	sif := filepath.Join(dir, "desk.sif")
	if reason := fuseOff(); reason != "" {
		t.Skip("needs files as images: " + reason)
	}
	build := exec.Command(b.options.Path, "--silent", "build", sif, image)
	build.Env = engineEnvironment(folder(t, 0o700))
	if out, err := build.CombinedOutput(); err != nil {
		t.Skipf("needs an apptainer that can build: %v\n%s", err, out)
	}
	found, err := b.Resolve(bounded(t), isolation.ImageOrder{Reference: "desk.sif"}, func() { t.Error("pulled") })
	must(t, err)
	if found.Reference != sif || !strings.HasPrefix(found.Digest, "sha256:") {
		t.Errorf("%+v", found)
	}
	order := newOrder(t, found.Reference)
	s := launched(t, b, order)
	must(t, s.Kill(bounded(t)))
	must(t, s.Remove(bounded(t)))
	if found := left(t, b, order); len(found) > 0 {
		t.Errorf("left %v", found)
	}
}

// P3: whoever kills apptainer or the session from outside ends the screen, with a reason.
func TestP3KilledFromOutside(t *testing.T) {
	dir, image := emptyRoot(t)
	b := boundary(t, dir)
	for _, who := range []string{"session", "apptainer"} {
		order := newOrder(t, image)
		s := launched(t, b, order)
		pid := s.Session().PID
		if who == "apptainer" {
			pid = s.cmd.Process.Pid
		}
		must(t, unix.Kill(pid, unix.SIGKILL))
		awaitDone(t, s)
		if reason := s.EndReason(); !strings.Contains(reason, "is gone") {
			t.Errorf("%s killed: %q, status %+v", who, reason, s.status)
		}
		must(t, s.Kill(bounded(t)))
		must(t, s.Remove(bounded(t)))
		if found := left(t, b, order); len(found) > 0 {
			t.Errorf("%s killed: left %v", who, found)
		}
	}
}

// Where AppArmor decides who makes user namespaces, a failed start says so.
func TestUnconfinedHint(t *testing.T) {
	root := t.TempDir()
	if hint := unconfinedHint("/opt/apptainer", root); hint != "" {
		t.Errorf("a node without AppArmor: %s", hint)
	}
	dir := filepath.Join(root, "proc/sys/kernel")
	must(t, os.MkdirAll(dir, 0o755))
	must(t, os.WriteFile(filepath.Join(dir, "apparmor_restrict_unprivileged_userns"), []byte("1\n"), 0o644))
	if hint := unconfinedHint("/opt/apptainer", root); !strings.Contains(hint, "give /opt/apptainer an AppArmor profile") || !strings.Contains(hint, "=0`") {
		t.Errorf("Ubuntu: %s", hint)
	}
}
