// SPDX-License-Identifier: MPL-2.0

package display

import (
	"context"
	"fmt"
	"time"
)

// reapPoll is how often a dead server's pid is looked at: there is no event for the
// moment another process, usually init, collects its own child.
const reapPoll = 10 * time.Millisecond

// Tidy removes the lock and the socket that a killed X server left on n. A number that
// lives, or that a start has claimed, is not touched (D5). A server that is dead but not
// yet reaped still counts as living for every other X server, so it is waited for, at
// most until ctx ends.
func (c *Claims) Tidy(ctx context.Context, n Number) error {
	dir, err := c.Node.Sub("displays")
	if err != nil {
		return fmt.Errorf("tidy display %s: %w", n, err)
	}
	defer dir.Close()
	for last := false; ; {
		claim, err := c.try(dir, n, &ExhaustedError{Band: c.Band})
		if err != nil {
			return fmt.Errorf("tidy display %s: %w", n, err)
		}
		if claim != nil {
			claim.Release()
			return nil
		}
		status, err := c.Inspect(n)
		if err != nil {
			return fmt.Errorf("tidy display %s: %w", n, err)
		}
		if status.PID == 0 || !c.process(status.PID).zombie {
			if last || status.State == InUse {
				return nil
			}
			last = true // it was reaped between the two looks
			continue
		}
		if err := c.awaitReaped(ctx, status.PID); err != nil {
			return fmt.Errorf("tidy display %s: %w", n, err)
		}
	}
}

// awaitReaped looks at the one process: reading all sockets of the node each time would cost
// as much as the start of a screen.
func (c *Claims) awaitReaped(ctx context.Context, pid int) error {
	tick := time.NewTicker(reapPoll)
	defer tick.Stop()
	for c.process(pid).zombie {
		select {
		case <-ctx.Done():
			return fmt.Errorf("process %d is dead but not reaped: %w", pid, ctx.Err())
		case <-tick.C:
		}
	}
	return nil
}
