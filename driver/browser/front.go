// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"context"
	"fmt"

	"github.com/botscreen/botscreen/shared/cdp"
)

// Front is what people see of the browser; the zero value where none runs.
func (b *Browser) Front(ctx context.Context) (cdp.Front, error) {
	b.mu.Lock()
	i := b.running
	b.mu.Unlock()
	if i == nil {
		return cdp.Front{}, nil
	}
	front, err := i.mux.Front(ctx)
	if err != nil {
		return cdp.Front{}, fmt.Errorf("look at the browser: %w", err)
	}
	return front, nil
}
