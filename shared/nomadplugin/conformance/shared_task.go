// SPDX-License-Identifier: MPL-2.0

package conformance

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// sharedTaskChecks are those that one running task is enough for.
func (s *suite) sharedTaskChecks() {
	events := s.collectEvents()
	r := s.start(s.host, s.newAlloc(), s.Runs(s))
	do := func(name string, f func(*suite, *running)) {
		s.check(name, func(s *suite) { f(s, r) })
	}
	do("C39_handle", (*suite).checkHandle)
	do("C40_duplicate_id", (*suite).checkDuplicate)
	do("C57_events", func(s *suite, r *running) { s.checkEvents(r, events) })
	do("C71_logs", (*suite).checkLogText)
	do("C32_secrets", (*suite).checkSecrets)
	do("C54_inspect_running", (*suite).checkInspectRunning)
	do("C55_C56_stats", (*suite).checkStats)
	do("C47_wait_cancelled", (*suite).checkWaitCancelled)
	do("C58_signal", (*suite).checkSignal)
	do("C50_unknown_signal", (*suite).checkUnknownSignal)
	do("C53_destroy_running", (*suite).checkDestroyRunning)
	s.check("C48_unknown_task", (*suite).checkUnknown)
	s.execChecks(r)
	do("C52_C51_stop", (*suite).checkStop)
	do("C53_destroyed", (*suite).checkDestroyed)
}

func (s *suite) checkHandle(r *running) {
	if r.handle.GetVersion() < 1 || len(r.handle.GetDriverState()) == 0 || r.handle.GetState() != driverpb.TaskState_RUNNING {
		s.Errorf("version %d, state %s, %d bytes of driver state", r.handle.GetVersion(), r.handle.GetState(), len(r.handle.GetDriverState()))
	}
	if !proto.Equal(r.handle.GetConfig(), r.config) {
		s.Error("the configuration in the handle is not the one that was sent")
	}
	if strings.Contains(string(r.handle.GetDriverState()), agentSecretValue) {
		s.Error("C32: the driver state contains a secret of the agent")
	}
}

func (s *suite) checkDuplicate(r *running) {
	before := marked(r.mark)
	_, _, err := r.on.StartTask(s.soon(), r.config)
	if err == nil || !strings.Contains(err.Error(), "already started") {
		s.Errorf("got %v: want %v", err, nomadplugin.AlreadyStarted(r.id))
	}
	for _, process := range before {
		if process.Parent <= 1 && !alive(process.PID) {
			s.Errorf("the first task lost %d %s", process.PID, process.Command)
		}
	}
}

// collectEvents reads the event stream for the whole group.
func (s *suite) collectEvents() func() []*nomadplugin.TaskEvent {
	i := s.instance(s.host)
	ctx, cancel := context.WithCancel(context.Background())
	s.Cleanup(cancel)
	var (
		mu   sync.Mutex
		seen []*nomadplugin.TaskEvent
	)
	go func() {
		_ = i.TaskEvents(ctx, func(e *nomadplugin.TaskEvent) error {
			mu.Lock()
			defer mu.Unlock()
			seen = append(seen, e)
			return nil
		})
	}()
	return func() []*nomadplugin.TaskEvent {
		mu.Lock()
		defer mu.Unlock()
		return slices.Clone(seen)
	}
}

func (s *suite) checkEvents(r *running, events func() []*nomadplugin.TaskEvent) {
	if s.NoEvents {
		s.Skip("the driver has no events")
	}
	ours := func() []*nomadplugin.TaskEvent {
		return slices.DeleteFunc(events(), func(e *nomadplugin.TaskEvent) bool {
			return e.GetAllocId() != r.config.GetAllocId() || e.GetTaskName() != r.config.GetName()
		})
	}
	s.eventually("an event of the task", func() bool { return len(ours()) > 0 })
	for _, e := range ours() {
		if e.GetTimestamp().CheckValid() != nil || e.GetMessage() == "" {
			s.Errorf("event without a time or a message: %v", e)
		}
	}
}

func (s *suite) checkLogText(r *running) {
	if s.LogText == "" {
		s.Skip("the target has no LogText")
	}
	s.eventually("the log contains "+s.LogText, func() bool {
		return strings.Contains(r.stdout.text()+r.stderr.text(), s.LogText)
	})
}

func (s *suite) checkSecrets(r *running) {
	processes := marked(r.mark)
	if len(processes) == 0 {
		s.Fatal("no process of the task carries its environment")
	}
	for _, process := range processes {
		for _, entry := range process.Env {
			if strings.HasPrefix(entry, nomadplugin.Handshake.MagicCookieKey+"=") || strings.Contains(entry, agentSecretValue) {
				s.Errorf("%d %s has %.60s", process.PID, process.Command, entry)
			}
		}
	}
}

func (s *suite) checkInspectRunning(r *running) {
	inspection := s.inspect(r.on, r.id)
	task := inspection.GetTask()
	if task.GetState() != driverpb.TaskState_RUNNING || task.GetId() != string(r.id) || task.GetName() != r.config.GetName() {
		s.Errorf("got state %s of task %q named %q", task.GetState(), task.GetId(), task.GetName())
	}
	if since := time.Since(task.GetStartedAt().AsTime()); since < 0 || since > time.Hour {
		s.Errorf("started %v ago", since)
	}
	if !task.GetCompletedAt().AsTime().IsZero() {
		s.Errorf("completed at %v: want the zero time", task.GetCompletedAt().AsTime())
	}
}

func (s *suite) checkStats(r *running) {
	const want = 500 * time.Millisecond
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	var times []time.Time
	start := time.Now()
	enough := errors.New("enough")
	if s.NoStats {
		ctx, cancel = context.WithTimeout(ctx, time.Second)
		defer cancel()
	}
	err := r.on.TaskStats(ctx, r.id, want, func(sample *nomadplugin.TaskStats) error {
		times = append(times, time.Now())
		s.checkSample(r, sample)
		if len(times) == 3 {
			return enough
		}
		return nil
	})
	switch {
	case s.NoStats && (len(times) > 0 || !errors.Is(err, context.DeadlineExceeded)):
		s.Errorf("C56: a driver without statistics keeps the stream open in silence: %d samples, %v", len(times), err)
	case s.NoStats:
	case !errors.Is(err, enough):
		s.Errorf("the stream ended after %d samples: %v", len(times), err)
	case times[0].Sub(start) > want:
		s.Errorf("the first sample took %v", times[0].Sub(start))
	case !interval(times[2].Sub(times[0]), 2*want):
		s.Errorf("two intervals of %v took %v", want, times[2].Sub(times[0]))
	}
}

func (s *suite) checkSample(r *running, sample *nomadplugin.TaskStats) {
	if sample.GetId() != string(r.id) || time.Since(sample.GetTimestamp().AsTime()).Abs() > time.Minute {
		s.Errorf("sample for %q at %v", sample.GetId(), sample.GetTimestamp().AsTime())
	}
	memory := sample.GetAggResourceUsage().GetMemory()
	fields := memory.GetMeasuredFields()
	for field, value := range map[driverpb.MemoryUsage_Fields]uint64{
		driverpb.MemoryUsage_RSS: memory.GetRss(), driverpb.MemoryUsage_CACHE: memory.GetCache(),
		driverpb.MemoryUsage_MAX_USAGE: memory.GetMaxUsage(), driverpb.MemoryUsage_USAGE: memory.GetUsage(),
		driverpb.MemoryUsage_SWAP: memory.GetSwap(), driverpb.MemoryUsage_KERNEL_USAGE: memory.GetKernelUsage(),
	} {
		if value > 0 && !slices.Contains(fields, field) {
			s.Errorf("%s is %d but not among the measured fields", field, value)
		}
	}
}

func (s *suite) checkWaitCancelled(r *running) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		_, err := r.on.WaitTask(ctx, r.id)
		ended <- err
	}()
	// Long enough for the call to arrive; it must not end by itself.
	select {
	case err := <-ended:
		s.Fatalf("ended while the task runs: %v", err)
	case <-time.After(200 * time.Millisecond):
	}
	cancel()
	s.within(time.Second, "a cancelled wait", func() { <-ended })
	if len(marked(r.mark)) == 0 {
		s.Error("the task is gone")
	}
	again, stop := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer stop()
	if _, err := r.on.WaitTask(again, r.id); !errors.Is(err, context.DeadlineExceeded) {
		s.Errorf("a new wait ended: %v", err)
	}
}

func (s *suite) checkSignal(r *running) {
	if err := r.on.SignalTask(s.soon(), r.id, "SIGBOGUS"); err == nil {
		s.Error("an unknown signal is accepted")
	}
	if s.Signalled == nil {
		s.Skip("the target has no Signalled")
	}
	s.must(r.on.SignalTask(s.soon(), r.id, "SIGHUP"))
	s.Signalled(s, func() string { return r.stdout.text() + r.stderr.text() })
}

func (s *suite) checkUnknownSignal(r *running) {
	if err := r.on.StopTask(s.soon(), r.id, time.Second, "SIGBOGUS"); err == nil {
		s.Error("an unknown signal is accepted")
	}
	if len(marked(r.mark)) == 0 {
		s.Error("the task is gone")
	}
}

func (s *suite) checkDestroyRunning(r *running) {
	err := r.on.DestroyTask(s.soon(), r.id, false)
	if !errors.Is(err, nomadplugin.ErrTaskRunning) {
		s.Errorf("got %v: want %v", err, nomadplugin.ErrTaskRunning)
	}
	if len(marked(r.mark)) == 0 {
		s.Error("the task is gone")
	}
}

// refused has every call for a task that the driver does not know.
func (s *suite) refused(id nomadplugin.TaskID) {
	s.Helper()
	i, ctx := s.instance(s.host), s.soon()
	_, wait := i.WaitTask(ctx, id)
	_, inspect := i.InspectTask(ctx, id)
	_, exec := i.ExecTask(ctx, id, []string{"true"}, time.Second)
	_, stream := i.ExecTaskStreaming(ctx, id, nomadplugin.ExecRequest{Command: []string{"true"}})
	calls := map[string]error{
		"WaitTask": wait, "InspectTask": inspect, "StopTask": i.StopTask(ctx, id, time.Second, ""),
		"DestroyTask": i.DestroyTask(ctx, id, true), "SignalTask": i.SignalTask(ctx, id, "SIGHUP"),
		"TaskStats": i.TaskStats(ctx, id, time.Second, func(*nomadplugin.TaskStats) error { return nil }),
	}
	if len(s.Shell) > 0 {
		calls["ExecTask"], calls["ExecTaskStreaming"] = exec, stream
	}
	if s.NoStats {
		delete(calls, "TaskStats")
	}
	for call, err := range calls {
		if !errors.Is(err, nomadplugin.ErrTaskNotFound) {
			s.Errorf("%s: got %v: want %v", call, err, nomadplugin.ErrTaskNotFound)
		}
	}
	if status.Code(wait) != codes.Unknown {
		s.Errorf("WaitTask: code %s: want Unknown", status.Code(wait))
	}
}

func (s *suite) checkUnknown() { s.refused("no/such/task") }

func (s *suite) checkStop(r *running) {
	var stops sync.WaitGroup
	s.within(s.StopTimeout+2*time.Second, "two stops at the same time", func() {
		for range 2 {
			stops.Go(func() {
				if err := r.on.StopTask(s.soon(), r.id, s.StopTimeout, ""); err != nil {
					s.Errorf("stop: %v", err)
				}
			})
		}
		stops.Wait()
	})
	if left := marked(r.mark); len(left) > 0 {
		s.Errorf("C52: after the stop there is still %d %s", left[0].PID, left[0].Command)
	}
	s.within(time.Second, "the wait after the stop", func() { s.wait(r.on, r.id) })
	if err := r.on.StopTask(s.soon(), r.id, s.StopTimeout, ""); err != nil {
		s.Errorf("C51: stop of an ended task: %v", err)
	}
	if err := r.on.SignalTask(s.soon(), r.id, "SIGHUP"); err == nil {
		s.Error("C58: a signal to an ended task is accepted")
	}
	inspection := s.inspect(r.on, r.id)
	if task := inspection.GetTask(); task.GetState() != driverpb.TaskState_EXITED || task.GetCompletedAt().AsTime().IsZero() {
		s.Errorf("C54: state %s, completed at %v", task.GetState(), task.GetCompletedAt().AsTime())
	}
}

func (s *suite) checkDestroyed(r *running) {
	s.must(r.on.DestroyTask(s.soon(), r.id, true))
	s.refused(r.id)
}
