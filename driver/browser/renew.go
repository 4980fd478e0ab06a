// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"context"
	"errors"
)

// Renew gives a person a page without what the agent may have left in it (threats.md X18):
// the one in front is loaded again, or with fresh an empty window opens that no page can
// reach. Logins stay, and so do workers of the sites.
func (b *Browser) Renew(ctx context.Context, fresh bool) error {
	b.mu.Lock()
	i := b.running
	b.mu.Unlock()
	if i == nil {
		return errors.New("renew the page: no browser runs")
	}
	if fresh {
		return i.call(ctx, "", "Target.createTarget", map[string]any{"url": blank, "newWindow": true}, nil)
	}
	front, err := b.Front(ctx)
	if err != nil {
		return err
	}
	if front.Target == "" {
		return errors.New("renew the page: none is in front")
	}
	session, detach, err := i.attach(ctx, front.Target)
	if err != nil {
		return err
	}
	defer detach()
	return i.call(ctx, session, "Page.reload", map[string]any{"ignoreCache": true}, nil)
}
