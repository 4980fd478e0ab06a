// SPDX-License-Identifier: MPL-2.0

// Package server is what a Nomad server does for one node: it takes jobs, makes
// evaluations of them, has the scheduler decide, and keeps the decisions in the
// state. Clients report to it how their allocations are.
package server

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/ident"
	"github.com/botscreen/botscreen/shared/devagent/state"
)

// The one namespace and region of an embedded agent.
const (
	Namespace = "default"
	Region    = "global"
)

// Why an evaluation was made, in Nomad's words.
const (
	triggerRegister   = "job-register"
	triggerDeregister = "job-deregister"
	triggerQueued     = "queued-allocs"
	triggerFailed     = "alloc-failure"
	triggerStop       = "alloc-stop"
	triggerFollowUp   = "failed-follow-up"
	triggerDeployment = "deployment-watcher"
)

const (
	statusPending  = "pending"
	statusBlocked  = "blocked"
	statusComplete = "complete"
	statusCanceled = "canceled"
)

// Error is a refusal with the HTTP status that Nomad would give it.
type Error struct {
	Status int
	Text   string
}

// Error is the text that the client of the API sees.
func (e *Error) Error() string { return e.Text }

func refuse(status int, format string, args ...any) *Error {
	return &Error{Status: status, Text: fmt.Sprintf(format, args...)}
}

// Server is safe for concurrent use.
type Server struct {
	store *state.Store
	log   hclog.Logger
}

// New makes a server over a store. Run does its work.
func New(store *state.Store, log hclog.Logger) *Server {
	return &Server{store: store, log: log}
}

// gcInterval is how often what ended long ago is looked for.
const gcInterval = 5 * time.Minute

// Run processes evaluations until ctx is done. Whatever waits in the state is
// taken up: an agent that was killed goes on where it was.
func (s *Server) Run(ctx context.Context) error {
	gc := time.NewTicker(gcInterval)
	defer gc.Stop()
	for {
		changed := s.store.Changed()
		next, err := s.work()
		if err != nil {
			s.log.Error("evaluation not processed", "error", err)
		}
		wait := time.NewTimer(next)
		select {
		case <-ctx.Done():
			wait.Stop()
			return nil
		case <-changed:
		case <-wait.C:
		case <-gc.C:
			if err := s.CollectGarbage(time.Now(), false); err != nil {
				s.log.Error("garbage not collected", "error", err)
			}
		}
		wait.Stop()
	}
}

// idle is how long the worker waits when nothing is due.
const idle = time.Hour

// work processes what is due and says how long until something else is.
func (s *Server) work() (time.Duration, error) {
	now := time.Now()
	wait := idle
	for {
		e, due := s.nextEval(now)
		if e == nil {
			wait = min(wait, due)
			break
		}
		if err := s.process(e); err != nil {
			return time.Second, fmt.Errorf("process evaluation %s: %w", e.ID, err)
		}
	}
	due, err := s.watchDeployments(now)
	return max(min(wait, due), time.Millisecond), err
}

// nextEval gives the oldest evaluation that is due, or the time until one is.
func (s *Server) nextEval(now time.Time) (*api.Evaluation, time.Duration) {
	wait := idle
	var found *api.Evaluation
	s.store.Read(func(v *state.View) {
		capacity := capacityIndex(v)
		for _, e := range v.Evals(waiting) {
			switch {
			case e.Status == statusBlocked && capacity > e.SnapshotIndex:
				found = e
			case e.Status == statusPending && !e.WaitUntil.After(now):
				found = e
			case e.Status == statusPending:
				wait = min(wait, e.WaitUntil.Sub(now))
			}
			if found != nil {
				return
			}
		}
	})
	return found, wait
}

func waiting(e *api.Evaluation) bool { return e.Status == statusPending || e.Status == statusBlocked }

// capacityIndex is that of the newest change that may give a blocked evaluation
// room: of the node, or of an allocation that gave its resources back.
func capacityIndex(v *state.View) uint64 {
	var index uint64
	if n := v.Node(); n != nil {
		index = n.ModifyIndex
	}
	for _, a := range v.Allocs(nil) {
		if a.ServerTerminalStatus() || a.ClientTerminalStatus() {
			index = max(index, a.ModifyIndex)
		}
	}
	return index
}

func newEval(j *api.Job, trigger string) *api.Evaluation {
	return &api.Evaluation{
		ID:          ident.UUID(),
		Namespace:   *j.Namespace,
		Priority:    *j.Priority,
		Type:        *j.Type,
		TriggeredBy: trigger,
		JobID:       *j.ID,
		Status:      statusPending,
	}
}

// portFree says whether nobody on this machine listens on a loopback port.
func portFree(port int) bool {
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	if err != nil {
		return false
	}
	return l.Close() == nil
}
