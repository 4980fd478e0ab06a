// SPDX-License-Identifier: MPL-2.0

package control

import (
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
)

// Kind says what sort of refusal an Error is; callers branch on it.
type Kind string

// Every kind of refusal.
const (
	HumanHasControl Kind = "human_has_control" // a person holds the screen; wait or ask
	LeaseChanged    Kind = "lease_changed"     // the epoch the caller acted on is over
	NotHolder       Kind = "not_holder"        // the caller does not hold what it wants to give
	PasswordFilled  Kind = "password_filled"   // handing back may show the agent a password; asked once
	Held            Kind = "held"              // a person holds; only force goes over that
	StartFailed     Kind = "start_failed"      // the desktop could not be started or woken
	Gone            Kind = "gone"              // the screen or the thing named has ended
	Refused         Kind = "refused"           // a rule or a policy says no
	BadRequest      Kind = "bad_request"       // the call is not well formed or does not exist
	Forbidden       Kind = "forbidden"         // this door may not make this call
	NotFound        Kind = "not_found"         // the program to run does not exist in the screen
	Busy            Kind = "busy"              // a limit is reached; try again
	Internal        Kind = "internal"          // the supervisor's own fault
)

// httpStatus is the status that a kind travels under.
var httpStatus = map[Kind]int{
	HumanHasControl: http.StatusConflict,
	LeaseChanged:    http.StatusConflict,
	NotHolder:       http.StatusConflict,
	Held:            http.StatusConflict,
	PasswordFilled:  http.StatusConflict,
	StartFailed:     http.StatusServiceUnavailable,
	Gone:            http.StatusGone,
	Refused:         http.StatusUnprocessableEntity,
	BadRequest:      http.StatusBadRequest,
	Forbidden:       http.StatusForbidden,
	NotFound:        http.StatusNotFound,
	Busy:            http.StatusTooManyRequests,
	Internal:        http.StatusInternalServerError,
}

// Error is a refusal as it travels: a sentence for a person, what to do next, and
// who holds the screen where that is the reason. Every error of this API is one.
type Error struct {
	Kind    Kind         `json:"kind"`
	Message string       `json:"message"`
	Next    string       `json:"next,omitempty"`
	Holder  lease.Holder `json:"holder,omitempty"`
	Since   time.Time    `json:"since,omitzero"`
	Epoch   lease.Epoch  `json:"epoch,omitempty"`
	Done    int          `json:"done,omitempty"` // of a list of actions: how many were done before
}

func (e *Error) Error() string {
	if e.Next == "" {
		return e.Message
	}
	return e.Message + " " + e.Next
}

// Is makes errors.Is(err, &Error{Kind: Busy}) ask for the kind alone.
func (e *Error) Is(target error) bool {
	t, ok := target.(*Error)
	return ok && t.Kind == e.Kind
}

// MarshalBody writes the JSON body that carries the error.
func (e *Error) MarshalBody() ([]byte, error) { return json.Marshal(errorBody{e}) }

// HTTPStatus is the status code this error is sent with.
func (e *Error) HTTPStatus() int {
	if status, ok := httpStatus[e.Kind]; ok {
		return status
	}
	return http.StatusInternalServerError
}

// KindOf is the kind of the refusal inside err, empty when there is none.
func KindOf(err error) Kind {
	var refusal *Error
	if errors.As(err, &refusal) {
		return refusal.Kind
	}
	return ""
}

// errorBody is how an Error stands in an answer.
type errorBody struct {
	Error *Error `json:"error"`
}
