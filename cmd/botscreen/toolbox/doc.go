// SPDX-License-Identifier: MPL-2.0

// Package toolbox gives an agent its screen as the tools of an MCP server. It knows what
// the agent has looked at: acting needs the epoch of the last screenshot, so after a
// change of hands nothing is done before the agent has looked again (rules L6, L14).
package toolbox
