// SPDX-License-Identifier: MPL-2.0

package main

import (
	"errors"
	"os"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/screen"
)

// world is a relay with a lease on disk.
type world struct {
	relay   *relay.Relay
	keeper  *lease.Keeper
	tickets *ticket.Store
	dir     string
	root    *os.Root
}

func newWorld(dial relay.Dialer) (*world, error) {
	dir, err := os.MkdirTemp("", "relaybench-")
	if err != nil {
		return nil, err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	w := &world{dir: dir, root: root, tickets: ticket.NewStore()}
	w.keeper, err = lease.OpenKeeper(lease.NewStore(root, lease.Origin{Fresh: true}), lease.Options{
		Policy:   lease.DefaultPolicy(),
		Handover: func(from, to lease.Lease) { w.relay.Handover(from, to) },
		Notify:   func(n lease.Notice) { w.relay.Notice(n) },
	})
	if err != nil {
		return nil, errors.Join(err, root.Close(), os.RemoveAll(dir))
	}
	w.relay = relay.New(relay.Options{Dial: dial, Lease: w.keeper, Tickets: w.tickets, Name: "bench"})
	return w, nil
}

// take makes v the holder.
func (w *world) take(v lease.ViewerID) error {
	_, err := w.keeper.Take(v, screen.Untrusted{}, true)
	return err
}

func (w *world) close() {
	w.relay.Close()
	_ = w.root.Close()
	_ = os.RemoveAll(w.dir)
}
