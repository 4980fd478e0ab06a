// SPDX-License-Identifier: MPL-2.0

package relay_test

import (
	"context"
	"net"
	"os"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay"
	"github.com/botscreen/botscreen/shared/relay/action"
	"github.com/botscreen/botscreen/shared/relay/ticket"
)

// The keeper and the relay need each other: the keeper is made first, with functions
// that look the relay up when they are called.
func Example() {
	control, err := os.OpenRoot(os.TempDir())
	if err != nil {
		return
	}
	defer control.Close()
	var screen *relay.Relay
	keeper, err := lease.OpenKeeper(lease.NewStore(control, lease.Origin{}), lease.Options{
		Policy:   lease.DefaultPolicy(),
		Handover: func(from, to lease.Lease) { screen.Handover(from, to) },
		Notify:   func(n lease.Notice) { screen.Notice(n) }, // and the journal, the audit
	})
	if err != nil {
		return
	}
	screen = relay.New(relay.Options{
		Lease: keeper, Tickets: ticket.NewStore(), Name: "ci-7", Layout: "us", Watch: "all",
		Dial: func(ctx context.Context) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, "unix", "rfb.sock")
		},
	})
	defer screen.Close()

	// The agent's door: POST input.
	l, _ := keeper.Lease()
	_ = screen.Do(context.Background(), l.Epoch, action.List{action.Key{Keys: "ctrl+s"}})
}
