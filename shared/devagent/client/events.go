// SPDX-License-Identifier: MPL-2.0

package client

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/host"
)

// Types of events that Nomad's API package has no name for.
const (
	taskRestoreFailed = "Failed Restoring Task"
	taskTemplate      = "Template"
)

// Why a task is or is not restarted, in Nomad's words.
const (
	reasonNoRestarts    = "Policy allows no restarts"
	reasonUnrecoverable = "Error was unrecoverable"
	reasonWithinPolicy  = "Restart within policy"
	reasonDelay         = "Exceeded allowed attempts, applying a delay"
)

func newEvent(kind, display string) *api.TaskEvent {
	return &api.TaskEvent{Type: kind, Time: time.Now().UnixNano(), DisplayMessage: display, Details: map[string]string{}}
}

func eventSetup(what string) *api.TaskEvent {
	e := newEvent(api.TaskSetup, what)
	e.Message, e.Details["message"] = what, what
	return e
}

func eventSetupFailure(why string) *api.TaskEvent {
	e := newEvent(api.TaskSetupFailure, why)
	e.SetupError, e.Details["setup_error"] = why, why
	e.FailsTask, e.Details["fails_task"] = true, "true"
	return e
}

func eventInvalid(err error) *api.TaskEvent {
	e := newEvent(api.TaskFailedValidation, err.Error())
	e.ValidationError, e.Details["validation_error"] = err.Error(), err.Error()
	return e
}

func eventDriverFailure(err error) *api.TaskEvent {
	e := newEvent(api.TaskDriverFailure, err.Error())
	e.DriverError, e.Details["driver_error"] = err.Error(), err.Error()
	return e
}

func eventTerminated(exit host.Exit) *api.TaskEvent {
	code, signal := int(exit.Result.GetExitCode()), int(exit.Result.GetSignal())
	parts := []string{fmt.Sprintf("Exit Code: %d", code)}
	if signal != 0 {
		parts = append(parts, fmt.Sprintf("Signal: %d", signal))
	}
	if exit.Err != nil {
		parts = append(parts, fmt.Sprintf("Exit Message: %q", exit.Err.Error()))
	}
	e := newEvent(api.TaskTerminated, strings.Join(parts, ", "))
	e.ExitCode, e.Signal = code, signal
	e.Details["exit_code"], e.Details["signal"] = strconv.Itoa(code), strconv.Itoa(signal)
	e.Details["oom_killed"] = strconv.FormatBool(exit.Result.GetOomKilled())
	if exit.Err != nil {
		e.Message, e.Details["exit_message"] = exit.Err.Error(), exit.Err.Error()
	}
	return e
}

func eventKilling(timeout time.Duration) *api.TaskEvent {
	display := "Sent interrupt"
	if timeout != 0 {
		display = fmt.Sprintf("Sent interrupt. Waiting %v before force killing", timeout)
	}
	e := newEvent(api.TaskKilling, display)
	e.KillTimeout, e.Details["kill_timeout"] = timeout, timeout.String()
	return e
}

func eventKilled(err error) *api.TaskEvent {
	if err == nil {
		return newEvent(api.TaskKilled, "Task successfully killed")
	}
	e := newEvent(api.TaskKilled, err.Error())
	e.KillError, e.Details["kill_error"] = err.Error(), err.Error()
	return e
}

func eventSiblingFailed(sibling string) *api.TaskEvent {
	e := newEvent(api.TaskSiblingFailed, fmt.Sprintf("Task's sibling %q failed", sibling))
	e.FailedSibling, e.Details["failed_sibling"] = sibling, sibling
	return e
}

func eventRestarting(delay time.Duration, reason string) *api.TaskEvent {
	display := fmt.Sprintf("Task restarting in %v", delay)
	if reason != "" && reason != reasonWithinPolicy {
		display = reason + " - " + display
	}
	e := newEvent(api.TaskRestarting, display)
	e.StartDelay, e.Details["start_delay"] = int64(delay), strconv.FormatInt(int64(delay), 10)
	e.RestartReason, e.Details["restart_reason"] = reason, reason
	return e
}

func eventNotRestarting(reason string) *api.TaskEvent {
	e := newEvent(api.TaskNotRestarting, reason)
	e.RestartReason, e.Details["restart_reason"] = reason, reason
	e.FailsTask, e.Details["fails_task"] = true, "true"
	return e
}

func eventRestartSignal(reason string) *api.TaskEvent {
	e := newEvent(api.TaskRestartSignal, reason)
	e.RestartReason, e.Details["restart_reason"] = reason, reason
	return e
}

func eventSignaling(signal string) *api.TaskEvent {
	e := newEvent(api.TaskSignaling, "Task being sent a signal")
	e.Details["signal"] = signal
	return e
}

// eventDriver is what a driver says of a task, with all its annotations.
func eventDriver(in *nomadplugin.TaskEvent) *api.TaskEvent {
	e := newEvent(api.TaskDriverMessage, in.GetMessage())
	e.Time = in.GetTimestamp().AsTime().UnixNano()
	e.DriverMessage = in.GetMessage()
	for k, v := range in.GetAnnotations() {
		e.Details[k] = v
	}
	return e
}
