// SPDX-License-Identifier: MPL-2.0

package control

import (
	"context"
	"fmt"
)

// HeaderAuditHead carries the line that the audit file must reach, in the words of
// audit.Head; without it nothing is known of that.
const HeaderAuditHead = "Botscreen-Audit-Head"

// maxAudit bounds an audit file with the older one, in bytes.
const maxAudit = 32 << 20

// Audit returns the screen's audit file, the oldest line first, and its head.
func (c *Client) Audit(ctx context.Context) (text []byte, head string, err error) {
	resp, err := c.call(ctx, CallAudit, nil, nil)
	if err != nil {
		return nil, "", err
	}
	defer resp.Body.Close()
	text, err = readBounded(resp.Body, maxAudit)
	if err != nil {
		return nil, "", fmt.Errorf("read audit: %w", err)
	}
	return text, resp.Header.Get(HeaderAuditHead), nil
}
