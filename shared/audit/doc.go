// SPDX-License-Identifier: MPL-2.0

// Package audit is the record of who had a screen: a file of JSON lines to which lines
// are only ever added, each with the hash of the one before (threats.md X39). It says who
// took and gave, when and through which door, and never what was typed or seen.
package audit
