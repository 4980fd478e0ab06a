// SPDX-License-Identifier: MPL-2.0

package host

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	"github.com/botscreen/botscreen/shared/nomadplugin"
)

// NewTaskID makes the id of the next run of a task. Every start needs another one.
func NewTaskID(allocID, taskName string) nomadplugin.TaskID {
	var suffix [4]byte
	// Read never fails (crypto/rand).
	_, _ = rand.Read(suffix[:])
	return nomadplugin.TaskID(allocID + "/" + taskName + "/" + hex.EncodeToString(suffix[:]))
}

// Exit is how a run of a task ended.
type Exit struct {
	Result *nomadplugin.ExitResult
	// Err is trouble of the driver's, or of the way to it. With it the exit is a failure.
	Err error
}

// Successful says what restart policies ask.
func (e Exit) Successful() bool {
	return e.Err == nil && e.Result.GetExitCode() == 0 && e.Result.GetSignal() == 0
}

// Record is what a host must keep to find a task again; it is written as JSON. It contains the
// task's environment and with it secrets, but not the task's configuration: that is in
// nobody's record, as with a Nomad agent.
type Record struct {
	Handle  []byte `json:"handle"`
	Network []byte `json:"network,omitempty"`
}

// Task is one run of a task. It survives the processes of the plugin.
type Task struct {
	host    *Host
	id      nomadplugin.TaskID
	handle  *nomadplugin.TaskHandle
	network *nomadplugin.NetworkOverride

	// known holds one token; its owner may replace on, the process that knows the task.
	known chan struct{}
	on    *Instance

	// exit is set before done is closed.
	end  sync.Once
	done chan struct{}
	exit Exit
}

func newTask(h *Host, handle *nomadplugin.TaskHandle, network *nomadplugin.NetworkOverride, on *Instance) *Task {
	t := &Task{
		host: h, id: nomadplugin.TaskID(handle.GetConfig().GetId()), handle: handle, network: network,
		known: make(chan struct{}, 1), on: on, done: make(chan struct{}),
	}
	t.known <- struct{}{}
	return t
}

// StartTask starts a task. When the plugin dies meanwhile, another process is asked once more with
// the same id. On an error nothing runs.
func (h *Host) StartTask(ctx context.Context, config *nomadplugin.TaskConfig) (*Task, error) {
	config = proto.CloneOf(config)
	// Declared, but nothing a Nomad agent ever fills.
	config.ParentJobId = ""
	for again := false; ; again = true {
		i, err := h.Instance(ctx)
		if err != nil {
			return nil, err
		}
		handle, network, err := i.StartTask(ctx, config)
		if errors.Is(err, ErrShutdown) && !again {
			continue
		}
		if err != nil {
			return nil, err
		}
		return newTask(h, handle, network, i), nil
	}
}

// RecoverTask finds a task of an earlier host again. On an error the task is destroyed and the
// caller must treat it as ended.
func (h *Host) RecoverTask(ctx context.Context, record Record) (*Task, error) {
	handle, network := &nomadplugin.TaskHandle{}, &nomadplugin.NetworkOverride{}
	if err := proto.Unmarshal(record.Handle, handle); err != nil {
		return nil, fmt.Errorf("recover task: read record: %w", err)
	}
	if record.Network == nil {
		network = nil
	} else if err := proto.Unmarshal(record.Network, network); err != nil {
		return nil, fmt.Errorf("recover task: read record: %w", err)
	}
	t := newTask(h, handle, network, nil)
	if _, err := t.instance(ctx); err != nil {
		return nil, fmt.Errorf("recover task %s: %w", t.id, err)
	}
	return t, nil
}

// ID of this run.
func (t *Task) ID() nomadplugin.TaskID { return t.id }

// Network is where the driver says that the task is reached, or nil.
func (t *Task) Network() *nomadplugin.NetworkOverride { return t.network }

// Record is what RecoverTask needs.
func (t *Task) Record() (Record, error) {
	handle := proto.CloneOf(t.handle)
	handle.GetConfig().MsgpackDriverConfig = nil
	encoded, err := proto.Marshal(handle)
	if err != nil {
		return Record{}, fmt.Errorf("record task %s: %w", t.id, err)
	}
	record := Record{Handle: encoded}
	if t.network != nil {
		if record.Network, err = proto.Marshal(t.network); err != nil {
			return Record{}, fmt.Errorf("record task %s: %w", t.id, err)
		}
	}
	return record, nil
}

// recoverError is a task that another process of the plugin does not take over.
type recoverError struct{ cause error }

func (e *recoverError) Error() string { return "recover: " + e.cause.Error() }
func (e *recoverError) Unwrap() error { return e.cause }

// instance is a process that knows the task. A new one is told about it first, once; one that does
// not take it is asked to destroy what it may have of it.
func (t *Task) instance(ctx context.Context) (*Instance, error) {
	select {
	case <-t.known:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { t.known <- struct{}{} }()
	i, err := t.host.Instance(ctx)
	if err != nil || i == t.on {
		return i, err
	}
	err = i.RecoverTask(ctx, t.handle)
	if err == nil {
		t.on = i
		return i, nil
	}
	if !errors.Is(err, ErrShutdown) && ctx.Err() == nil {
		_ = i.DestroyTask(ctx, t.id, true)
		err = &recoverError{err}
	}
	return nil, err
}

// Run waits for the task to end, over as many processes of the plugin as that takes, and then
// destroys it. It returns nil when Exit has the result, and the context's error when the caller lets
// the task go; the task then keeps running. While the plugin cannot be started Run keeps trying,
// because nobody knows that the task is dead.
func (t *Task) Run(ctx context.Context) error {
	wait := t.host.options.pace.launchMin
	for {
		i, err := t.instance(ctx)
		if err == nil {
			wait = t.host.options.pace.launchMin
			var result *nomadplugin.ExitResult
			result, err = i.WaitTask(ctx, t.id)
			switch {
			case result != nil || !errors.Is(err, ErrShutdown) && ctx.Err() == nil:
				t.finish(ctx, i, Exit{Result: result, Err: err})
				return nil
			case ctx.Err() == nil:
				continue
			}
		}
		var lost *recoverError
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, ErrClosed):
			return err
		case errors.As(err, &lost):
			t.ended(Exit{Err: err})
			return nil
		}
		if err := pause(ctx, wait); err != nil {
			return err
		}
		wait = min(2*wait, t.host.options.pace.launchMax)
	}
}

// finish destroys the ended task first, so that whoever waits may start the next run.
func (t *Task) finish(ctx context.Context, i *Instance, exit Exit) {
	if err := i.DestroyTask(ctx, t.id, true); err != nil {
		t.host.options.Logger.Warn("ended task not destroyed", "task", string(t.id), "error", err)
	}
	t.ended(exit)
}

func (t *Task) ended(exit Exit) {
	t.end.Do(func() {
		t.exit = exit
		close(t.done)
	})
}

// Done is closed when the task has ended and is destroyed. Something must be in Run for that.
func (t *Task) Done() <-chan struct{} { return t.done }

// Exit is how the task ended; ok is false while Done is open.
func (t *Task) Exit() (exit Exit, ok bool) {
	select {
	case <-t.done:
		return t.exit, true
	default:
		return Exit{}, false
	}
}

// Kill stops the task and returns when it is Done; something must be in Run. The timeout is capped
// by the host's maximum, the signal is passed on as written. A stop that fails is repeated after 5,
// 20, 80, 120 and 120 s; after that Kill gives up and what the task holds may be lost.
func (t *Task) Kill(ctx context.Context, timeout time.Duration, signal string) error {
	timeout = min(timeout, t.host.options.MaxKillTimeout)
	var last error
	for _, wait := range t.host.options.pace.stop {
		if last = t.stop(ctx, timeout, signal); last == nil {
			return t.await(ctx, -1)
		}
		t.host.options.Logger.Error("task not stopped, trying again", "task", string(t.id), "after", wait, "error", last)
		if err := t.await(ctx, wait); !errors.Is(err, errStillRunning) {
			return err
		}
	}
	return fmt.Errorf("stop task %s: given up, what it holds may be leaked: %w", t.id, last)
}

func (t *Task) stop(ctx context.Context, timeout time.Duration, signal string) error {
	select {
	case <-t.done:
		return nil
	default:
	}
	i, err := t.instance(ctx)
	if err != nil {
		return err
	}
	return i.StopTask(ctx, t.id, timeout, signal)
}

var errStillRunning = errors.New("task is still running")

// await is nil when the task is done. A negative limit is none.
func (t *Task) await(ctx context.Context, limit time.Duration) error {
	var expired <-chan time.Time
	if limit >= 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-t.done:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	case <-expired:
		return errStillRunning
	}
}
