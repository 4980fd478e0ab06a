// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// Issue 7: without an agent and without anything to look after a plugin ends; with one of the
// two it does not.
func TestAttendance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var idle, ended atomic.Bool
		idle.Store(true)
		a := attend(forsakenAfter, idle.Load, func() { ended.Store(true) })
		lives := func(d time.Duration, why string) {
			t.Helper()
			time.Sleep(d)
			synctest.Wait()
			if ended.Load() {
				t.Fatal("it ended although " + why)
			}
		}
		one, two := a.call(), a.call()
		lives(3*time.Hour, "there are two calls")
		one()
		lives(3*time.Hour, "there is one call")
		two()
		lives(forsakenAfter-time.Second, "the last call ended not long ago")
		a.call()()
		lives(forsakenAfter-time.Second, "there was one short call")
		idle.Store(false)
		lives(24*time.Hour, "there are screens")
		idle.Store(true)
		time.Sleep(forsakenAfter)
		synctest.Wait()
		if !ended.Load() {
			t.Error("it lives on alone")
		}
	})
}

// A call that comes while the driver is asked whether it is idle is one after all.
func TestAttendanceOfACallMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked, ended atomic.Int32
		calls := make(chan *attendance, 1)
		calls <- attend(forsakenAfter, func() bool {
			if asked.Add(1) == 1 {
				(<-calls).call()()
			}
			return true
		}, func() { ended.Add(1) })
		for round, want := range []int32{0, 1} {
			time.Sleep(forsakenAfter)
			synctest.Wait()
			if asked.Load() != int32(round)+1 || ended.Load() != want {
				t.Fatalf("round %d: asked %d times, ended %d times", round, asked.Load(), ended.Load())
			}
		}
	})
}
