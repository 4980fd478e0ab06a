// SPDX-License-Identifier: MPL-2.0

package conformance

import (
	"errors"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/host"
)

func (s *suite) lifecycleChecks() {
	s.check("C31_large_request", (*suite).checkLargeRequest)
	s.check("C43_failed_start", (*suite).checkFailedStart)
	s.check("C44_crash_during_start", (*suite).checkCrashDuringStart)
	s.check("C45_orphan_of_an_earlier_run", (*suite).checkOrphan)
	s.check("C46_C49_exit_codes", (*suite).checkExitCodes)
	s.check("C46_killed", (*suite).checkKilled)
	s.check("C46_out_of_memory", (*suite).checkOutOfMemory)
	s.check("C60_many_tasks", (*suite).checkManyTasks)
}

func (s *suite) checkLargeRequest() {
	a := s.newAlloc()
	config := s.task(s.host, a, s.Runs(s))
	chunk := strings.Repeat("x", 64<<10)
	for n := range 8 << 20 / len(chunk) {
		config.Env["LARGE_"+string(rune('A'+n%26))+strings.Repeat("_", n/26)] = chunk
	}
	i := s.instance(s.host)
	_, _, err := i.StartTask(s.soon(), config)
	// No kernel starts a program with such an environment, so a driver may refuse; but it must have
	// received it.
	if code := status.Code(err); code == codes.ResourceExhausted || code == codes.Unavailable || errors.Is(err, host.ErrShutdown) {
		s.Errorf("the request did not arrive: %v", err)
	}
	s.destroy(s.host, nomadplugin.TaskID(config.GetId()))
	s.gone(a.mark)
}

func (s *suite) checkFailedStart() {
	if s.Fails == nil {
		s.Skip("the target has no Fails")
	}
	before, a := s.traces(), s.newAlloc()
	config := s.task(s.host, a, s.Fails(s))
	i := s.instance(s.host)
	if _, _, err := i.StartTask(s.soon(), config); err == nil {
		s.Error("the task started")
	}
	s.gone(a.mark)
	s.unchanged(before)
	if _, err := i.WaitTask(s.soon(), nomadplugin.TaskID(config.GetId())); !errors.Is(err, nomadplugin.ErrTaskNotFound) {
		s.Errorf("wait for it: %v", err)
	}
	s.must(syscall.Kill(i.PID(), 0))
}

// crash kills the plugin's process and waits until its host knows.
func (s *suite) crash(i *host.Instance) {
	s.Helper()
	s.must(syscall.Kill(i.PID(), syscall.SIGKILL))
	<-i.Exited()
}

func (s *suite) checkCrashDuringStart() {
	for _, after := range []time.Duration{20 * time.Millisecond, 150 * time.Millisecond, 0} {
		a := s.newAlloc()
		config := s.task(s.host, a, s.Runs(s))
		first := s.instance(s.host)
		ended := make(chan error, 1)
		go func() {
			_, _, err := first.StartTask(s.soon(), config)
			ended <- err
		}()
		if after > 0 {
			select {
			case err := <-ended:
				ended <- err
			case <-time.After(after):
			}
		} else {
			s.eventually("a process of the task", func() bool { return len(marked(a.mark)) > 0 })
		}
		s.crash(first)
		<-ended
		r := s.startConfig(s.host, a, config)
		s.eventually("one instance", func() bool { return s.instances(a.mark) == 1 })
		s.must(r.on.StopTask(s.soon(), r.id, s.StopTimeout, ""))
		s.gone(a.mark)
		s.destroy(s.host, r.id)
	}
}

func (s *suite) checkOrphan() {
	a := s.newAlloc()
	first := s.start(s.host, a, s.Runs(s))
	old := marked(a.mark)
	s.crash(first.on)
	second := s.start(s.host, a, s.Runs(s))
	for _, process := range old {
		if alive(process.PID) {
			s.Errorf("of the earlier run there is still %d %s", process.PID, process.Command)
		}
	}
	if n := s.instances(a.mark); n != 1 {
		s.Errorf("%d instances run: want 1", n)
	}
	s.must(second.on.DestroyTask(s.soon(), second.id, true))
	s.gone(a.mark)
}

func (s *suite) checkExitCodes() {
	if s.Exits == nil {
		s.Skip("the target has no Exits")
	}
	for _, code := range []int32{0, 3} {
		r := s.start(s.host, s.newAlloc(), s.Exits(s, int(code), 300*time.Millisecond))
		results := make([]*nomadplugin.ExitResult, 3)
		var waiters sync.WaitGroup
		for n := range 2 {
			waiters.Go(func() { results[n], _ = r.on.WaitTask(s.soon(), r.id) })
		}
		waiters.Wait()
		results[2] = s.wait(r.on, r.id)
		for n, result := range results {
			if result == nil || !proto.Equal(result, results[0]) || result.GetExitCode() != code || result.GetSignal() != 0 {
				s.Errorf("waiter %d: got %v: want code %d", n, result, code)
			}
		}
		s.must(r.on.DestroyTask(s.soon(), r.id, true))
		s.gone(r.mark)
	}
}

func (s *suite) checkKilled() {
	r := s.start(s.host, s.newAlloc(), s.Runs(s))
	s.kill(s.inspect(r.on, r.id))
	s.within(patience, "the wait for a killed task", func() {
		// What a driver reports for a fault is its own; success it must not be.
		result, err := r.on.WaitTask(s.soon(), r.id)
		switch {
		case result == nil:
			s.Errorf("wait: %v", err)
		case err == nil && result.GetExitCode() == 0 && result.GetSignal() == 0:
			s.Error("a killed task ended in success")
		case result.GetSignal() != 0 && result.GetExitCode() != 128+result.GetSignal():
			s.Errorf("got %v: want code 128 + signal", result)
		}
	})
	s.must(r.on.DestroyTask(s.soon(), r.id, true))
	s.gone(r.mark)
}

func (s *suite) checkOutOfMemory() {
	if s.OutOfMemory == nil {
		s.Skip("the target has no OutOfMemory")
	}
	r := s.start(s.host, s.newAlloc(), s.OutOfMemory(s))
	if result := s.wait(r.on, r.id); !result.GetOomKilled() {
		s.Errorf("got %v: want oom_killed", result)
	}
}

func (s *suite) checkManyTasks() {
	i, before := s.instance(s.host), s.traces()
	// The first task of a process may open what the process keeps.
	s.oneTask()
	files := descriptors(i.PID())
	var tasks sync.WaitGroup
	for range s.Tasks {
		tasks.Go(s.oneTask)
	}
	tasks.Wait()
	s.eventually("the plugin's open files closed again", func() bool { return descriptors(i.PID()) <= files+3 })
	s.unchanged(before)
}

func (s *suite) oneTask() {
	a := s.newAlloc()
	config := s.task(s.host, a, s.Runs(s))
	i, id := s.instance(s.host), nomadplugin.TaskID(config.GetId())
	if _, _, err := i.StartTask(s.soon(), config); err != nil {
		s.Errorf("start: %v", err)
		return
	}
	waited := make(chan error, 1)
	go func() {
		_, err := i.WaitTask(s.soon(), id)
		waited <- err
	}()
	if err := i.StopTask(s.soon(), id, s.StopTimeout, ""); err != nil {
		s.Errorf("stop: %v", err)
	}
	if err := <-waited; err != nil {
		s.Errorf("wait: %v", err)
	}
	if err := i.DestroyTask(s.soon(), id, true); err != nil {
		s.Errorf("destroy: %v", err)
	}
}
