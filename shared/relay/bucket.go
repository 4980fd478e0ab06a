// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"context"
	"time"
)

// inputRate is how many input messages a connection may send in a second
// (threats.md X34). Whoever sends more is read more slowly; nothing is lost.
const inputRate = 1000

// bucket paces one connection. It is not safe for concurrent use.
type bucket struct {
	next time.Time // when the messages so far would be through at the rate
}

// take waits until one more message may pass.
func (b *bucket) take(ctx context.Context) error {
	const cost, burst = time.Second / inputRate, time.Second
	now := time.Now()
	if from := now.Add(-burst); b.next.Before(from) {
		b.next = from
	}
	b.next = b.next.Add(cost)
	wait := b.next.Sub(now)
	if wait <= 0 {
		return nil
	}
	return sleep(ctx, wait)
}
