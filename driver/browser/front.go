// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"context"
	"fmt"
	"time"

	"github.com/botscreen/botscreen/shared/cdp"
)

// frontLimit is how long a page may take to say whether it is seen, and what it shows. A
// sound one on a busy node has taken more than half a second.
const frontLimit = 2 * time.Second

// Front is what people see of the browser; the zero value where none runs.
func (b *Browser) Front(ctx context.Context) (cdp.Front, error) {
	i := b.instance()
	if i == nil {
		return cdp.Front{}, nil
	}
	return i.front(ctx, frontLimit)
}

func (i *instance) front(ctx context.Context, limit time.Duration) (cdp.Front, error) {
	front, err := i.mux.Front(ctx, limit)
	if err != nil {
		return cdp.Front{}, fmt.Errorf("look at the browser: %w", err)
	}
	return front, nil
}
