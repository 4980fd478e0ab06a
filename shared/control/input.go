// SPDX-License-Identifier: MPL-2.0

package control

import (
	"context"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/action"
)

// InputRequest is what an agent does on the screen, in order. Epoch is the one of the
// screenshot it was decided on: with another one, or none, nothing is done (rule L6).
type InputRequest struct {
	Epoch   lease.Epoch `json:"epoch"`
	Actions action.List `json:"actions"`
}

// InputAnswer says that all actions were done under one lease.
type InputAnswer struct {
	Epoch lease.Epoch `json:"epoch"`
	Done  int         `json:"done"` // actions
}

// Input acts on the screen as its agent. A refusal says in Done how many actions had
// been done before; the caller must look again then.
func (c *Client) Input(ctx context.Context, req InputRequest) (InputAnswer, error) {
	return ask[InputAnswer](ctx, c, CallInput, req)
}
