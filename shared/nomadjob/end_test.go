// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/devagenttest"
)

// ending answers as Nomad 2.0.5 does for one job "j" with one allocation, and notes what it
// is asked. Each blocking query sees the next of the statuses.
type ending struct {
	mu       sync.Mutex // guards what follows
	statuses []string
	node     int // what the node of the allocation answers
	asked    []string
	purged   bool
}

func (e *ending) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.asked = append(e.asked, strings.TrimSuffix(r.Method+" "+r.URL.Path+" "+r.URL.Query().Get("purge"), " "))
	w.Header().Set("X-Nomad-Index", strconv.Itoa(10-len(e.statuses)))
	switch {
	case r.Method == http.MethodDelete:
		e.purged = e.purged || r.URL.Query().Get("purge") == "true"
		_, _ = fmt.Fprint(w, `{}`)
	case strings.HasSuffix(r.URL.Path, "/stats"):
		if e.node != http.StatusOK {
			http.Error(w, "No path to node", e.node)
			return
		}
		_, _ = fmt.Fprint(w, `{}`)
	default:
		var all []api.AllocationListStub
		if !e.purged {
			all = append(all, api.AllocationListStub{ID: "0123456789", JobID: "j", ClientStatus: e.statuses[0]})
		}
		if r.URL.Query().Get("index") != "" && len(e.statuses) > 1 {
			e.statuses = e.statuses[1:]
			all[0].ClientStatus = e.statuses[0]
		}
		_ = json.NewEncoder(w).Encode(all)
	}
}

func (e *ending) client(t *testing.T) *api.Client {
	t.Helper()
	s := httptest.NewServer(e)
	t.Cleanup(s.Close)
	c, err := api.NewClient(&api.Config{Address: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// A job that is to be forgotten is so only when nothing of it runs: Nomad would forget its
// allocations too, while they run.
func TestStopForgetsAfterTheEnd(t *testing.T) {
	e := &ending{statuses: []string{"running", "running", "complete"}}
	if err := Stop(t.Context(), e.client(t), "default", "j", true); err != nil {
		t.Fatal(err)
	}
	const list = "GET /v1/job/j/allocations"
	want := []string{"DELETE /v1/job/j false", list, list, list, "DELETE /v1/job/j true"}
	if got := strings.Join(e.asked, "; "); got != strings.Join(want, "; ") {
		t.Errorf("asked %s", got)
	}
}

func TestStopKeepsTheJob(t *testing.T) {
	e := &ending{statuses: []string{"complete"}}
	if err := Stop(t.Context(), e.client(t), "default", "j", false); err != nil || e.purged {
		t.Errorf("purged %t, %v", e.purged, err)
	}
}

// What was lost with its node is waited for as soon as the node is back, and not where it
// stays away or has forgotten it.
func TestAwaitEndOfTheLost(t *testing.T) {
	for _, lost := range []string{api.AllocClientStatusLost, api.AllocClientStatusUnknown} {
		e := &ending{statuses: []string{lost, "running", "complete"}, node: http.StatusOK}
		if err := AwaitEnd(t.Context(), e.client(t), "default", "j"); err != nil || e.statuses[0] != "complete" {
			t.Errorf("%s: ended at %s, %v", lost, e.statuses[0], err)
		}
		for _, code := range []int{http.StatusNotFound, http.StatusInternalServerError} {
			e := &ending{statuses: []string{lost, "complete"}, node: code}
			if err := AwaitEnd(t.Context(), e.client(t), "default", "j"); err != nil || e.statuses[0] != lost {
				t.Errorf("%s, the node answers %d: ended at %s, %v", lost, code, e.statuses[0], err)
			}
		}
	}
}

func TestAwaitEndIsBounded(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := (&ending{statuses: []string{"running"}}).client(t)
	done := make(chan error)
	go func() { done <- AwaitEnd(ctx, c, "default", "j") }()
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// The embedded agent's word for the end of a task is the end of its processes.
func TestStopOfTheEmbeddedAgent(t *testing.T) {
	client, s := start(t)
	if err := Stop(t.Context(), client, "default", s.Job, true); err != nil {
		t.Fatal(err)
	}
	if _, _, err := client.Jobs().Info(s.Job, nil); statusOfError(err) != http.StatusNotFound {
		t.Errorf("the job: %v", err)
	}
	alloc, _, err := client.Allocations().Info(s.Alloc, nil)
	if err != nil || alloc.ClientStatus != api.AllocClientStatusComplete {
		t.Errorf("the allocation: %v, %v", alloc, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := Stop(ctx, client, "default", s.Job, true); err != nil {
		t.Errorf("of a job that is gone: %v", err)
	}
	devagenttest.AwaitAllocs(t, client, func(all []*api.AllocationListStub) bool { return len(all) == 1 })
}
