// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"context"
	"io"
	"time"

	"github.com/botscreen/botscreen/shared/nomadplugin/proto/basepb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/hclspecpb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/structspb"
)

// The messages of the protocol under the names used here.
type (
	// Spec is a configuration schema; package hclspec builds them.
	Spec = hclspecpb.Spec
	// NodeConfig is what the node tells a driver about itself. It is nil while an agent only
	// validates a configuration.
	NodeConfig = basepb.NomadConfig
	// SetConfigRequest is the operator's configuration as MessagePack, and the node's.
	SetConfigRequest = basepb.SetConfigRequest
	// Capabilities is the one static answer about what a driver can do.
	Capabilities = driverpb.DriverCapabilities
	// Fingerprint is the driver's health and attributes.
	Fingerprint = driverpb.FingerprintResponse
	// Attribute is one typed fact of a Fingerprint; see StringAttribute and its siblings.
	Attribute = structspb.Attribute
	// TaskConfig is everything a driver is told about one run of a task. Env contains secrets.
	TaskConfig = driverpb.TaskConfig
	// TaskHandle is what an agent keeps to find a task again.
	TaskHandle = driverpb.TaskHandle
	// NetworkOverride tells an agent where a task is reached.
	NetworkOverride = driverpb.NetworkOverride
	// ExitResult is how a task or a command ended.
	ExitResult = driverpb.ExitResult
	// TaskInspection is the answer of InspectTask.
	TaskInspection = driverpb.InspectTaskResponse
	// TaskStatus is the state inside a TaskInspection.
	TaskStatus = driverpb.TaskStatus
	// TaskStats is one sample of resource usage.
	TaskStats = driverpb.TaskStats
	// TaskEvent is an event of one task, routed by allocation id and task name.
	TaskEvent = driverpb.DriverTaskEvent
	// ExecResult is the collected output and the result of ExecTask.
	ExecResult = driverpb.ExecTaskResponse
	// NetworkIsolation is a network namespace that tasks join.
	NetworkIsolation = driverpb.NetworkIsolationSpec
)

// Health states of a Fingerprint.
const (
	Undetected = driverpb.FingerprintResponse_UNDETECTED
	Unhealthy  = driverpb.FingerprintResponse_UNHEALTHY
	Healthy    = driverpb.FingerprintResponse_HEALTHY
)

// TaskID names one run of a task: "<allocation>/<task>/<8 hex digits>". It contains slashes and is
// different for every restart.
type TaskID string

// Info names a driver.
type Info struct {
	// Name is what a job writes in `driver = "..."`.
	Name string
	// Version of the plugin, for example "0.3.1"; it must parse as a version.
	Version string
}

// TerminalSize is the size of a terminal in character cells.
type TerminalSize struct {
	Rows, Columns uint16
}

// ExecRequest is a command to run in a task's context with live input and output.
type ExecRequest struct {
	// Command is never empty when a driver receives it.
	Command []string
	// TTY asks for a terminal: one merged output stream, delivered as Stdout.
	TTY bool
	// Stdin ends with io.EOF when the client closes its input.
	Stdin io.Reader
	// Stdout and Stderr may be written to concurrently. With TTY a driver that writes to Stderr
	// writes to Stdout.
	Stdout, Stderr io.Writer
	// Resize delivers the newest size of the client's terminal and is closed with the input.
	Resize <-chan TerminalSize
}

// A Driver runs tasks for a Nomad client agent. All methods may be called concurrently and must
// return promptly once their context is done. See the package comment for the life of a plugin.
type Driver interface {
	// Info names the driver. It must not depend on the configuration.
	Info() Info
	// ConfigSchema is the shape of the operator's `config` block; nil is an empty one.
	ConfigSchema() *Spec
	// SetConfig takes the operator's configuration. It comes several times, at first without a
	// NodeConfig and in processes that are thrown away: it must be cheap, repeatable and without
	// effects outside the process. An error keeps the agent from starting.
	SetConfig(ctx context.Context, req *SetConfigRequest) error
	// Init follows SetConfig, and a reattachment without SetConfig, so it comes more than once in
	// one process. Agents before Nomad 2.0.4 never call it.
	Init(ctx context.Context) error
	// Shutdown announces the end of the plugin; tasks must keep running. Two seconds are left.
	Shutdown(ctx context.Context) error

	// TaskConfigSchema is the shape of a task's `config` block; nil is an empty one.
	TaskConfigSchema() *Spec
	// Capabilities answers from constants and what SetConfig said; it is asked often.
	Capabilities() *Capabilities
	// Fingerprint sends the health at once and again whenever it changes, until ctx is done.
	Fingerprint(ctx context.Context, send func(*Fingerprint) error) error
	// TaskEvents sends the events of all tasks until ctx is done. A driver without events waits.
	TaskEvents(ctx context.Context, send func(*TaskEvent) error) error

	// StartTask starts a task and returns when it really runs; on an error nothing is left behind.
	// Mark errors that another attempt may cure with Recoverable. The agent persists the handle.
	StartTask(ctx context.Context, task *TaskConfig) (*TaskHandle, *NetworkOverride, error)
	// RecoverTask puts a task of an earlier process under management again. A task that is already
	// known is success. The handle has a configuration and an id.
	RecoverTask(ctx context.Context, handle *TaskHandle) error
	// WaitTask blocks until the task has ended. A result together with an error is an ending with
	// trouble of the driver's own, for example exit code -1 and "supervisor lost"; an error alone is
	// a failure of the call.
	WaitTask(ctx context.Context, id TaskID) (*ExitResult, error)
	// StopTask sends the signal ("" is the driver's choice), kills after the timeout (0 at once) and
	// returns when the task is gone. A task that has ended is success.
	StopTask(ctx context.Context, id TaskID, timeout time.Duration, signal string) error
	// DestroyTask forgets an ended task and removes its traces. A running one is killed with force
	// and ErrTaskRunning without.
	DestroyTask(ctx context.Context, id TaskID, force bool) error
	// InspectTask reports the state of a task.
	InspectTask(ctx context.Context, id TaskID) (*TaskInspection, error)
	// TaskStats sends a sample at once and then every interval until the task has ended or ctx is
	// done. ErrNotSupported keeps the stream open in silence.
	TaskStats(ctx context.Context, id TaskID, interval time.Duration, send func(*TaskStats) error) error
	// SignalTask sends a signal by the name that a person wrote.
	SignalTask(ctx context.Context, id TaskID, signal string) error
	// ExecTask runs a command in the task's context and kills it after the timeout (0 is none). An
	// exit code other than 0 is not an error. The command is never empty.
	ExecTask(ctx context.Context, id TaskID, command []string, timeout time.Duration) (*ExecResult, error)
	// ExecTaskStreaming runs a command in the task's context until it ends. When ctx is done the
	// client is gone and the command must be killed; the end of Stdin is no reason to.
	ExecTaskStreaming(ctx context.Context, id TaskID, req ExecRequest) (*ExitResult, error)
}

// A NetworkManager is a Driver that makes network namespaces itself, as announced by
// Capabilities.MustCreateNetwork. Both calls may be repeated.
type NetworkManager interface {
	// CreateNetwork makes or finds the namespace of an allocation; created is false when it existed.
	CreateNetwork(ctx context.Context, allocID, hostname string) (spec *NetworkIsolation, created bool, err error)
	// DestroyNetwork removes it; an unknown allocation is success.
	DestroyNetwork(ctx context.Context, allocID string, spec *NetworkIsolation) error
}

// StringAttribute, IntAttribute and BoolAttribute make values of Fingerprint.Attributes. An empty
// string removes an attribute that was sent before.
func StringAttribute(value string) *Attribute {
	return &Attribute{Value: &structspb.Attribute_StringVal{StringVal: value}}
}

// IntAttribute has a unit such as "MiB" or "MHz", or "" for none.
func IntAttribute(value int64, unit string) *Attribute {
	return &Attribute{Value: &structspb.Attribute_IntVal{IntVal: value}, Unit: unit}
}

// FloatAttribute has a unit such as "GHz", or "" for none.
func FloatAttribute(value float64, unit string) *Attribute {
	return &Attribute{Value: &structspb.Attribute_FloatVal{FloatVal: value}, Unit: unit}
}

// BoolAttribute is rendered as true or false.
func BoolAttribute(value bool) *Attribute {
	return &Attribute{Value: &structspb.Attribute_BoolVal{BoolVal: value}}
}
