// SPDX-License-Identifier: MPL-2.0

package memory

import "fmt"

// DefaultFloorMB is the room a start asks for: a desktop, its browser and a page, and some air.
const DefaultFloorMB = 1536

// FloorError says that too little memory is available for a start. It may pass at another time or on another node.
type FloorError struct {
	// Reading is what was available.
	Reading Reading
	// PromisedMB is what starts in progress will still take of it.
	PromisedMB int
	// FloorMB is what was asked for.
	FloorMB int
}

// LeftMB is what is available after the promises are kept.
func (e *FloorError) LeftMB() int { return left(e.Reading, e.PromisedMB) }

func (e *FloorError) Error() string {
	return fmt.Sprintf("%d MB available%s, floor %d MB (limit: %s)", e.LeftMB(), e.promised(), e.FloorMB, e.Reading.Source())
}

// Sentence is the error for a person.
func (e *FloorError) Sentence() string {
	where := "on this node"
	if e.Reading.Limit != nil {
		where = "within " + e.Reading.Limit.Cgroup
	}
	return fmt.Sprintf("Not enough memory to start a desktop: %d MB available %s%s, %d MB asked for by `min_free_memory_mb`.",
		e.LeftMB(), where, e.promised(), e.FloorMB)
}

func (e *FloorError) promised() string {
	if e.PromisedMB == 0 {
		return ""
	}
	return fmt.Sprintf(" (%d MB less %d MB for screens that are starting)", e.Reading.AvailableMB(), e.PromisedMB)
}

// CheckFloor decides whether a start that asks for floorMB may begin, promisedMB being what other starts will
// still take. It returns a warning in words when it may but little is left over, and a [FloorError] when it may
// not. A floor of 0 asks for nothing, and unknown memory blocks nothing but is warned of (M1, M3).
func CheckFloor(floorMB int, r Reading, promisedMB int) (warning string, err error) {
	switch rest := left(r, promisedMB); {
	case floorMB <= 0:
		return "", nil
	case !r.Known:
		return "Available memory cannot be told on this node, so the floor was not checked.", nil
	case rest < floorMB:
		return "", &FloorError{Reading: r, PromisedMB: promisedMB, FloorMB: floorMB}
	case rest < floorMB+floorMB/3:
		return fmt.Sprintf("Memory is getting short: %d MB available (%s), %d MB is the floor below which no desktop starts.",
			rest, r.Source(), floorMB), nil
	}
	return "", nil
}

func left(r Reading, promisedMB int) int { return max(0, r.AvailableMB()-promisedMB) }
