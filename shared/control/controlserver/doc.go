// SPDX-License-Identifier: MPL-2.0

// Package controlserver serves the supervisor's API of package control. The door
// a connection came through decides its role; what the backend cannot do is not
// served.
package controlserver
