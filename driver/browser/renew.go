// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"context"
	"errors"
	"time"
)

// renewLook is longer than frontLimit: the page that is loaded again must be the right one.
const renewLook = 2 * time.Second

// Renew gives a person a page without what the agent may have left in it (threats.md X18):
// the one in front has been loaded again when it returns, or with fresh an empty window
// opens that no page can reach. Logins stay, and so do workers of the sites.
func (b *Browser) Renew(ctx context.Context, fresh bool) error {
	i := b.instance()
	if i == nil {
		return errors.New("renew the page: no browser runs")
	}
	if fresh {
		return i.call(ctx, "", "Target.createTarget", map[string]any{"url": blank, "newWindow": true}, nil)
	}
	front, err := i.front(ctx, renewLook)
	switch {
	case err != nil:
		return err
	case front.Unsure:
		return errors.New("renew the page: one that may be in front does not answer")
	case front.Target == "":
		return errors.New("renew the page: none is in front")
	}
	return asking(ctx, "Page.reload", func(ctx context.Context) error { return i.mux.Reload(ctx, front.Target) })
}
