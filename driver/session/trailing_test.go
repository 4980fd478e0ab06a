// SPDX-License-Identifier: MPL-2.0

package session

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"
)

// A program that copies all the time is told of now and then, and its last copy always.
func TestTrailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		var at []time.Duration
		notes := &trailing{pause: 200 * time.Millisecond, f: func() { at = append(at, time.Since(began)) }}
		for range 25 { // until 480 ms
			notes.tell()
			time.Sleep(20 * time.Millisecond)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		notes.tell()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		want := []time.Duration{0, 200 * time.Millisecond, 400 * time.Millisecond, 600 * time.Millisecond, 10*time.Second + 500*time.Millisecond}
		if !slices.Equal(at, want) {
			t.Errorf("told at %v, want %v", at, want)
		}
	})
}
