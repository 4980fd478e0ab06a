// SPDX-License-Identifier: MPL-2.0

package control

import "context"

// Sleep ends the desktop's processes; the next use starts them again.
func (c *Client) Sleep(ctx context.Context) error { return c.plain(ctx, CallSleep) }

// Wake returns when the desktop is ready. It may take as long as a start.
func (c *Client) Wake(ctx context.Context) error { return c.plain(ctx, CallWake) }

func (c *Client) plain(ctx context.Context, call Call) error {
	resp, err := c.call(ctx, call, nil, nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}
