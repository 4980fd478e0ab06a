// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"fmt"
	"io/fs"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// Issue 7: a program is scored as soon as its /proc is ours, which it is a moment after its
// exec is known to have worked; what is refused for good is not asked for for long.
func TestOOMScoreFollowsTheExec(t *testing.T) {
	early := fmt.Errorf("score: %w", &fs.PathError{Op: "open", Path: "/proc/1/oom_score_adj", Err: syscall.EACCES})
	lower := fmt.Errorf("score: %w", &fs.PathError{Op: "write", Path: "/proc/1/oom_score_adj", Err: syscall.EACCES})
	for name, c := range map[string]struct {
		answers []error // the last one for ever
		asked   int
		within  time.Duration
	}{
		"at once":     {[]error{nil}, 1, 0},
		"a bit later": {[]error{early, early, early, nil}, 4, time.Millisecond},
		"never":       {[]error{early}, 9, 20 * time.Millisecond},
		"refused":     {[]error{lower}, 1, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				began, asked := time.Now(), 0
				scoreExecuted(func() error {
					asked++
					return c.answers[min(asked, len(c.answers))-1]
				})
				if took := time.Since(began); asked != c.asked || took > c.within {
					t.Errorf("asked %d times in %s, want %d in %s", asked, took, c.asked, c.within)
				}
			})
		})
	}
}
