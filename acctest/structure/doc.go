// SPDX-License-Identifier: MPL-2.0

// Package structure holds tests of the tree itself: which package may import which,
// where dangerous calls may stand, what every file and package must say.
package structure
