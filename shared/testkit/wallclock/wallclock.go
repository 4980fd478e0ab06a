// SPDX-License-Identifier: MPL-2.0

// Package wallclock gives tests readings of a clock that somebody has set: the wall clock
// jumps and the monotonic one, by which Go measures, does not.
package wallclock

import (
	"fmt"
	"time"
	"unsafe"
)

// Jumped is the reading t of a machine whose wall clock was set by d, whole seconds,
// meanwhile. It panics where this version of Go keeps its times in another way.
func Jumped(t time.Time, d time.Duration) time.Time {
	// The layout of time.Time: with the highest bit of wall set, the 33 bits below it are
	// the seconds of the wall clock and the lowest 30 its nanoseconds; ext is monotonic.
	const hasMonotonic, nanosecondBits = 1 << 63, 30
	jumped := t
	wall := (*uint64)(unsafe.Pointer(&jumped))
	if *wall&hasMonotonic == 0 || d%time.Second != 0 {
		panic(fmt.Sprintf("wallclock: %v is no reading of a running clock, or %v no whole seconds", t, d))
	}
	*wall += uint64(d/time.Second) << nanosecondBits
	if jumped.Sub(t) != 0 || jumped.Unix()-t.Unix() != int64(d/time.Second) {
		panic("wallclock: time.Time has another layout")
	}
	return jumped
}
