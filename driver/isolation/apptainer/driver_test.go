// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"context"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/display"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/isolationtest"
	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// managed is a driver's whole machinery over apptainer: accounts, directories, displays.
type managed struct {
	*task.Manager
	t    *testing.T
	dir  string
	root string
}

func newManaged(t *testing.T, band string) *managed {
	t.Helper()
	root := desktopRoot(t)
	b := boundary(t, filepath.Dir(root))
	binary := isolationtest.Driver(t)
	numbers, err := display.ParseBand(band)
	must(t, err)
	dir := folder(t, 0o711)
	first := 3_000_000 + uint32(mathrand.IntN(90_000))*20
	return &managed{t: t, dir: dir, root: root, Manager: task.New(task.Settings{
		StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run"), Executable: binary,
		Order: []screen.Isolation{screen.Apptainer}, Band: numbers, FirstUID: first, LastUID: first + 19,
		Accounts: task.AccountPolicy{MinUID: 1000}, Exec: screen.ExecPolicy{Shell: true, Role: screen.RoleOperator},
	}, []isolation.Boundary{b}, nil, hclog.NewNullLogger())}
}

func (m *managed) start(profile string) *task.Task {
	m.t.Helper()
	k, err := m.try(profile)
	must(m.t, err)
	return k
}

// try may run beside others.
func (m *managed) try(profile string) (*task.Task, error) { return m.tryWith(profile, 1<<30) }

// tryWith gives the screen so many bytes of memory.
func (m *managed) tryWith(profile string, memory uint64) (*task.Task, error) {
	config := screen.Defaults()
	config.Profile, config.Isolation, config.Geometry, config.MinFreeMemoryMB, config.Image = profile, "auto", "800x600", 64, m.root
	config.StartTimeout = "60s"
	spec, err := config.Validate()
	if err != nil {
		return nil, err
	}
	k, err := m.Start(bounded(m.t), task.Request{
		TaskID: task.ID("alloc/" + profile), AllocID: "alloc-" + profile, TaskName: profile, JobID: "job", Namespace: "default",
		Spec: spec, AllocDir: m.dir, StdoutPath: os.DevNull, StderrPath: os.DevNull,
		Limits: cgroup.Limits{PidsMax: 2048, MemoryBytes: memory},
	})
	if err != nil {
		return nil, errors.New(task.Explain(err))
	}
	m.t.Cleanup(func() { _ = k.Destroy(bounded(m.t), true) })
	return k, nil
}

func (m *managed) shell(k *task.Task, script string) (string, control.ExecResult) {
	m.t.Helper()
	var out strings.Builder
	result, err := k.Exec(bounded(m.t), control.ExecRequest{Argv: []string{"sh", "-c", script}}, strings.NewReader(""), &out, io.Discard, nil)
	must(m.t, err)
	return out.String(), result
}

// X16, APT-01: three screens at once share the names of X servers and have three numbers
// of the band; a number whose name somebody squats is none of them.
func TestX16NumbersAreTheNodes(t *testing.T) {
	m := newManaged(t, "520-523")
	squatter, err := net.Listen("unix", "@/tmp/.X11-unix/X521")
	must(t, err)
	defer squatter.Close()
	started := make(chan *task.Task, 3)
	for i := range 3 {
		go func() {
			k, err := m.try(fmt.Sprintf("bot-%d", i))
			if err != nil {
				t.Error(err)
			}
			started <- k
		}()
	}
	var numbers []string
	for range 3 {
		select {
		case k := <-started:
			if k == nil {
				continue
			}
			out, _ := m.shell(k, "echo $DISPLAY")
			numbers = append(numbers, strings.TrimSpace(out))
		case <-time.After(3 * limit):
			t.Fatal("three screens do not start")
		}
	}
	slices.Sort(numbers)
	if fmt.Sprint(numbers) != "[:520 :522 :523]" {
		t.Errorf("numbers %v", numbers)
	}
}

// X35, APT-03: a fork bomb inside meets the screen's limit, is stopped with it at once, and
// a command that takes too much memory is killed inside of the screen's limit.
func TestX35ForkBombAndMemory(t *testing.T) {
	m := newManaged(t, "530-533")
	k := m.start("bomber")
	if out, _ := m.shell(k, "cat /proc/self/cgroup"); !strings.Contains(out, "/botscreen/") {
		t.Errorf("a command is in %s", out)
	}
	if _, result := m.shell(k, "exec tail /dev/zero"); result.Signal != 9 {
		t.Errorf("2 GiB of 1: %+v", result)
	}
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	go func() {
		_, _ = k.Exec(ctx, control.ExecRequest{Argv: []string{"sh", "-c", "b() { b | b & }; b; sleep 60"}}, strings.NewReader(""), io.Discard, io.Discard, nil)
	}()
	for end := time.Now().Add(limit); ; {
		usage, err := k.Usage(bounded(t))
		must(t, err)
		if usage.Pids != nil && usage.Pids.Current > 1500 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("the bomb does not go off: %+v", usage.Pids)
		}
	}
	began := time.Now()
	must(t, k.Stop(bounded(t), time.Second, 0))
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the stop took %s", took)
	}
	must(t, k.Destroy(bounded(t), true))
}
