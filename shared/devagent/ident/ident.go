// SPDX-License-Identifier: MPL-2.0

// Package ident makes the identifiers of jobs' evaluations, allocations and nodes.
package ident

import (
	"crypto/rand"
	"fmt"
)

// UUID makes a random identifier in the form that Nomad uses: five groups of hex
// digits, 36 characters.
func UUID() string {
	var b [16]byte
	// Read never fails (crypto/rand).
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}
