// SPDX-License-Identifier: MPL-2.0

package host

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/structspb"
)

const id = nomadplugin.TaskID("a/t/1")

func config() *nomadplugin.TaskConfig {
	return &nomadplugin.TaskConfig{Id: string(id), Name: "t", AllocId: "a", MsgpackDriverConfig: []byte{0x80}, ParentJobId: "p"}
}

func (p *plugged) start(h *Host) *Task {
	p.Helper()
	task, err := h.StartTask(p.context(), config())
	if err != nil {
		p.Fatal(err)
	}
	return task
}

// run is a task with something in Run.
func (p *plugged) run(task *Task) <-chan error {
	ended := make(chan error, 1)
	go func() { ended <- task.Run(p.context()) }()
	return ended
}

func (p *plugged) count(call string) (n int) {
	p.Helper()
	for _, c := range p.calls() {
		if strings.Contains(c, call) {
			n++
		}
	}
	return n
}

func TestC90_life_of_a_task(t *testing.T) {
	p := script(t, "")
	h := p.load()
	task := p.start(h)
	if task.ID() != id || task.Network().GetAddr() != "192.0.2.1" {
		t.Errorf("id %s, network %v", task.ID(), task.Network())
	}
	if _, ok := task.Exit(); ok {
		t.Error("a running task has an exit")
	}
	ended := p.run(task)
	if err := task.Kill(p.context(), time.Hour, "SIGUSR1"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	exit, ok := task.Exit()
	if !ok || exit.Result.GetSignal() != 15 || exit.Err != nil || exit.Successful() {
		t.Errorf("exit %+v", exit)
	}
	calls := p.calls()
	if last := calls[len(calls)-1]; last != "p3 DestroyTask force=true" || p.count(`p3 StopTask 30s "SIGUSR1"`) != 1 {
		t.Errorf("C91: got %q", calls)
	}
	if p.count(`StartTask a/t/1 parent=""`) != 1 {
		t.Errorf("C92: %q", calls)
	}
	if err := task.Kill(p.context(), 0, ""); err != nil {
		t.Errorf("kill of an ended task: %v", err)
	}
	if !(Exit{Result: &nomadplugin.ExitResult{}}).Successful() {
		t.Error("code 0 is success")
	}
	one, two := NewTaskID("a", "t"), NewTaskID("a", "t")
	if form := regexp.MustCompile(`^a/t/[0-9a-f]{8}$`); one == two || !form.MatchString(string(one)) {
		t.Errorf("ids %s, %s", one, two)
	}
}

func TestC42_start_answers(t *testing.T) {
	for text, want := range map[string]string{
		"start_fatal": "", "start_nil": "malformed", "start_other": "malformed", "start_error": "start refused",
	} {
		p := script(t, text)
		_, err := p.load().StartTask(p.context(), config())
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v: want %q", text, err, want)
		}
	}
}

func TestStartAgainAfterACrash(t *testing.T) {
	p := script(t, "start_dies")
	p.start(p.load())
	if n := p.count("StartTask a/t/1"); n != 2 {
		t.Errorf("started %d times: want again with the same id", n)
	}
	p = script(t, "start_always_dies")
	if _, err := p.load().StartTask(p.context(), config()); !errors.Is(err, ErrShutdown) {
		t.Errorf("got %v", err)
	}
	if n := p.count("StartTask a/t/1"); n != 2 {
		t.Errorf("started %d times: want once more only", n)
	}
}

func TestC79_recovery_after_a_crash(t *testing.T) {
	p := script(t, "wait_dies")
	h := p.load()
	first, err := h.Instance(p.context())
	if err != nil {
		t.Fatal(err)
	}
	task := p.start(h)
	ended := p.run(task)
	<-first.Exited()
	if err := task.Kill(p.context(), time.Second, ""); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	calls := p.calls()
	if n := p.count(`RecoverTask id="" handle=a/t/1 config=1`); n != 1 {
		t.Errorf("C92: recovered %d times: want once, with the configuration: %q", n, calls)
	}
}

func TestRecoveryRefused(t *testing.T) {
	p := script(t, "wait_dies bad_recover")
	task := p.start(p.load())
	if err := <-p.run(task); err != nil {
		t.Fatal(err)
	}
	exit, ok := task.Exit()
	if !ok || exit.Err == nil || !strings.Contains(exit.Err.Error(), "recover refused") || exit.Successful() {
		t.Errorf("exit %+v", exit)
	}
	if p.count("DestroyTask force=true") != 1 {
		t.Errorf("calls %q", p.calls())
	}
}

func TestC93_C80_record(t *testing.T) {
	p := script(t, "")
	first := p.load()
	record, err := p.start(first).Record()
	if err != nil {
		t.Fatal(err)
	}
	if err := first.Close(p.context()); err != nil {
		t.Fatal(err)
	}
	data, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	var read Record
	if err := json.Unmarshal(data, &read); err != nil {
		t.Fatal(err)
	}
	second := p.load()
	task, err := second.RecoverTask(p.context(), read)
	if err != nil {
		t.Fatal(err)
	}
	if p.count(`RecoverTask id="" handle=a/t/1 config=0`) != 1 || task.Network().GetAddr() != "192.0.2.1" {
		t.Errorf("calls %q, network %v", p.calls(), task.Network())
	}
	for _, bad := range []Record{{Handle: []byte{0xff}}, {Handle: read.Handle, Network: []byte{0xff}}} {
		if _, err := second.RecoverTask(p.context(), bad); err == nil {
			t.Errorf("%x: accepted", bad)
		}
	}
}

func TestRunLetsGo(t *testing.T) {
	p := script(t, "")
	h := p.load()
	task := p.start(h)
	ctx, cancel := context.WithCancel(p.context())
	ended := make(chan error, 1)
	go func() { ended <- task.Run(ctx) }()
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if _, ok := task.Exit(); ok || p.count("DestroyTask") != 0 {
		t.Error("the task was ended")
	}
	again := p.run(task)
	if err := h.Close(p.context()); err != nil {
		t.Fatal(err)
	}
	if err := <-again; !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestC89_stop_schedule(t *testing.T) {
	if got := nomadPace().stop; !slices.Equal(got, []time.Duration{5 * time.Second, 20 * time.Second, 80 * time.Second, 2 * time.Minute, 2 * time.Minute}) {
		t.Errorf("schedule %v", got)
	}
	p := script(t, "stop_fails")
	task := p.start(p.load())
	p.run(task)
	start := time.Now()
	err := task.Kill(p.context(), time.Second, "")
	if err == nil || !strings.Contains(err.Error(), "leaked") || p.count("StopTask") != 3 || time.Since(start) < 120*time.Millisecond {
		t.Errorf("got %v after %v and %q", err, time.Since(start), p.calls())
	}
	p = script(t, "stop_fails_once")
	task = p.start(p.load())
	p.run(task)
	if err := task.Kill(p.context(), time.Second, ""); err != nil || p.count("StopTask") != 2 {
		t.Errorf("got %v and %q", err, p.calls())
	}
	p = script(t, "stop_fails_but_ends")
	task = p.start(p.load())
	p.run(task)
	if err := task.Kill(p.context(), time.Second, ""); err != nil || p.count("StopTask") != 1 {
		t.Errorf("a task that ends meanwhile: got %v and %q", err, p.calls())
	}
}

func TestC94_wait_answers(t *testing.T) {
	for text, check := range map[string]func(Exit) bool{
		"wait_nil":     func(e Exit) bool { return e.Result == nil && strings.Contains(e.Err.Error(), "malformed") },
		"wait_error":   func(e Exit) bool { return e.Result == nil && errors.Is(e.Err, nomadplugin.ErrTaskNotFound) },
		"wait_trouble": func(e Exit) bool { return e.Result != nil && e.Err.Error() == "trouble" },
		"wait_exits":   func(e Exit) bool { return e.Result.GetExitCode() == 3 && e.Err == nil },
	} {
		p := script(t, text)
		task := p.start(p.load())
		if err := <-p.run(task); err != nil {
			t.Fatal(err)
		}
		exit, _ := task.Exit()
		if !check(exit) || exit.Successful() || p.count("DestroyTask force=true") != 1 {
			t.Errorf("%s: exit %+v, calls %q", text, exit, p.calls())
		}
	}
}

func TestC94_malformed_answers(t *testing.T) {
	for _, missing := range []string{"nothing", "result", "started", "completed"} {
		p := script(t, "inspect="+missing)
		if _, err := p.instance().InspectTask(p.context(), id); err == nil || !strings.Contains(err.Error(), "malformed") {
			t.Errorf("inspect without %s: %v", missing, err)
		}
	}
	for missing, ok := range map[string]bool{"nothing": false, "usage": false, "time": true, "": true} {
		p := script(t, "stats="+missing)
		samples := 0
		err := p.instance().TaskStats(p.context(), id, time.Second, func(*nomadplugin.TaskStats) error { samples++; return nil })
		if (err == nil) != ok || (samples == 1) != (missing == "") {
			t.Errorf("stats without %s: %d samples, %v", missing, samples, err)
		}
	}
	if checkStats(&driverpb.TaskStats{AggResourceUsage: &driverpb.TaskResourceUsage{}, ResourceUsageByPid: map[string]*driverpb.TaskResourceUsage{"1": nil}}) == nil {
		t.Error("a process without usage: accepted")
	}
	p := script(t, "")
	if _, err := p.instance().ExecTask(p.context(), id, []string{"x"}, 0); err == nil || !strings.Contains(err.Error(), "malformed") {
		t.Errorf("exec without a result: %v", err)
	}
	for _, fault := range []string{"nothing", "no_result", "twice"} {
		p := script(t, "exec="+fault)
		_, err := p.instance().ExecTaskStreaming(p.context(), id, nomadplugin.ExecRequest{Command: []string{"x"}})
		if err == nil || !strings.Contains(err.Error(), "malformed") {
			t.Errorf("streaming exec, %s: %v", fault, err)
		}
	}
}

func TestExecRefused(t *testing.T) {
	p := script(t, "")
	i := p.instance()
	never, hold := io.Pipe()
	defer hold.Close()
	_, err := i.ExecTaskStreaming(p.context(), id, nomadplugin.ExecRequest{Command: []string{"x"}, Stdin: never, Stdout: &bytes.Buffer{}})
	if status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "exec refused") {
		t.Errorf("got %v", err)
	}
}

func TestErrorsAreTold(t *testing.T) {
	p := script(t, "")
	i := p.instance()
	ctx, cancel := context.WithCancel(p.context())
	cancel()
	if err := i.SignalTask(ctx, id, "X"); !errors.Is(err, context.Canceled) {
		t.Errorf("the caller gave up: %v", err)
	}
	start := time.Now()
	err := i.SignalTask(p.context(), id, "X")
	var call *CallError
	if !errors.As(err, &call) || call.Call != "SignalTask" || err.Error() != "SignalTask: signal X refused" {
		t.Errorf("a plugin that abuses Canceled: %v", err)
	}
	if took := time.Since(start); took < exitGrace || took > 2*exitGrace {
		t.Errorf("took %v: want the wait for a possible exit", took)
	}
	p = script(t, "signal_dies")
	if err := p.instance().SignalTask(p.context(), id, "X"); !errors.Is(err, ErrShutdown) {
		t.Errorf("a plugin that dies: %v", err)
	}
	dead := script(t, "").instance()
	if err := syscall.Kill(dead.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	<-dead.Exited()
	if _, err := dead.PluginInfo(p.context()); !errors.Is(err, ErrShutdown) {
		t.Errorf("a dead plugin: %v", err)
	}
}

func TestC41_recoverable_over_the_wire(t *testing.T) {
	st, err := status.New(codes.FailedPrecondition, "again").WithDetails(&structspb.RecoverableError{Recoverable: true})
	if err != nil {
		t.Fatal(err)
	}
	if !nomadplugin.IsRecoverable(&CallError{Call: "StartTask", status: st}) {
		t.Error("the mark is lost")
	}
}

func TestC06_local_node(t *testing.T) {
	node := LocalNode().GetDriver()
	topology := node.GetTopology()
	dimension := topology.GetDistances().GetDimension()
	if len(topology.GetCores()) == 0 || len(topology.GetDistances().GetValues()) != int(dimension*dimension) || node.GetClientMinPort() == 0 {
		t.Errorf("got %v", node)
	}
	for text, want := range map[string]uint64{"cpu MHz\t\t: 2893.202\n": 2893, "": defaultMHz, "cpu MHz: fast\n": defaultMHz, "cpu MHz : 0.1": defaultMHz} {
		if got := coreMHz(text); got != want {
			t.Errorf("%q: got %d: want %d", text, got, want)
		}
	}
	if !proto.Equal(LocalNode(), LocalNode()) && len(topology.GetCores()) == 0 {
		t.Error("the node changes")
	}
}
