// SPDX-License-Identifier: MPL-2.0

// Package control is the supervisor's API as both sides see it: the types, the
// one table of routes with who may call them, the errors, the byte streams a
// call can turn into, and the client. Package controlserver is the other half.
package control
