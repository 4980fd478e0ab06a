// SPDX-License-Identifier: MPL-2.0

package display

import "fmt"

// Tidy removes the lock and the socket that a killed X server left on n. A number that
// lives, or that a start has claimed, is not touched (D5).
func (c *Claims) Tidy(n Number) error {
	dir, err := c.Node.Sub("displays")
	if err != nil {
		return fmt.Errorf("tidy display %s: %w", n, err)
	}
	defer dir.Close()
	claim, err := c.try(dir, n, &ExhaustedError{Band: c.Band})
	if err != nil {
		return fmt.Errorf("tidy display %s: %w", n, err)
	}
	if claim != nil {
		claim.Release()
	}
	return nil
}
