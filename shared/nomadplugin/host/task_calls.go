// SPDX-License-Identifier: MPL-2.0

package host

import (
	"context"
	"errors"
	"time"

	"github.com/botscreen/botscreen/shared/nomadplugin"
)

// Instance is a process of the plugin that knows the task, for calls that Task does not have.
func (t *Task) Instance(ctx context.Context) (*Instance, error) { return t.instance(ctx) }

// Signal sends a signal to the task, by the name as written.
func (t *Task) Signal(ctx context.Context, signal string) error {
	i, err := t.instance(ctx)
	if err != nil {
		return err
	}
	return i.SignalTask(ctx, t.id, signal)
}

// Inspect reports the driver's view of the task.
func (t *Task) Inspect(ctx context.Context) (*nomadplugin.TaskInspection, error) {
	i, err := t.instance(ctx)
	if err != nil {
		return nil, err
	}
	return i.InspectTask(ctx, t.id)
}

// Exec runs a command in the task's context and collects its output.
func (t *Task) Exec(ctx context.Context, command []string, timeout time.Duration) (*nomadplugin.ExecResult, error) {
	i, err := t.instance(ctx)
	if err != nil {
		return nil, err
	}
	return i.ExecTask(ctx, t.id, command, timeout)
}

// ExecStreaming runs a command in the task's context with live input and output.
func (t *Task) ExecStreaming(ctx context.Context, req nomadplugin.ExecRequest) (*nomadplugin.ExitResult, error) {
	i, err := t.instance(ctx)
	if err != nil {
		return nil, err
	}
	return i.ExecTaskStreaming(ctx, t.id, req)
}

// Stats hands over samples of resource usage until the task is Done or ctx is. A stream that ends or
// fails before is opened again after the interval.
func (t *Task) Stats(ctx context.Context, interval time.Duration, each func(*nomadplugin.TaskStats)) error {
	for {
		err := t.sample(ctx, interval, each)
		if errors.Is(err, ErrClosed) {
			return err
		}
		if err != nil && ctx.Err() == nil {
			t.host.options.Logger.Debug("task statistics interrupted", "task", string(t.id), "error", err)
		}
		if err := t.await(ctx, interval); !errors.Is(err, errStillRunning) {
			return err
		}
	}
}

func (t *Task) sample(ctx context.Context, interval time.Duration, each func(*nomadplugin.TaskStats)) error {
	i, err := t.instance(ctx)
	if err != nil {
		return err
	}
	return i.TaskStats(ctx, t.id, interval, func(sample *nomadplugin.TaskStats) error {
		each(sample)
		return nil
	})
}
