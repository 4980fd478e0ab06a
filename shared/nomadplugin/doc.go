// SPDX-License-Identifier: MPL-2.0

// Package nomadplugin speaks the external task driver protocol of Nomad (1.6 to 2.0) without any code
// of Nomad's.
//
// # A driver
//
// A plugin implements [Driver] in terms of the protocol's messages and calls [Serve] from main:
//
//	func main() {
//		logger := nomadplugin.NewLogger("nomad-driver-example")
//		nomadplugin.Serve(newDriver(logger), logger)
//	}
//
// Calls block. Streams are callbacks: a driver calls send as often as it wants and returns when its
// context is done. A driver may also implement [NetworkManager].
//
// The server keeps the rules that the messages do not express, because an agent believes what it
// receives and some releases crash on a missing field: it completes handles, samples and states,
// drops nil map values, cuts invalid UTF-8 out of texts, reports every failure with the one code an
// agent does not misread, turns panics into errors, holds streams open that would otherwise be
// re-opened in a tight loop, and does the framing of [Driver.ExecTaskStreaming].
//
// Failures are ordinary errors; [Recoverable] marks those worth another attempt, and [ErrTaskNotFound]
// is the answer to an unknown task. What a driver must know about the calls themselves:
//
//   - the agent starts the plugin three times, twice to throw it away; SetConfig is called in all of
//     those and must have no effect outside the process
//   - every call may run at the same time as every other one, several for one task as well
//   - tasks outlive the plugin: nothing may depend on the plugin being their parent, and neither
//     Shutdown nor the end of Serve stops them
//   - [TaskConfig].MsgpackDriverConfig is empty in a handle that comes back after an agent restart,
//     so what is needed later belongs into [TaskHandle].DriverState
//
// # Configuration
//
// Package hclspec builds the schemas that a driver declares, [DecodeConfig] decodes what arrives.
// Package hclconfig is the agent's half: from a job's configuration to those bytes.
//
// # An agent
//
// Package host finds, loads, starts and drives plugins the way a Nomad client does. Package
// conformance runs the protocol's checklist against a built plugin.
package nomadplugin

//go:generate ../../scripts/generate-proto.sh
