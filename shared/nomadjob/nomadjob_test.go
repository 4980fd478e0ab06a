// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/devagent/devagenttest"
)

func TestMain(m *testing.M) { devagenttest.Main(m) }

func stub(job, id, status string, index uint64, events ...*api.TaskEvent) *api.AllocationListStub {
	desired := "run"
	if status == "complete" {
		desired = "stop"
	}
	return &api.AllocationListStub{
		ID: id, JobID: job, Name: job + ".desk[0]", Namespace: "default", TaskGroup: "desk", DesiredStatus: desired, ClientStatus: status,
		CreateIndex: index, TaskStates: map[string]*api.TaskState{"bot": {State: "running", Events: events}},
	}
}

func event(at int64, pairs ...string) *api.TaskEvent {
	e := &api.TaskEvent{Type: "Driver", Time: at, DisplayMessage: "words", Details: map[string]string{}}
	for i := 0; i < len(pairs); i += 2 {
		e.Details["botscreen."+pairs[i]] = pairs[i+1]
	}
	return e
}

func screens(stubs ...*api.AllocationListStub) []Screen {
	var all []Screen
	for _, a := range stubs {
		s, known := fromTask(a, "bot", a.TaskStates["bot"])
		if known {
			all = append(all, s)
		}
	}
	return newest(all)
}

// The newest event of the driver counts, whatever came after it.
func TestStatusFromNewestEvent(t *testing.T) {
	all := screens(stub("j", "a1", "running", 5,
		event(1, "state", "starting", "profile", "ada"),
		event(2, "state", "ready", "profile", "ada", "holder", "human", "epoch", "41", "fence", "enforced", "reason", "2\x1b[31mFA"),
		&api.TaskEvent{Type: "Signaling", Time: 3, DisplayMessage: "Task being sent a signal"}))
	if len(all) != 1 {
		t.Fatalf("%d screens", len(all))
	}
	s := all[0]
	if s.State != "ready" || s.Holder != "human" || s.Epoch != 41 || !s.Since.Equal(time.Unix(0, 2)) || s.Fence != "enforced" {
		t.Errorf("got %+v", s)
	}
	if s.Last.String() != "Signaling: Task being sent a signal" {
		t.Errorf("last: %q", s.Last)
	}
	if strings.ContainsRune(s.Reason.String(), 0x1b) {
		t.Errorf("reason %q keeps an escape", s.Reason)
	}
}

func TestReplacedAllocationsAreLeftOut(t *testing.T) {
	ready := event(1, "state", "ready", "profile", "ada")
	all := screens(
		stub("j", "aaaaaaaa-1", "complete", 5, ready), stub("j", "bbbbbbbb-1", "running", 7, ready), stub("j", "cccccccc-1", "failed", 9, ready))
	if len(all) != 1 || all[0].Alloc != "bbbbbbbb-1" {
		t.Errorf("got %+v", all)
	}
}

func TestChoose(t *testing.T) {
	all := screens(
		stub("research", "0123456789ab", "running", 1, event(1, "state", "ready", "profile", "ada")),
		stub("ada", "89abcdef0123", "running", 2, event(1, "state", "ready", "profile", "bob")),
		stub("twice", "aaaaaaaa0000", "running", 3, event(1, "state", "ready", "profile", "eve")),
		stub("other", "aaaaaaaa1111", "running", 4, event(1, "state", "ready", "profile", "eve")),
		stub("gone", "ffffffff0000", "complete", 5, event(1, "state", "stopped", "profile", "old")),
	)
	for name, want := range map[string]string{
		"ada":              "0123456789ab", // a profile before a job
		"research":         "0123456789ab",
		"ada/desk/bot":     "89abcdef0123",
		"89abcdef":         "89abcdef0123",
		"aaaaaaaa1":        "aaaaaaaa1111",
		"old":              "ffffffff0000",
		"eve":              "several",
		"aaaaaaaa":         "several",
		"0123456":          "none", // fewer than 8 digits
		"research/desk":    "none",
		"":                 "none",
		"RESEARCH":         "none",
		"zzzzzzzz":         "none",
		"research/desk/x":  "none",
		"other/desk/bot":   "aaaaaaaa1111",
		"0123456789ab-foo": "none",
	} {
		got := ""
		s, err := Choose(all, name)
		var several *AmbiguousError
		var none *NotFoundError
		switch {
		case errors.As(err, &several):
			got = "several"
			if len(several.Screens) != 2 || !strings.Contains(err.Error(), "alloc aaaaaaaa") {
				t.Errorf("%q: %v", name, err)
			}
		case errors.As(err, &none):
			got = "none"
		default:
			got = s.Alloc
		}
		if got != want {
			t.Errorf("%q: got %s, want %s", name, got, want)
		}
	}
}

const job = `
job "desk" {
  group "g" {
    task "bot" {
      driver = "` + devagenttest.DriverName + `"
      config {
        command = "exec sleep 1000"
        labels { profile = "ada" }
      }
      resources { 
        cpu = 10 
        memory = 20 
      }
    }
  }
}`

func start(t *testing.T) (*api.Client, Screen) {
	t.Helper()
	a := devagenttest.Start(t)
	parsed, err := a.Client.Jobs().ParseHCL(job, true)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.Client.Jobs().Register(parsed, nil); err != nil {
		t.Fatal(err)
	}
	var s Screen
	devagenttest.AwaitAllocs(t, a.Client, func([]*api.AllocationListStub) bool {
		s, err = Find(t.Context(), a.Client, "", "ada")
		return err == nil && s.State == "ready" && s.TaskState == "running" // the event comes first
	})
	return a.Client, s
}

// HTTP runs over the tunnel: the same connection carries several requests.
func TestTunnelCarriesHTTP(t *testing.T) {
	client, s := start(t)
	dials := 0
	dial := Dial(client, s, control.Hello{Viewer: "v", Mode: control.Control})
	h := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		dials++
		return dial(ctx)
	}}}
	for range 3 {
		resp, err := h.Get("http://screen/v1/status")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil || !strings.Contains(string(body), `"state":"ready"`) {
			t.Fatalf("got %q, %v", body, err)
		}
	}
	if dials != 1 {
		t.Errorf("%d dials, want 1", dials)
	}
	h.CloseIdleConnections()
}

// A stream that cannot be opened says why, on the first read.
func TestTunnelSaysWhy(t *testing.T) {
	client, s := start(t)
	s.Task = "nobody"
	conn, err := Tunnel(t.Context(), client, s, control.CommandControl)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	_, err = io.ReadAll(conn)
	if err == nil || !strings.Contains(err.Error(), `unknown task name "nobody"`) {
		t.Errorf("got %v", err)
	}
}

func TestTunnelOfACommandThatFails(t *testing.T) {
	client, s := start(t)
	conn, err := Tunnel(t.Context(), client, s, "/bin/false")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := io.ReadAll(conn); err == nil || !strings.Contains(err.Error(), "status 1") {
		t.Errorf("got %v", err)
	}
}

// Deadlines work as on every connection, and Close ends the far end.
func TestTunnelDeadlineAndClose(t *testing.T) {
	client, s := start(t)
	conn, err := Tunnel(t.Context(), client, s, "/bin/cat")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(conn, "echo"); err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 5)
	if _, err := io.ReadFull(conn, buf); err != nil || string(buf) != "echo\n" {
		t.Fatalf("got %q, %v", buf, err)
	}
	if err := conn.SetReadDeadline(time.Now()); err != nil {
		t.Fatal(err)
	}
	var timeout net.Error
	if _, err := conn.Read(buf); !errors.As(err, &timeout) || !timeout.Timeout() {
		t.Errorf("got %v, want a timeout", err)
	}
	if err := conn.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-conn.(*tunnel).ended:
	case <-time.After(10 * time.Second):
		t.Error("the stream outlives the connection")
	}
}
