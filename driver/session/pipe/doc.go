// SPDX-License-Identifier: MPL-2.0

// Package pipe carries the wire between a session and its supervisor over the standard
// input and output of a command that an engine on another kernel runs (wire.md section
// 3): no descriptor can be passed there. One half runs on the node and stands for the
// session: it dials the supervisor. The other runs inside and stands for the supervisor:
// the session dials it. What would be a passed descriptor is a stream between the two,
// with a pipe, a socket, a file or a terminal of the half's own at its end.
//
// What comes from inside is not trusted: it is bounded, and whatever breaks the form ends
// the half that reads it, and with it the screen.
package pipe
