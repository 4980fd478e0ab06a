// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/botscreen/botscreen/shared/nomadplugin/proto/structspb"
)

// Errors with a text that agents and tools know. They reach the other side word for word, also
// when wrapped.
var (
	ErrTaskNotFound = errors.New("task not found for given id")
	ErrTaskRunning  = errors.New("cannot destroy running task")
	// ErrNotSupported is the answer of a driver that does not offer a call.
	ErrNotSupported = errors.New("not supported by this driver")
)

var fixedTexts = []error{ErrTaskNotFound, ErrTaskRunning}

// recoverableError carries the mark through wrapping.
type recoverableError struct {
	cause       error
	recoverable bool
}

func (e *recoverableError) Error() string { return e.cause.Error() }
func (e *recoverableError) Unwrap() error { return e.cause }

// Recoverable marks an error of StartTask as one that another attempt may cure: the agent then
// follows the task's restart policy. Errors without the mark fail the task. Recoverable(nil) is nil.
func Recoverable(err error) error {
	if err == nil {
		return nil
	}
	return &recoverableError{cause: err, recoverable: true}
}

// IsRecoverable says whether an error carries the mark of Recoverable, on either side of the wire.
// On a wire error only the first detail counts, as for a Nomad agent.
func IsRecoverable(err error) bool {
	var marked *recoverableError
	if errors.As(err, &marked) {
		return marked.recoverable
	}
	st, ok := status.FromError(err)
	if !ok || st == nil {
		return false
	}
	details := st.Details()
	if len(details) == 0 {
		return false
	}
	detail, ok := details[0].(*structspb.RecoverableError)
	return ok && detail.GetRecoverable()
}

// wireError is the gRPC status of a driver's error. Agents read Unavailable and Canceled as the
// death of the plugin and other codes not at all, so everything but a call that was really cancelled
// becomes Unknown with the bare text, as from Nomad's own drivers.
func wireError(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return status.FromContextError(ctx.Err()).Err()
	}
	var marked *recoverableError
	if errors.As(err, &marked) {
		return recoverableStatus(err.Error(), marked.recoverable)
	}
	for _, fixed := range fixedTexts {
		if errors.Is(err, fixed) {
			return status.Error(codes.Unknown, fixed.Error())
		}
	}
	return status.Error(codes.Unknown, errorText(err))
}

func recoverableStatus(text string, recoverable bool) error {
	st, err := status.New(codes.FailedPrecondition, text).
		WithDetails(&structspb.RecoverableError{Recoverable: recoverable})
	if err != nil {
		return status.Error(codes.Unknown, text)
	}
	return st.Err()
}

// errorText is the message of an error; of a gRPC status, for example from a container runtime, it
// is the description alone.
func errorText(err error) string {
	if st, ok := status.FromError(err); ok && st.Code() != codes.OK {
		return st.Message()
	}
	return err.Error()
}

// AlreadyStarted is the error for a StartTask whose id is in use.
func AlreadyStarted(id TaskID) error {
	return fmt.Errorf("task with ID %q already started", string(id))
}
