// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/display"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/isolationtest"
	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// imaged gives every order the test's image, and shows nothing else of docker's.
type imaged struct {
	isolation.Boundary
	image string
}

func (i imaged) Launch(ctx context.Context, order isolation.Order) (isolation.Sandbox, error) {
	order.Image = i.image
	return i.Boundary.Launch(ctx, order)
}

// managed is a driver's whole machinery over docker: accounts, directories, gate, records.
type managed struct {
	*task.Manager
	t        *testing.T
	b        *Boundary
	settings task.Settings
}

func newManaged(t *testing.T) *managed {
	t.Helper()
	b, reference := boundary(t), desktopImage(t)
	binary := isolationtest.Driver(t)
	dir, err := os.MkdirTemp("", "bsm-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	must(t, os.Chmod(dir, 0o711))
	band, err := display.ParseBand("300-399")
	must(t, err)
	first := 2_000_000 + uint32(mathrand.IntN(90_000))*10
	m := &managed{t: t, b: b, settings: task.Settings{
		StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), Executable: binary,
		Order: []screen.Isolation{screen.Docker}, Band: band, FirstUID: first, LastUID: first + 9,
		Accounts: task.AccountPolicy{MinUID: 1000}, Exec: screen.ExecPolicy{Shell: true, Role: screen.RoleOperator},
	}}
	m.restart(reference)
	return m
}

// restart is another driver process on the same node, as far as its state goes.
func (m *managed) restart(reference string) {
	m.Manager = task.New(m.settings, []isolation.Boundary{imaged{m.b, reference}}, nil, hclog.NewNullLogger())
}

func (m *managed) request() task.Request {
	m.t.Helper()
	config := screen.Defaults()
	config.Profile, config.Isolation, config.Geometry, config.MinFreeMemoryMB = "bot", "docker", "800x600", 64
	spec, err := config.Validate()
	must(m.t, err)
	return task.Request{
		TaskID: task.ID(fmt.Sprintf("alloc/%08x", mathrand.Uint32())), AllocID: "alloc", TaskName: "bot", JobID: "job", Namespace: "default",
		Spec: spec, AllocDir: m.settings.StateDir, StdoutPath: os.DevNull, StderrPath: os.DevNull,
		Env:    map[string]string{"FROM_THE_JOB": "yes", "DOCKER_HOST": "tcp://evil"},
		Limits: cgroup.Limits{PidsMax: 2048, MemoryBytes: 2 << 30},
	}
}

func (m *managed) start() *task.Task {
	m.t.Helper()
	k, err := m.Start(bounded(m.t), m.request())
	if err != nil {
		m.t.Fatalf("%v", task.Explain(err))
	}
	m.t.Cleanup(func() { _ = k.Destroy(bounded(m.t), true) })
	return k
}

// TestScreenOfADriver walks a screen through the whole driver: job to desktop, exec,
// picture, a driver that restarts, stop, and nothing left (P4, N1, N2). Its home is there
// in the next one (DOC-11).
func TestScreenOfADriver(t *testing.T) {
	m := newManaged(t)
	k := m.start()
	view := k.View()
	client := control.NewClient(control.Unix(view.OperatorSocket))
	defer client.Close()
	picture, err := client.Screenshot(bounded(t), control.ScreenshotRequest{})
	must(t, err)
	if len(picture.Data) < 1000 {
		t.Errorf("a picture of %d bytes", len(picture.Data))
	}
	var out strings.Builder
	result, err := k.Exec(bounded(t), control.ExecRequest{Argv: []string{"sh", "-c", "echo $FROM_THE_JOB; id -u; echo logged in > ~/login"}}, strings.NewReader(""), &out, &out, nil)
	must(t, err)
	if want := fmt.Sprintf("yes\n%d\n", view.Account.UID); out.String() != want || result.ExitCode != 0 {
		t.Errorf("%q, %+v", out.String(), result)
	}
	awaitFence(t, client)

	state, err := k.State()
	must(t, err)
	before := k // the driver that is restarted; here it lives on and sees the end too
	m.restart(desktopImage(t))
	must(t, m.Recover(bounded(t), view.ID, state))
	k, err = m.Get(view.ID)
	must(t, err)
	if again := k.View(); !again.Running || again.SessionPID != view.SessionPID {
		t.Errorf("recovered %+v, it was %+v", again, view)
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
	<-before.Done()
	must(t, k.Destroy(bounded(t), false))
	m.expectNothingLeft(view)

	// DOC-11: another run, another container, the same home.
	k = m.start()
	out.Reset()
	_, err = k.Exec(bounded(t), control.ExecRequest{Argv: []string{"cat", "login"}}, strings.NewReader(""), &out, &out, nil)
	must(t, err)
	if out.String() != "logged in\n" {
		t.Errorf("the home has %q", out.String())
	}
}

// The fence holds in a container as it does on the host (X2).
func awaitFence(t *testing.T, client *control.Client) {
	t.Helper()
	ctx := bounded(t)
	for {
		status, err := client.Status(ctx)
		must(t, err)
		if text := fmt.Sprint(status.Fence); strings.Contains(text, "enforced") {
			return
		} else if ctx.Err() != nil || strings.Contains(text, "advisory") && !strings.Contains(text, "not run yet") {
			t.Fatalf("the fence is %s", text)
		}
	}
}

func (m *managed) expectNothingLeft(view task.View) {
	m.t.Helper()
	if left := containersOf(m.t, m.b, view.Instance); len(left) > 0 {
		m.t.Errorf("left %v", left)
	}
	if left := mountsBelow(m.t, m.settings.StateDir); len(left) > 0 {
		m.t.Errorf("left %v", left)
	}
	if _, err := os.Stat(filepath.Dir(view.OperatorSocket)); err == nil {
		m.t.Errorf("%s is left", filepath.Dir(view.OperatorSocket))
	}
}

// P3: `docker rm -f` under a live screen ends the task, with its reason, and nothing of
// it lands on the host.
func TestRemovedUnderADriver(t *testing.T) {
	m := newManaged(t)
	k := m.start()
	view := k.View()
	must(t, m.b.api.ContainerRemove(bounded(t), containerOf(t, m.b, view.Instance), container.RemoveOptions{Force: true}))
	select {
	case <-k.Done():
	case <-time.After(limit):
		t.Fatal("the task does not end")
	}
	if exit := k.Exit(); exit.Err == "" {
		t.Errorf("%+v", exit)
	}
	must(t, k.Destroy(bounded(t), true))
	m.expectNothingLeft(view)
}

// P11: a command for a paused container is an error in words, not a hang, and the
// screen goes on when it is let go.
func TestP11ExecWhilePaused(t *testing.T) {
	m := newManaged(t)
	k := m.start()
	name := containerOf(t, m.b, k.View().Instance)
	pause(t, m.b, name)
	ctx := bounded(t)
	_, err := k.Exec(ctx, control.ExecRequest{Argv: []string{"true"}}, strings.NewReader(""), io.Discard, io.Discard, nil)
	if ctx.Err() != nil || err == nil || !strings.Contains(err.Error(), "is paused") || !strings.Contains(err.Error(), "docker unpause "+name) {
		t.Errorf("%v", err)
	}
	must(t, m.b.api.ContainerUnpause(bounded(t), name))
	result, err := k.Exec(bounded(t), control.ExecRequest{Argv: []string{"true"}}, strings.NewReader(""), io.Discard, io.Discard, nil)
	if err != nil || result.ExitCode != 0 {
		t.Errorf("%+v %v", result, err)
	}
}

// What a program takes beyond the task's memory costs that program, and is told apart.
func TestMemoryLimit(t *testing.T) {
	m := newManaged(t)
	request := m.request()
	request.Limits.MemoryBytes = 400 << 20
	k, err := m.Start(bounded(t), request)
	must(t, err)
	t.Cleanup(func() { _ = k.Destroy(bounded(t), true) })
	result, err := k.Exec(bounded(t), control.ExecRequest{Argv: []string{"tail", "/dev/zero"}}, strings.NewReader(""), io.Discard, io.Discard, nil)
	must(t, err)
	if result.Signal != int(unix.SIGKILL) {
		t.Errorf("%+v", result)
	}
	view := k.View()
	seen, err := m.b.Adopt(bounded(t), isolation.Record{Instance: view.Instance, Container: containerOf(t, m.b, view.Instance)})
	must(t, err)
	must(t, seen.Kill(bounded(t))) // some engines say it only at the end
	awaitDone(t, seen)
	if reason := seen.(isolation.Explainer).EndReason(); !seen.OOMKilled() || !strings.Contains(reason, "`memory`") {
		t.Errorf("nobody knows that it was for memory: %q", reason)
	}
}
