// SPDX-License-Identifier: MPL-2.0

package devagent_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent"
	"github.com/botscreen/botscreen/shared/devagent/devagenttest"
)

func TestMain(m *testing.M) { devagenttest.Main(m) }

// parse sends the text of a job file to the agent.
func parse(t testing.TB, c *api.Client, text string) *api.Job {
	t.Helper()
	job, err := c.Jobs().ParseHCL(text, true)
	if err != nil {
		t.Fatal(err)
	}
	return job
}

func register(t testing.TB, c *api.Client, text string) *api.JobRegisterResponse {
	t.Helper()
	resp, _, err := c.Jobs().Register(parse(t, c, text), nil)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// shell is a job file with one task.
func shell(id, command, more string) string {
	return fmt.Sprintf(`
job %q {
  type = "service"
  group "g" {
    restart {
      attempts = 1
      interval = "10m"
      delay    = "10ms"
      mode     = "fail"
    }
    reschedule {
      attempts  = 0
      unlimited = false
    }
    task "t" {
      driver       = %q
      kill_timeout = "2s"
      config {
        command = %q
      }
      resources {
        cpu    = 10
        memory = 20
      }
      %s
    }
  }
}
`, id, devagenttest.DriverName, command, more)
}

func running(job string) func([]*api.AllocationListStub) bool {
	return func(all []*api.AllocationListStub) bool {
		return slices.ContainsFunc(all, func(a *api.AllocationListStub) bool {
			return a.JobID == job && a.ClientStatus == api.AllocClientStatusRunning
		})
	}
}

// one gives the newest allocation of a job.
func one(t testing.TB, c *api.Client, job string) *api.Allocation {
	t.Helper()
	all, _, err := c.Jobs().Allocations(job, true, nil)
	if err != nil || len(all) == 0 {
		t.Fatalf("allocations of %s: %v, %v", job, all, err)
	}
	a, _, err := c.Allocations().Info(all[0].ID, nil)
	if err != nil {
		t.Fatal(err)
	}
	return a
}

func eventTypes(s *api.TaskState) []string {
	var out []string
	for _, e := range s.Events {
		out = append(out, e.Type)
	}
	return out
}

// The thinnest whole: a job file becomes a running task that can be entered and
// stopped, all with the official client.
func TestJobRunsAndStops(t *testing.T) {
	a := devagenttest.Start(t)
	register(t, a.Client, shell("web", "echo hello; exec sleep 1000", ""))
	devagenttest.AwaitAllocs(t, a.Client, running("web"))
	alloc := one(t, a.Client, "web")

	var out, errs bytes.Buffer
	code, err := a.Client.Allocations().Exec(context.Background(), alloc, "t", false,
		[]string{"sh", "-c", "cat; echo $NOMAD_TASK_NAME >&2; exit 3"}, strings.NewReader("in\n"), &out, &errs, nil, nil)
	if err != nil || code != 3 || out.String() != "in\n" || errs.String() != "t\n" {
		t.Errorf("exec: code %d, error %v, stdout %q, stderr %q", code, err, out.String(), errs.String())
	}

	if _, _, err := a.Client.Jobs().Deregister("web", false, nil); err != nil {
		t.Fatal(err)
	}
	devagenttest.AwaitAllocs(t, a.Client, func(all []*api.AllocationListStub) bool {
		return all[0].ClientStatus == api.AllocClientStatusComplete
	})
	alloc = one(t, a.Client, "web")
	want := []string{"Received", "Task Setup", "Started", "Killing", "Terminated", "Killed"}
	got := eventTypes(alloc.TaskStates["t"])
	// The driver's own event comes on a stream of its own, before or after Started.
	got = slices.DeleteFunc(got, func(kind string) bool { return kind == "Driver" })
	if !slices.Equal(got, want) {
		t.Errorf("events %v, want %v", got, want)
	}
	job, _, err := a.Client.Jobs().Info("web", nil)
	if err != nil || *job.Status != "dead" || !*job.Stop {
		t.Errorf("job: %v, status %s", err, *job.Status)
	}
}

func tokenOf(t testing.TB, a *devagenttest.Agent) string {
	t.Helper()
	token, err := devagent.ReadToken(a.DataDir())
	if err != nil {
		t.Fatal(err)
	}
	return token
}

// newAgent makes an agent that is not run.
func newAgent(t *testing.T, c devagent.Config) (*devagent.Agent, error) {
	t.Helper()
	a, err := devagent.New(t.Context(), c)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return a, a.Run(ctx)
}
