// SPDX-License-Identifier: MPL-2.0

package host

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/botscreen/botscreen/shared/nomadplugin"
)

// ErrShutdown is the end of every call whose plugin process exited. The next call of the host
// starts another process; tasks are then recovered.
var ErrShutdown = errors.New("plugin is shut down")

// exitGrace is how long a broken connection may be the first sign of an exit that the operating
// system has yet to report.
const exitGrace = 3 * time.Second

// CallError is a failure that the plugin reported. Its text is the plugin's own.
type CallError struct {
	Call   string
	status *status.Status
}

func (e *CallError) Error() string { return e.Call + ": " + e.status.Message() }

// GRPCStatus makes status.FromError and nomadplugin.IsRecoverable see the answer as it came.
func (e *CallError) GRPCStatus() *status.Status { return e.status }

// Is recognises the errors that travel by their exact text. A Nomad agent does not; see
// nomadplugin.ErrTaskNotFound.
func (e *CallError) Is(target error) bool {
	switch target {
	case nomadplugin.ErrTaskNotFound, nomadplugin.ErrTaskRunning:
		return e.status.Code() == codes.Unknown && e.status.Message() == target.Error()
	default:
		return false
	}
}

// Lost says whether a call failed with the way to the plugin and not by the plugin's word: its
// process ended, or its connection broke and the end of the process was not seen in time.
func Lost(err error) bool {
	var call *CallError
	return errors.Is(err, ErrShutdown) || errors.As(err, &call) && call.status.Code() == codes.Unavailable
}

// classify says what the failure of a call means: the plugin is gone, the caller gave up, or the
// plugin answered with an error.
func (i *Instance) classify(ctx context.Context, call string, err error) error {
	if err == nil {
		return nil
	}
	if i.dead() {
		return ErrShutdown
	}
	code := status.Code(err)
	if code == codes.Unavailable || (code == codes.Canceled && i.ctx.Err() == nil) {
		grace := time.NewTimer(exitGrace)
		defer grace.Stop()
		select {
		case <-i.proc.exited.Done():
			return ErrShutdown
		case <-ctx.Done():
		case <-grace.C:
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if i.ctx.Err() != nil {
		return ErrShutdown
	}
	st, ok := status.FromError(err)
	if !ok {
		return err
	}
	return &CallError{Call: call, status: st}
}

func (i *Instance) dead() bool { return i.proc.exited.Err() != nil }

// callContext ends with the caller's context and with the instance. It has no deadline: gRPC would
// send that along, and the plugin's end of the call could be first and look like an answer.
func (i *Instance) callContext(ctx context.Context) (context.Context, context.CancelFunc) {
	callCtx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ofCaller := context.AfterFunc(ctx, cancel)
	ofInstance := context.AfterFunc(i.ctx, cancel)
	return callCtx, func() { ofCaller(); ofInstance(); cancel() }
}

// unary makes one call and says what its failure means.
func unary[Req, Resp any](ctx context.Context, i *Instance, name string,
	call func(context.Context, Req, ...callOption) (Resp, error), req Req) (Resp, error) {
	callCtx, cancel := i.callContext(ctx)
	defer cancel()
	resp, err := call(callCtx, req)
	return resp, i.classify(ctx, name, err)
}
