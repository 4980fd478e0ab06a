// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/volume"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/isolationtest"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/rfb"
	"github.com/botscreen/botscreen/shared/screen"
)

// elsewhereVariable says to a test that it runs in namespaces of its own by now: "pids" where
// it sees none of the engine's processes, "files" where the engine sees none of its files
// either, "network" in another network.
const elsewhereVariable = "BOTSCREEN_TEST_ELSEWHERE"

// elsewhere runs the test that calls it anew, with all that it starts, in namespaces of
// its own, in which the engine is as far away as one on another kernel. It returns true in
// that run and false in the one that only passes on what comes of it.
func elsewhere(t *testing.T, what string) bool {
	t.Helper()
	if !again(t, what, unix.CLONE_NEWPID|unix.CLONE_NEWNS) {
		return false
	}
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(t, unix.Mount("proc", "/proc", "proc", unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""))
	if what == "files" {
		must(t, unix.Mount("tmpfs", os.TempDir(), "tmpfs", 0, "mode=0711"))
	}
	return true
}

// again runs the test that calls it anew in namespaces of its own, and with a folder of its
// own for what it makes. It returns true in that run.
func again(t *testing.T, what string, namespaces uintptr) bool {
	t.Helper()
	if os.Getenv(elsewhereVariable) != "" {
		return true
	}
	boundary(t) // the same needs
	dir, err := os.MkdirTemp("", "bsx-")
	must(t, err)
	defer os.RemoveAll(dir)
	must(t, os.Chmod(dir, 0o711))
	arguments := []string{"-test.run", "^" + regexp.QuoteMeta(t.Name()) + "$", "-test.v", "-test.timeout", "5m"}
	cmd := exec.CommandContext(t.Context(), os.Args[0], arguments...)
	cmd.Env = append(os.Environ(), elsewhereVariable+"="+what, "TMPDIR="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: namespaces}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("there it ends with %v", err)
	}
	if strings.Contains(string(out), "--- SKIP") {
		t.Skip("skipped there, see above")
	}
	return false
}

// removeHomes takes away the homes that a driver's containers have on the engine.
func removeHomes(t *testing.T, b *Boundary) {
	t.Helper()
	t.Cleanup(func() {
		ctx := context.Background()
		all, err := b.api.VolumeList(ctx, volume.ListOptions{Filters: filters.NewArgs(filters.Arg("label", labelOwner+"="+b.owner))})
		must(t, err)
		for _, v := range all.Volumes {
			must(t, b.api.VolumeRemove(ctx, v.Name, true))
		}
	})
}

// A driver whose engine is elsewhere finds that out by itself, and everything holds that
// holds on this node: the whole suite, over the pipe.
func TestConformanceElsewhere(t *testing.T) {
	if !elsewhere(t, "files") {
		return
	}
	b, reference := boundary(t), desktopImage(t)
	isolationtest.Run(t, isolationtest.Suite{
		Image: reference, BrowserImage: os.Getenv(browserVariable), Inside: inside(t),
		New: func(t *testing.T) isolation.Boundary {
			again := boundary(t)
			removeHomes(t, again)
			return again
		},
		Left: func(t *testing.T, order isolation.Order) []string { return containersOf(t, b, order.Instance) },
		ReadHome: func(t *testing.T, order isolation.Order, path string) ([]byte, error) {
			return readInside(t, b, order, path)
		},
		Destroy: destroy(b),
	})
}

// readInside reads a file of a container as its engine has it.
func readInside(t *testing.T, b *Boundary, order isolation.Order, path string) ([]byte, error) {
	t.Helper()
	content, _, err := b.api.CopyFromContainer(bounded(t), containerOf(t, b, order.Instance), path)
	if err != nil {
		return nil, err
	}
	defer content.Close()
	archive := tar.NewReader(content)
	if _, err := archive.Next(); err != nil {
		return nil, err
	}
	return io.ReadAll(archive)
}

// newElsewhere is a boundary and an order for a session that nobody supervises.
func newElsewhere(t *testing.T) (*Boundary, isolation.Order) {
	t.Helper()
	b := boundary(t)
	removeHomes(t, b)
	return b, newOrder(t, emptyImage(t, b))
}

// Where the files are shared and the processes are not, as with a virtual machine, the
// first container tells: no process of this node is in it.
func TestElsewhereByProcesses(t *testing.T) {
	if !elsewhere(t, "pids") {
		return
	}
	b, order := newElsewhere(t)
	s := launched(t, b, order)
	if !b.elsewhere.Load() || !s.record.Piped || !s.record.Session.Alive() {
		t.Errorf("elsewhere %t, record %+v", b.elsewhere.Load(), s.record)
	}
	if left := containersOf(t, b, order.Instance); len(left) != 1 {
		t.Errorf("containers %v: the one that told is not gone", left)
	}
	// X5: nothing of this node is bound there.
	found, err := b.api.ContainerInspect(bounded(t), s.record.Container)
	must(t, err)
	for _, m := range found.Mounts {
		if m.Type == "bind" {
			t.Errorf("bound: %+v", m)
		}
	}
	var refused *RefusedError
	// P5: a profile that has a home here does not get an empty one there.
	again := order
	again.Instance = newInstance()
	marker := filepath.Join(order.Home, "login")
	must(t, os.WriteFile(marker, nil, 0o600))
	if _, err := b.Launch(bounded(t), again); !errors.As(err, &refused) || !strings.Contains(refused.Sentence(), order.Home) {
		t.Errorf("a home here: %v", err)
	}
	must(t, os.Remove(marker))
	order.Volumes = []isolation.Volume{{Base: order.Home, Path: ".", Target: "/data"}}
	if _, err := b.Launch(bounded(t), order); !errors.As(err, &refused) || !strings.Contains(refused.Sentence(), "`volumes`") {
		t.Errorf("volumes elsewhere: %v", err)
	}
}

// The pipe and the screen end with each other, and the words say what happened.
func TestElsewhereCut(t *testing.T) {
	if !elsewhere(t, "files") {
		return
	}
	b, order := newElsewhere(t)
	s := launched(t, b, order)
	must(t, unix.Kill(s.record.Session.PID, unix.SIGKILL))
	awaitDone(t, s)
	if reason := s.EndReason(); !strings.Contains(reason, "was cut") {
		t.Errorf("the reason is %q", reason)
	}
	found, err := b.api.ContainerInspect(bounded(t), s.record.Container)
	must(t, err)
	if found.State.Running {
		t.Error("the container goes on")
	}

	_, order = newElsewhere(t)
	s = launched(t, b, order)
	must(t, b.api.ContainerKill(bounded(t), s.record.Container, "KILL"))
	awaitDone(t, s)
	if status, ok := s.Status(); !ok || status != killed || s.EndReason() != "" {
		t.Errorf("%+v %t %q", status, ok, s.EndReason())
	}
}

// A profile's home on an engine elsewhere is removed when nothing runs on it, and nobody
// else's is.
func TestElsewhereHomeRemoved(t *testing.T) {
	if !elsewhere(t, "files") {
		return
	}
	b, order := newElsewhere(t)
	other := order
	other.Instance, other.ID.Profile = newInstance(), "another"
	s, o := launched(t, b, order), launched(t, b, other)
	homes := func(id screen.ID) []string {
		t.Helper()
		names, err := b.Homes(bounded(t), id)
		must(t, err)
		return names
	}
	if len(homes(order.ID)) != 1 {
		t.Fatalf("homes %v, want one", homes(order.ID))
	}
	if err := b.RemoveHomes(bounded(t), order.ID); err == nil || len(homes(order.ID)) != 1 {
		t.Errorf("one that is in use: %v", err)
	}
	for _, s := range []*sandbox{s, o} {
		must(t, s.Kill(bounded(t)))
		must(t, s.Remove(bounded(t)))
	}
	must(t, b.RemoveHomes(bounded(t), order.ID))
	if len(homes(order.ID)) != 0 || len(homes(other.ID)) != 1 {
		t.Errorf("left %v, and of the other one %v", homes(order.ID), homes(other.ID))
	}
	must(t, b.RemoveHomes(bounded(t), order.ID)) // again
}

// X38: an intent whose launch died names a container elsewhere, and its engine a pid that
// is a stranger's here; the stranger is left alone.
func TestElsewhereIntent(t *testing.T) {
	if !elsewhere(t, "pids") {
		return
	}
	b, order := newElsewhere(t)
	s := launched(t, b, order)
	found, err := b.api.ContainerInspect(bounded(t), s.record.Container)
	must(t, err)
	left, err := b.Adopt(bounded(t), b.Intent(order))
	must(t, err)
	if left.Session().PID != 0 {
		t.Errorf("pid %d of the engine's is taken for one of this node (%d)", left.Session().PID, found.State.Pid)
	}
	must(t, left.Kill(bounded(t)))
	awaitDone(t, s)
	must(t, left.Remove(bounded(t)))
	if left := containersOf(t, b, order.Instance); len(left) > 0 {
		t.Errorf("left %v", left)
	}
}

// A whole driver on an engine elsewhere: its screen says so, and three viewers at once
// shake hands with the X server through the exec's input and output and see the desktop.
func TestElsewhereScreen(t *testing.T) {
	if !elsewhere(t, "files") {
		return
	}
	m := newManaged(t)
	removeHomes(t, m.b)
	k := m.start()
	client := control.NewClient(control.Unix(k.View().OperatorSocket))
	defer client.Close()
	status, err := client.Status(bounded(t))
	must(t, err)
	if warned := fmt.Sprint(status.Warnings); !strings.Contains(warned, "pipe: the engine is not on this node") {
		t.Errorf("the status warns of %s", warned)
	}
	var viewers []*rfb.Client
	for i := range 3 {
		conn, err := client.Tunnel(bounded(t), control.CommandRFB)
		must(t, err)
		must(t, control.OpenTunnel(bounded(t), conn, control.Hello{Viewer: lease.ViewerID(fmt.Sprintf("viewer-%d", i))}))
		viewer, err := rfb.Connect(bounded(t), conn, rfb.Options{})
		must(t, err)
		defer viewer.Close()
		viewers = append(viewers, viewer)
	}
	for _, viewer := range viewers {
		img, err := viewer.Screenshot(bounded(t))
		must(t, err)
		colours := map[[4]byte]bool{}
		for p := img.Pix; len(p) >= 4; p = p[4:] {
			colours[[4]byte(p)] = true
		}
		if size := viewer.Size(); size.WidthPx != 800 || size.HeightPx != 600 || len(colours) < 30 {
			t.Errorf("a picture of %s with %d colours", size, len(colours))
		}
	}
	must(t, k.Stop(bounded(t), 5*time.Second, 0))
	select {
	case <-k.Done():
	case <-time.After(limit):
		t.Fatal("the task does not end")
	}
	if exit := k.Exit(); exit.Code != 0 || exit.Err != "" {
		t.Errorf("%+v", exit)
	}
}
