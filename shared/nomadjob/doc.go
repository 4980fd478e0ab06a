// SPDX-License-Identifier: MPL-2.0

// Package nomadjob finds screens among Nomad's allocations and reaches them: from
// the newest event of each task to what a screen is doing, from what a person types
// to one screen, and from an allocation to a stream into its supervisor.
package nomadjob
