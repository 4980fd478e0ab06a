// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"errors"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// The functions below return copies of what a driver answered with everything set that an agent
// dereferences without a look. Copies, because a driver may hold on to what it returned.

var errNoResult = errors.New("the driver gave no exit result")

// unknownTime is what agents expect for a time that is not known; nil is an error to them.
func unknownTime() *timestamppb.Timestamp { return timestamppb.New(time.Time{}) }

// completeHandle makes a handle that leads back to its task. The agent compares nothing, it just
// stores the configuration that comes back, so that must be the one it sent.
func completeHandle(handle *TaskHandle, task *TaskConfig) (*TaskHandle, error) {
	if handle == nil {
		return nil, errors.New("the driver gave no handle for the started task")
	}
	done := &TaskHandle{
		Version:     max(handle.GetVersion(), 1),
		Config:      task,
		State:       handle.GetState(),
		DriverState: handle.GetDriverState(),
	}
	if done.State == driverpb.TaskState_UNKNOWN {
		done.State = driverpb.TaskState_RUNNING
	}
	return done, nil
}

func completeFingerprint(in *Fingerprint) *Fingerprint {
	if in == nil {
		return &Fingerprint{HealthDescription: "the driver gave no fingerprint"}
	}
	out := &Fingerprint{
		Attributes:        make(map[string]*Attribute, len(in.GetAttributes())),
		Health:            in.GetHealth(),
		HealthDescription: in.GetHealthDescription(),
		Err:               in.GetErr(),
	}
	for name, value := range in.GetAttributes() {
		if value.GetValue() != nil {
			out.Attributes[name] = proto.CloneOf(value)
		}
	}
	cleanText(out.ProtoReflect())
	return out
}

func completeStats(in *TaskStats, id TaskID, now time.Time) *TaskStats {
	out := &TaskStats{
		Id:                 string(id),
		Timestamp:          in.GetTimestamp(),
		AggResourceUsage:   in.GetAggResourceUsage(),
		ResourceUsageByPid: make(map[string]*driverpb.TaskResourceUsage, len(in.GetResourceUsageByPid())),
	}
	if out.Timestamp == nil {
		out.Timestamp = timestamppb.New(now)
	}
	if out.AggResourceUsage == nil {
		out.AggResourceUsage = &driverpb.TaskResourceUsage{}
	}
	for pid, usage := range in.GetResourceUsageByPid() {
		if usage != nil {
			out.ResourceUsageByPid[pid] = usage
		}
	}
	return out
}

func completeInspection(in *TaskInspection, id TaskID) (*TaskInspection, error) {
	if in.GetTask() == nil {
		return nil, errors.New("the driver gave no state for the task")
	}
	out := proto.CloneOf(in)
	task := out.Task
	if task.Id == "" {
		task.Id = string(id)
	}
	if task.Result == nil {
		task.Result = &ExitResult{}
	}
	if task.StartedAt == nil {
		task.StartedAt = unknownTime()
	}
	if task.CompletedAt == nil {
		task.CompletedAt = unknownTime()
	}
	if out.Driver == nil {
		out.Driver = &driverpb.TaskDriverStatus{}
	}
	cleanText(out.ProtoReflect())
	return out, nil
}

func completeEvent(in *TaskEvent, now time.Time) *TaskEvent {
	out := proto.CloneOf(in)
	if out.Timestamp == nil {
		out.Timestamp = timestamppb.New(now)
	}
	cleanText(out.ProtoReflect())
	return out
}

// maxExecOutput bounds each collected stream of ExecTask. Agents keep the last 4 KiB.
const maxExecOutput = 1 << 20

func completeExec(in *ExecResult) (*ExecResult, error) {
	if in.GetResult() == nil {
		return nil, errNoResult
	}
	return &ExecResult{Stdout: tail(in.Stdout), Stderr: tail(in.Stderr), Result: in.Result}, nil
}

func tail(output []byte) []byte { return output[max(0, len(output)-maxExecOutput):] }
