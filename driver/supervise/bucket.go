// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"sync"
	"time"
)

// bucket bounds how often something happens: burst times at once, and then as often as
// it refills.
type bucket struct {
	perSecond, burst float64

	mu   sync.Mutex // guards all below
	used float64
	at   time.Time // when used was true
}

func newBucket(perSecond, burst float64) *bucket { return &bucket{perSecond: perSecond, burst: burst} }

// take reports whether it may happen at now, and counts it then.
func (b *bucket) take(now time.Time) bool { return b.reserve(now) == 0 }

// reserve is 0 and counts when it may happen at now; else it is how long to wait.
func (b *bucket) reserve(now time.Time) time.Duration {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.at.IsZero() {
		b.used = max(0, b.used-now.Sub(b.at).Seconds()*b.perSecond)
	}
	b.at = now
	if b.used+1 <= b.burst {
		b.used++
		return 0
	}
	return time.Duration((b.used + 1 - b.burst) / b.perSecond * float64(time.Second))
}

// wait returns when it may happen, or when ctx ends.
func (b *bucket) wait(ctx context.Context) error {
	for {
		left := b.reserve(time.Now())
		if left == 0 {
			return nil
		}
		select {
		case <-time.After(max(left, time.Millisecond)):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
