// SPDX-License-Identifier: MPL-2.0

package screen

import (
	"slices"
	"strings"
)

// Isolation is where a desktop's processes run.
type Isolation string

// The isolations a job may name. Auto is resolved on the node to one that works
// there and never means host unless both the plugin and the job say so.
const (
	Auto      Isolation = "auto"
	Host      Isolation = "host"
	Docker    Isolation = "docker"
	Apptainer Isolation = "apptainer"
)

// Isolations lists the words a user may write, in the order they are shown.
var Isolations = []Isolation{Auto, Host, Docker, Apptainer}

// Role is what a door lets its caller do. The door decides it, never the caller.
type Role string

// The roles of wire.md section 1, from the least to the most powerful.
const (
	RoleViewer   Role = "viewer"
	RoleControl  Role = "control"
	RoleAgent    Role = "agent"
	RoleOperator Role = "operator"
)

// State is what a screen is doing; it travels in every task event.
type State string

// States of wire.md section 4.
const (
	Queued   State = "queued"
	Starting State = "starting"
	Ready    State = "ready"
	Asleep   State = "asleep"
	Frozen   State = "frozen"
	Waking   State = "waking"
	Stopping State = "stopping"
	Stopped  State = "stopped"
	Failed   State = "failed"
)

// Look is how much Xfce a desktop shows: lean starts in a fraction of the time.
type Look string

// Looks of a desktop.
const (
	Lean Look = "lean"
	Full Look = "full"
)

// oneOf reports value as T when it is among the words, else records the fault.
func oneOf[T ~string](faults *Faults, field, value string, words ...T) T {
	if slices.Contains(words, T(value)) {
		return T(value)
	}
	list := make([]string, len(words))
	for i, w := range words {
		list[i] = string(w)
	}
	faults.Add(field, value, "is not one of "+strings.Join(list, ", "))
	return words[0]
}
