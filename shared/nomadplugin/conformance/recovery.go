// SPDX-License-Identifier: MPL-2.0

package conformance

import (
	"context"
	"errors"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/botscreen/botscreen/shared/nomadplugin"
)

func (s *suite) recoveryChecks() {
	s.check("C79_plugin_killed", (*suite).checkPluginKilled)
	s.check("C80_C29_agent_restart", (*suite).checkAgentRestart)
	s.check("C81_reattach", (*suite).checkReattach)
	s.check("C82_ended_meanwhile", (*suite).checkEndedMeanwhile)
	s.check("C83_forged_identity", (*suite).checkForged)
	s.check("C84_long_dead", (*suite).checkLongDead)
	s.check("C86_bad_handles", (*suite).checkBadHandles)
	s.check("C87_many_at_once", (*suite).checkManyAtOnce)
}

// stored is a handle as an agent has it after its own restart: without the configuration.
func stored(handle *nomadplugin.TaskHandle) *nomadplugin.TaskHandle {
	handle = proto.CloneOf(handle)
	handle.Config.MsgpackDriverConfig = nil
	return handle
}

// inhabitants are the processes of a task that must survive what a check does.
func inhabitants(mark string) (pids []int) {
	for _, process := range marked(mark) {
		pids = append(pids, process.PID)
	}
	return pids
}

func (s *suite) same(mark string, before []int) {
	s.Helper()
	for _, pid := range before {
		if !alive(pid) {
			s.Errorf("process %d of the task is gone", pid)
		}
	}
	if n := s.instances(mark); n != 1 {
		s.Errorf("%d instances run: want 1", n)
	}
}

func (s *suite) checkPluginKilled() {
	a := s.newAlloc()
	task, err := s.host.StartTask(s.soon(), s.task(s.host, a, s.Runs(s)))
	s.must(err)
	s.Cleanup(func() { s.destroy(s.host, task.ID()) })
	ended := make(chan error, 1)
	go func() { ended <- task.Run(s.soon()) }()
	before := s.settled(a.mark)
	s.crash(s.instance(s.host))
	i, err := task.Instance(s.soon())
	s.must(err)
	s.same(a.mark, before)
	if len(s.Shell) > 0 {
		r := &running{alloc: a, id: task.ID(), on: i}
		if got := s.stream(r, false, "echo again", nil); got.stdout != "again\n" {
			s.Errorf("exec after the crash: %+v", got)
		}
	}
	s.must(task.Kill(s.soon(), s.StopTimeout, ""))
	s.must(<-ended)
	if exit, ok := task.Exit(); !ok || exit.Result == nil {
		s.Errorf("exit %+v", exit)
	}
	s.gone(a.mark)
}

// settled is the processes of a task that stay: those that were there all of a second. Helpers of a
// start end by themselves.
func (s *suite) settled(mark string) (pids []int) {
	s.Helper()
	pids = inhabitants(mark)
	since := time.Now()
	s.eventually("the task has settled", func() bool {
		now := inhabitants(mark)
		pids = slices.DeleteFunc(pids, func(pid int) bool { return !slices.Contains(now, pid) })
		return time.Since(since) > time.Second
	})
	if len(pids) == 0 {
		s.Fatal("no process of the task stays")
	}
	return pids
}

func (s *suite) checkAgentRestart() {
	first := s.load(nil)
	a := s.newAlloc()
	r := s.start(first, a, s.Runs(s))
	before := s.settled(a.mark)
	s.within(4*time.Second, "the end of the plugin", func() { s.must(first.Close(s.soon())) })
	s.same(a.mark, before)
	second := s.load(nil)
	i := s.instance(second)
	s.Cleanup(func() { s.destroy(second, r.id) })
	s.must(i.RecoverTask(s.soon(), stored(r.handle)))
	s.same(a.mark, before)
	if task := s.inspect(i, r.id).GetTask(); task.GetId() != string(r.id) {
		s.Errorf("recovered as %q", task.GetId())
	}
	if len(s.Shell) > 0 {
		again := &running{alloc: a, id: r.id, on: i}
		if got := s.stream(again, false, "echo $NOMAD_TASK_NAME", nil); got.stdout != taskName+"\n" {
			s.Errorf("exec after the recovery: %+v", got)
		}
	}
	s.must(i.StopTask(s.soon(), r.id, s.StopTimeout, ""))
	s.wait(i, r.id)
	s.gone(a.mark)
	s.must(i.DestroyTask(s.soon(), r.id, true))
}

func (s *suite) checkReattach() {
	first := s.load(nil)
	a := s.newAlloc()
	r := s.start(first, a, s.Runs(s))
	before := s.settled(a.mark)
	record, err := first.Detach(s.soon())
	s.must(err)
	second := s.load(record)
	i := s.instance(second)
	s.Cleanup(func() { s.destroy(second, r.id) })
	if !i.Reattached() || i.PID() != record.PID {
		s.Fatalf("pid %d, reattached %v: want %d", i.PID(), i.Reattached(), record.PID)
	}
	s.must(i.RecoverTask(s.soon(), stored(r.handle)))
	s.same(a.mark, before)
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	if _, err := i.WaitTask(ctx, r.id); !errors.Is(err, context.DeadlineExceeded) {
		s.Errorf("wait: %v", err)
	}
	s.must(i.StopTask(s.soon(), r.id, s.StopTimeout, ""))
	s.wait(i, r.id)
	s.gone(a.mark)
	s.must(i.DestroyTask(s.soon(), r.id, true))
}

func (s *suite) checkEndedMeanwhile() {
	if s.Exits == nil {
		s.Skip("the target has no Exits")
	}
	first := s.load(nil)
	a := s.newAlloc()
	r := s.start(first, a, s.Exits(s, 7, time.Second))
	s.must(first.Close(s.soon()))
	s.gone(a.mark)
	second := s.load(nil)
	i := s.instance(second)
	s.Cleanup(func() { s.destroy(second, r.id) })
	s.must(i.RecoverTask(s.soon(), stored(r.handle)))
	s.within(time.Second, "the wait for a task that ended before", func() {
		if result := s.wait(i, r.id); result.GetExitCode() != 7 {
			s.Errorf("got %v: want code 7", result)
		}
	})
	s.must(i.DestroyTask(s.soon(), r.id, true))
}

func (s *suite) checkForged() {
	if s.Forge == nil {
		s.Skip("the target has no Forge")
	}
	innocent := exec.Command("sleep", "300")
	s.must(innocent.Start())
	s.Cleanup(func() { _ = innocent.Process.Kill(); _ = innocent.Wait() })
	// Starts are counted in ticks of 10 ms, and these two must differ.
	<-time.After(50 * time.Millisecond)
	r := s.start(s.host, s.newAlloc(), s.Runs(s))
	s.must(r.on.DestroyTask(s.soon(), r.id, true))
	handle := s.Forge(s, stored(r.handle), innocent.Process.Pid)
	if err := r.on.RecoverTask(s.soon(), handle); err == nil {
		s.within(5*time.Second, "the wait for a task that is gone", func() { s.wait(r.on, r.id) })
	}
	_ = r.on.StopTask(s.soon(), r.id, time.Second, "")
	_ = r.on.DestroyTask(s.soon(), r.id, true)
	if !alive(innocent.Process.Pid) {
		s.Error("a process that only has the pid of the task was killed")
	}
}

func (s *suite) checkLongDead() {
	a := s.newAlloc()
	r := s.start(s.host, a, s.Runs(s))
	other := s.start(s.host, s.newAlloc(), s.Runs(s))
	before := s.settled(other.mark)
	s.must(r.on.DestroyTask(s.soon(), r.id, true))
	s.gone(a.mark)
	if err := r.on.RecoverTask(s.soon(), stored(r.handle)); err == nil {
		s.within(5*time.Second, "the wait for a task that is gone", func() { s.wait(r.on, r.id) })
		s.must(r.on.DestroyTask(s.soon(), r.id, true))
	}
	if n := len(marked(a.mark)); n != 0 {
		s.Errorf("%d processes came back", n)
	}
	s.same(other.mark, before)
	s.must(other.on.DestroyTask(s.soon(), other.id, true))
}

func (s *suite) checkBadHandles() {
	i := s.instance(s.host)
	good := &nomadplugin.TaskHandle{Version: 1, Config: &nomadplugin.TaskConfig{Id: "a/t/bad"}, DriverState: []byte("{}")}
	change := func(f func(*nomadplugin.TaskHandle)) *nomadplugin.TaskHandle {
		handle := proto.CloneOf(good)
		f(handle)
		return handle
	}
	for name, handle := range map[string]*nomadplugin.TaskHandle{
		"nothing":          nil,
		"no configuration": change(func(h *nomadplugin.TaskHandle) { h.Config = nil }),
		"no id":            change(func(h *nomadplugin.TaskHandle) { h.Config.Id = "" }),
		"version 0":        change(func(h *nomadplugin.TaskHandle) { h.Version = 0 }),
		"unknown version":  change(func(h *nomadplugin.TaskHandle) { h.Version = 1 << 30 }),
		"no state":         change(func(h *nomadplugin.TaskHandle) { h.DriverState = nil }),
		"empty state":      good,
		"corrupt state":    change(func(h *nomadplugin.TaskHandle) { h.DriverState = []byte("\x00\xff{") }),
		"state of another": change(func(h *nomadplugin.TaskHandle) { h.DriverState = []byte(`{"pid":1,"shim":1}`) }),
		"huge state":       change(func(h *nomadplugin.TaskHandle) { h.DriverState = []byte(strings.Repeat("[", 1<<20)) }),
	} {
		err := i.RecoverTask(s.soon(), handle)
		if err == nil {
			s.Errorf("%s: accepted", name)
			s.destroy(s.host, nomadplugin.TaskID(handle.GetConfig().GetId()))
		} else if strings.Contains(err.Error(), "panic") {
			s.Errorf("%s: %v", name, err)
		}
	}
	select {
	case <-i.Exited():
		s.Error("the plugin died")
	default:
	}
}

// checkManyAtOnce recovers several tasks at the same time, before anything else is asked.
func (s *suite) checkManyAtOnce() {
	first := s.load(nil)
	tasks := make([]*running, 3)
	for n := range tasks {
		tasks[n] = s.start(first, s.newAlloc(), s.Runs(s))
	}
	s.must(first.Close(s.soon()))
	i := s.instance(s.load(nil))
	var calls sync.WaitGroup
	for _, r := range tasks {
		calls.Go(func() {
			if err := i.RecoverTask(s.soon(), stored(r.handle)); err != nil {
				s.Errorf("recover: %v", err)
			}
		})
	}
	calls.Wait()
	for _, r := range tasks {
		if n := s.instances(r.mark); n != 1 {
			s.Errorf("%d instances run: want 1", n)
		}
		calls.Go(func() {
			if err := i.DestroyTask(s.soon(), r.id, true); err != nil {
				s.Errorf("destroy: %v", err)
			}
		})
	}
	calls.Wait()
}
