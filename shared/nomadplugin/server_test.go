// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/botscreen/botscreen/shared/nomadplugin/proto/basepb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

func TestC33_all_capabilities_are_transmitted(t *testing.T) {
	want := &Capabilities{
		SendSignals: true, Exec: true, FsIsolation: driverpb.DriverCapabilities_UNVEIL,
		NetworkIsolationModes: []driverpb.NetworkIsolationSpec_NetworkIsolationMode{driverpb.NetworkIsolationSpec_GROUP},
		MustCreateNetwork:     true, MountConfigs: driverpb.DriverCapabilities_NO_MOUNTS, DisableLogCollection: true, DynamicWorkloadUsers: true,
	}
	driver := &badDriver{caps: want}
	_, client := serve(t, driver)
	got, err := client.Capabilities(testContext(t), &driverpb.CapabilitiesRequest{})
	if err != nil || !proto.Equal(got.GetCapabilities(), want) {
		t.Errorf("got %v, %v", got, err)
	}
	driver.caps = nil
	if got, err := client.Capabilities(testContext(t), &driverpb.CapabilitiesRequest{}); err != nil || got.GetCapabilities() == nil {
		t.Errorf("without capabilities: got %v, %v", got, err)
	}
}

func TestSchemasAreNeverAbsent(t *testing.T) {
	base, client := serve(t, &badDriver{})
	config, err := base.ConfigSchema(testContext(t), &basepb.ConfigSchemaRequest{})
	if err != nil || config.GetSpec().GetObject() == nil {
		t.Errorf("plugin: %v, %v", config, err)
	}
	task, err := client.TaskConfigSchema(testContext(t), &driverpb.TaskConfigSchemaRequest{})
	if err != nil || task.GetSpec().GetObject() == nil {
		t.Errorf("task: %v, %v", task, err)
	}
}

func TestStartTaskHandleIsCompleted(t *testing.T) {
	task := &TaskConfig{Id: "a/t/1", Env: map[string]string{"A": "b"}}
	driver := &badDriver{}
	_, client := serve(t, driver)
	for name, handle := range map[string]*TaskHandle{
		"empty":            {},
		"another id":       {Version: 2, Config: &TaskConfig{Id: "x"}, DriverState: []byte("s")},
		"no configuration": {Version: 1, State: driverpb.TaskState_RUNNING},
	} {
		driver.start = func(context.Context, *TaskConfig) (*TaskHandle, *NetworkOverride, error) { return handle, nil, nil }
		got, err := client.StartTask(testContext(t), &driverpb.StartTaskRequest{Task: task})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		h := got.GetHandle()
		if h.GetVersion() < 1 || h.GetState() != driverpb.TaskState_RUNNING || !proto.Equal(h.GetConfig(), task) || string(h.GetDriverState()) != string(handle.DriverState) {
			t.Errorf("%s: got %v", name, h)
		}
	}
	driver.start = func(context.Context, *TaskConfig) (*TaskHandle, *NetworkOverride, error) { return nil, nil, nil }
	if _, err := client.StartTask(testContext(t), &driverpb.StartTaskRequest{Task: task}); status.Code(err) != codes.Unknown {
		t.Errorf("without a handle: %v", err)
	}
	for _, bad := range []*TaskConfig{nil, {}} {
		if _, err := client.StartTask(testContext(t), &driverpb.StartTaskRequest{Task: bad}); err == nil {
			t.Errorf("%v: accepted", bad)
		}
	}
}

func TestC31_large_requests_are_received(t *testing.T) {
	var got int
	_, client := serve(t, &badDriver{start: func(_ context.Context, task *TaskConfig) (*TaskHandle, *NetworkOverride, error) {
		got = len(task.GetEnv()["LARGE"])
		return nil, nil, errors.New("seen")
	}})
	_, err := client.StartTask(testContext(t), &driverpb.StartTaskRequest{Task: &TaskConfig{Id: "a/t/1", Env: map[string]string{"LARGE": strings.Repeat("x", 8<<20)}}})
	if got != 8<<20 {
		t.Errorf("the driver saw %d bytes: %v", got, err)
	}
}

func TestC41_C48_errors_on_the_wire(t *testing.T) {
	driver := &badDriver{}
	_, client := serve(t, driver)
	for _, c := range []struct {
		err         error
		code        codes.Code
		text        string
		recoverable bool
	}{
		{errors.New("plain"), codes.Unknown, "plain", false},
		{Recoverable(errors.New("again")), codes.FailedPrecondition, "again", true},
		{fmt.Errorf("start: %w", Recoverable(errors.New("again"))), codes.FailedPrecondition, "start: again", true},
		{ErrTaskNotFound, codes.Unknown, "task not found for given id", false},
		{fmt.Errorf("wait x: %w", ErrTaskNotFound), codes.Unknown, "task not found for given id", false},
		{ErrTaskRunning, codes.Unknown, "cannot destroy running task", false},
		{AlreadyStarted("a/t/1"), codes.Unknown, `task with ID "a/t/1" already started`, false},
		{context.DeadlineExceeded, codes.Unknown, "context deadline exceeded", false},
		{context.Canceled, codes.Unknown, "context canceled", false},
		{status.Error(codes.Unavailable, "engine gone"), codes.Unknown, "engine gone", false},
		{status.Error(codes.Canceled, "engine busy"), codes.Unknown, "engine busy", false},
		{errors.New("bad \xff text"), codes.Unknown, "bad \uFFFD text", false},
	} {
		driver.start = func(context.Context, *TaskConfig) (*TaskHandle, *NetworkOverride, error) { return nil, nil, c.err }
		_, err := client.StartTask(testContext(t), &driverpb.StartTaskRequest{Task: &TaskConfig{Id: "a/t/1"}})
		if status.Code(err) != c.code || status.Convert(err).Message() != c.text || IsRecoverable(err) != c.recoverable {
			t.Errorf("%v: got %v, recoverable %v", c.err, err, IsRecoverable(err))
		}
	}
	if Recoverable(nil) != nil || IsRecoverable(nil) || IsRecoverable(errors.New("x")) {
		t.Error("only marked errors are recoverable")
	}
}

func TestUnsupportedCallsHaveTheKnownTexts(t *testing.T) {
	driver := &badDriver{err: ErrNotSupported, stream: func(context.Context, ExecRequest) (*ExitResult, error) { return nil, ErrNotSupported }}
	_, client := serve(t, driver)
	ctx := testContext(t)
	_, signal := client.SignalTask(ctx, &driverpb.SignalTaskRequest{})
	_, exec := client.ExecTask(ctx, &driverpb.ExecTaskRequest{Command: []string{"x"}})
	_, create := client.CreateNetwork(ctx, &driverpb.CreateNetworkRequest{})
	_, destroy := client.DestroyNetwork(ctx, &driverpb.DestroyNetworkRequest{})
	for text, err := range map[string]error{
		"SignalTask is not supported by this driver": signal,
		"ExecTask is not supported by this driver":   exec,
		"CreateNetwork RPC not supported by driver":  create,
		"DestroyNetwork RPC not supported by driver": destroy,
		"driver does not support exec":               streamError(t, client, "x"),
	} {
		if status.Convert(err).Message() != text {
			t.Errorf("got %v: want %s", err, text)
		}
	}
}

func TestPanicsAreErrors(t *testing.T) {
	driver := &badDriver{
		start:       func(context.Context, *TaskConfig) (*TaskHandle, *NetworkOverride, error) { panic("boom") },
		fingerprint: func(context.Context, func(*Fingerprint) error) error { panic("boom") },
		stream:      func(context.Context, ExecRequest) (*ExitResult, error) { panic("boom") },
	}
	_, client := serve(t, driver)
	_, err := client.StartTask(testContext(t), &driverpb.StartTaskRequest{Task: &TaskConfig{Id: "a/t/1"}})
	if status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "StartTask: panic in the driver: boom") {
		t.Errorf("unary: %v", err)
	}
	stream, err := client.Fingerprint(testContext(t), &driverpb.FingerprintRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "panic") {
		t.Errorf("stream: %v", err)
	}
	if err := streamError(t, client, "x"); status.Code(err) != codes.Unknown || !strings.Contains(err.Error(), "panic") {
		t.Errorf("exec: %v", err)
	}
}

func TestC49_wait_results(t *testing.T) {
	driver := &badDriver{}
	_, client := serve(t, driver)
	wait := func(result *ExitResult, err error) (*driverpb.WaitTaskResponse, error) {
		driver.wait = func(context.Context, TaskID) (*ExitResult, error) { return result, err }
		return client.WaitTask(testContext(t), &driverpb.WaitTaskRequest{TaskId: "a/t/1"})
	}
	if got, err := wait(&ExitResult{ExitCode: 3}, nil); err != nil || got.GetResult().GetExitCode() != 3 || got.GetErr() != "" {
		t.Errorf("result: %v, %v", got, err)
	}
	if got, err := wait(&ExitResult{ExitCode: -1}, errors.New("lost \xff")); err != nil || got.GetResult().GetExitCode() != -1 || got.GetErr() != "lost \uFFFD" {
		t.Errorf("result and trouble: %v, %v", got, err)
	}
	if _, err := wait(nil, nil); status.Code(err) != codes.Unknown {
		t.Errorf("nothing: %v", err)
	}
	driver.wait = func(ctx context.Context, _ TaskID) (*ExitResult, error) { <-ctx.Done(); return nil, ctx.Err() }
	ctx, cancel := context.WithCancel(testContext(t))
	cancel()
	if _, err := client.WaitTask(ctx, &driverpb.WaitTaskRequest{}); status.Code(err) != codes.Canceled {
		t.Errorf("cancelled: %v", err)
	}
}

func TestC54_inspection_is_completed(t *testing.T) {
	driver := &badDriver{}
	_, client := serve(t, driver)
	if _, err := client.InspectTask(testContext(t), &driverpb.InspectTaskRequest{TaskId: "a/t/1"}); status.Code(err) != codes.Unknown {
		t.Errorf("nothing: %v", err)
	}
	driver.inspect = &TaskInspection{Task: &TaskStatus{Name: "t\xff"}}
	got, err := client.InspectTask(testContext(t), &driverpb.InspectTaskRequest{TaskId: "a/t/1"})
	if err != nil {
		t.Fatal(err)
	}
	task := got.GetTask()
	const year1 = -62135596800
	if task.GetId() != "a/t/1" || task.GetResult() == nil || task.GetStartedAt().GetSeconds() != year1 || task.GetCompletedAt().GetSeconds() != year1 || got.GetDriver() == nil {
		t.Errorf("got %v", got)
	}
	if driver.inspect.Task.Id != "" {
		t.Error("the driver's own message was changed")
	}
}

func TestStatsAreCompleted(t *testing.T) {
	driver := &badDriver{stats: func(_ context.Context, send func(*TaskStats) error) error {
		for _, sample := range []*TaskStats{nil, {}, {ResourceUsageByPid: map[string]*driverpb.TaskResourceUsage{"1": nil, "2": {}}}} {
			if err := send(sample); err != nil {
				return err
			}
		}
		return nil
	}}
	_, client := serve(t, driver)
	stream, err := client.TaskStats(testContext(t), &driverpb.TaskStatsRequest{TaskId: "a/t/1"})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 3 {
		got, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		stats := got.GetStats()
		if stats.GetId() != "a/t/1" || stats.GetAggResourceUsage() == nil || stats.GetTimestamp() == nil || stats.GetResourceUsageByPid()["1"] != nil {
			t.Errorf("sample %d: %v", n, stats)
		}
	}
}

func TestC56_without_statistics_the_stream_stays_open(t *testing.T) {
	_, client := serve(t, &badDriver{stats: func(context.Context, func(*TaskStats) error) error { return ErrNotSupported }})
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	stream, err := client.TaskStats(ctx, &driverpb.TaskStatsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); status.Code(err) != codes.DeadlineExceeded {
		t.Errorf("got %v", err)
	}
}

func TestFingerprintAndEventsAreCompleted(t *testing.T) {
	driver := &badDriver{
		fingerprint: func(_ context.Context, send func(*Fingerprint) error) error {
			return errors.Join(send(nil), send(&Fingerprint{Health: Healthy, HealthDescription: "bad \xff", Attributes: map[string]*Attribute{
				"nil": nil, "empty": {}, "s": StringAttribute("x\xff"), "b": BoolAttribute(true), "i": IntAttribute(5, "MiB"), "f": FloatAttribute(1.5, "GHz")}}))
		},
		events: func(_ context.Context, send func(*TaskEvent) error) error {
			return errors.Join(send(nil), send(&TaskEvent{AllocId: "a", TaskName: "t", Message: "m\xff", Annotations: map[string]string{"k\xff": "v\xff"}}))
		},
	}
	_, client := serve(t, driver)
	prints, err := client.Fingerprint(testContext(t), &driverpb.FingerprintRequest{})
	if err != nil {
		t.Fatal(err)
	}
	if first, err := prints.Recv(); err != nil || first.GetHealth() != Undetected {
		t.Errorf("nothing: %v, %v", first, err)
	}
	got, err := prints.Recv()
	if err != nil || len(got.GetAttributes()) != 4 || got.GetHealthDescription() != "bad \uFFFD" || got.GetAttributes()["s"].GetStringVal() != "x\uFFFD" {
		t.Errorf("got %v, %v", got, err)
	}
	events, err := client.TaskEvents(testContext(t), &driverpb.TaskEventsRequest{})
	if err != nil {
		t.Fatal(err)
	}
	event, err := events.Recv()
	if err != nil || event.GetTimestamp() == nil || event.GetMessage() != "m\uFFFD" || event.GetAnnotations()["k\uFFFD"] != "v\uFFFD" {
		t.Errorf("got %v, %v", event, err)
	}
}

func TestC35_streams_do_not_end_early(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(context.Background())
		time.AfterFunc(time.Hour, cancel)
		start := time.Now()
		if err := keepOpen(ctx, func(context.Context) error { return nil }); status.Code(err) != codes.Canceled || time.Since(start) != time.Hour {
			t.Errorf("a driver that returns at once: %v after %v", err, time.Since(start))
		}
	})
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		err := keepOpen(context.Background(), func(context.Context) error { return errors.New("broken") })
		if status.Convert(err).Message() != "broken" || time.Since(start) != minStreamLife {
			t.Errorf("a driver that fails at once: %v after %v", err, time.Since(start))
		}
	})
}

func TestC86_bad_handles(t *testing.T) {
	driver := &badDriver{err: errors.New("the driver was asked")}
	_, client := serve(t, driver)
	for name, handle := range map[string]*TaskHandle{
		"nothing": nil, "no configuration": {Version: 1}, "no id": {Version: 1, Config: &TaskConfig{}}, "version 0": {Config: &TaskConfig{Id: "a/t/1"}},
	} {
		_, err := client.RecoverTask(testContext(t), &driverpb.RecoverTaskRequest{Handle: handle})
		if err == nil || strings.Contains(err.Error(), "asked") {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := client.RecoverTask(testContext(t), &driverpb.RecoverTaskRequest{Handle: &TaskHandle{Version: 1, Config: &TaskConfig{Id: "a/t/1"}}})
	if err == nil || !strings.Contains(err.Error(), "asked") {
		t.Errorf("a good handle: %v", err)
	}
}

func TestC59_exec_answers(t *testing.T) {
	driver := &badDriver{exec: &ExecResult{Stdout: []byte(strings.Repeat("x", maxExecOutput) + "end"), Result: &ExitResult{ExitCode: 1}}}
	_, client := serve(t, driver)
	got, err := client.ExecTask(testContext(t), &driverpb.ExecTaskRequest{Command: []string{"x"}})
	if err != nil || len(got.GetStdout()) != maxExecOutput || !strings.HasSuffix(string(got.GetStdout()), "end") {
		t.Errorf("%d bytes, %v: want the last %d", len(got.GetStdout()), err, maxExecOutput)
	}
	driver.exec = &ExecResult{}
	if _, err := client.ExecTask(testContext(t), &driverpb.ExecTaskRequest{Command: []string{"x"}}); status.Code(err) != codes.Unknown {
		t.Errorf("without a result: %v", err)
	}
	if _, err := client.ExecTask(testContext(t), &driverpb.ExecTaskRequest{}); err == nil {
		t.Error("without a command: accepted")
	}
}
