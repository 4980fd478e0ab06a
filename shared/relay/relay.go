// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
	"github.com/botscreen/botscreen/shared/screen"
)

// Limits of one screen (threats.md X34).
const (
	maxViewers       = 16
	maxPending       = 32               // connections that are not viewers yet
	handshakeTimeout = 10 * time.Second // of a viewer
	dialTimeout      = 60 * time.Second // of its upstream: the screen may have to wake
	writeTimeout     = 10 * time.Second // of one chunk, in either direction
	activityEvery    = time.Minute      // rule R10
)

// Dialer opens one more connection to the screen's RFB server. The connection is the
// caller's.
type Dialer func(ctx context.Context) (net.Conn, error)

// Options of a relay.
type Options struct {
	Dial    Dialer        // for a viewer
	Input   Dialer        // for what the relay itself types and clicks; nil: Dial
	Lease   *lease.Keeper // whose Handover must call the relay's
	Tickets *ticket.Store
	// Name is what viewers are told the desktop is called; the server's own name comes
	// from inside the screen.
	Name string
	// MaxSize is the largest desktop; zero is rfb.MaxSize.
	MaxSize rfb.Size
	// Layout is the desktop's keyboard layout, such as "us". A viewer that names the
	// same one may send key codes; the others' keysyms mean the same on every layout
	// (rule R13).
	Layout string
	Watch  screen.Watch // empty: all
	// Hosts are the names that this relay's page is served under besides localhost and
	// addresses.
	Hosts []string
	// Activity is told that somebody uses the screen, for each viewer at its start and
	// then once a minute; nil: nobody is told. It must not block.
	Activity func()
	// Paste carries a holder's text to the clipboard of the screen, before any key that
	// was sent after it; nil: text is dropped. It should take at most a second or two.
	Paste func(ctx context.Context, text string) error
	// MayRelease says why a holder should think again before the screen is handed back, in a
	// sentence for people; nil, or no error: nothing speaks against it.
	MayRelease func(viewer lease.ViewerID) error
	// EndProgram ends the program that the last FocusNotice named, for the holder; nil:
	// nobody can. It should take at most a second or two.
	EndProgram func(ctx context.Context) error
	// RenewPage loads the page in front of the screen's browser again, or with fresh opens an
	// empty window, for the holder (threats.md X18); nil: nobody can. The same time is its.
	RenewPage func(ctx context.Context, fresh bool) error
	Log       *slog.Logger // nil: nothing is logged
}

// Relay serves one screen. New makes it; Close ends it.
type Relay struct {
	options Options
	lease   *lease.Keeper
	log     *slog.Logger
	gate    *gate
	pending chan struct{}   // a place for each connection that is no viewer yet
	waiting chan struct{}   // a place for each whose refusal is delayed
	acting  chan struct{}   // has room for the agent's one call
	pace    bucket          // of the agent's messages; whoever is acting has it
	sent    atomic.Uint64   // bytes to viewers
	got     atomic.Uint64   // bytes of viewers that were passed on
	life    context.Context // ends with Close
	kill    context.CancelFunc

	mu      sync.Mutex // guards all below
	viewers []*viewer  // attached ones
	places  int        // taken by attached ones and those about to be
	next    lease.Lease
	wanted  wanted // what viewers were told last
	closed  bool
	served  sync.WaitGroup // of every place
}

// Relayed is how many bytes went to viewers, and how many came from them and were passed on.
func (r *Relay) Relayed() (sent, received uint64) { return r.sent.Load(), r.got.Load() }

// New makes a relay. Nothing runs before somebody comes. The keeper's Handover must
// lead to the relay's from the first change of hands on; as each needs the other,
// make the keeper first, with a function that looks the relay up when it is called.
func New(o Options) *Relay {
	if o.MaxSize == (rfb.Size{}) {
		o.MaxSize = rfb.MaxSize
	}
	if o.Activity == nil {
		o.Activity = func() {}
	}
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	life, kill := context.WithCancel(context.Background())
	return &Relay{
		options: o, lease: o.Lease, log: o.Log, gate: newGate(o),
		pending: make(chan struct{}, maxPending), waiting: make(chan struct{}, maxPending), acting: make(chan struct{}, 1),
		life: life, kill: kill, wanted: wanted{Type: "wanted"},
	}
}

// Close ends every stream with 4001 and the input connection, and returns when all
// are ended, which takes up to ten seconds of viewers that do not answer.
func (r *Relay) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.kill()
	r.gate.close()
	r.served.Wait()
}

// Handover is for the lease keeper alone (lease.Options): it makes the change of
// hands happen on the wire, while nobody is admitted. It takes at most some 300 ms,
// which is when the screen does not read.
func (r *Relay) Handover(from, to lease.Lease) {
	r.mu.Lock()
	r.next = to
	viewers := slices.Clone(r.viewers)
	r.mu.Unlock()
	for _, v := range viewers {
		switch {
		case from.HeldBy(v.grant.Viewer) && to.Held() && v.grant.Mode == ticket.Control:
			v.finish(End{Code: Taken, Reason: "another person took the screen"})
		case !allows(r.options.Watch, v.grant.Viewer, to):
			v.finish(End{Code: NotWatchable, Reason: "only the person in control sees the screen"})
		}
	}
	r.gate.handover(from, to)
}

// Notice hands on what the keeper tells (lease.Options): the holder is asked here
// for its consent, the asker hears the answer. It does not block.
func (r *Relay) Notice(n lease.Notice) {
	var to lease.ViewerID
	var message any
	switch n.Kind {
	case lease.Asked:
		to, message = n.From.Viewer, asked{Type: "asked", Reason: n.Claim.Reason, Until: n.Claim.Deadline}
	case lease.Denied:
		to, message = n.Claim.Viewer, denied{Type: "denied"}
	default:
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.viewers {
		if v.grant.Viewer == to && v.grant.Mode == ticket.Control {
			v.tell(message)
		}
	}
}

// Revoke ends a ticket, its renewals and the stream it opened. It reports whether
// there was one.
func (r *Relay) Revoke(id ticket.ID) bool {
	found := r.options.Tickets.Revoke(id)
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.viewers {
		if v.ticket == id && id != "" {
			v.finish(End{Code: BadTicket, Reason: "the ticket was revoked"})
			found = true
		}
	}
	return found
}

// RevokeAll ends every ticket, and each stream that one opened. It says which tickets
// those were, each once.
func (r *Relay) RevokeAll() []ticket.ID {
	ended := r.options.Tickets.RevokeAll()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, v := range r.viewers {
		if v.ticket != "" {
			v.finish(End{Code: BadTicket, Reason: "the ticket was revoked"})
			ended = append(ended, v.ticket)
		}
	}
	slices.Sort(ended)
	return slices.Compact(ended)
}

// Attached is one viewer as others may know it.
type Attached struct {
	Viewer  lease.Handle
	Mode    ticket.Mode
	Since   time.Time
	Holding bool
}

// Viewers lists who is attached, the longest first.
func (r *Relay) Viewers() []Attached {
	r.mu.Lock()
	defer r.mu.Unlock()
	list := make([]Attached, 0, len(r.viewers))
	for _, v := range r.viewers {
		list = append(list, Attached{
			Viewer: v.grant.Viewer.Handle(), Mode: v.grant.Mode, Since: v.since,
			Holding: v.grant.Mode == ticket.Control && r.lease.Holds(v.grant.Viewer),
		})
	}
	return list
}

// Size is the desktop's size as the input connection knows it, zero while there is
// none.
func (r *Relay) Size() rfb.Size { return r.gate.size() }

var (
	errNotWatchable = errors.New("only the holder may watch now")
	errFull         = fmt.Errorf("%d viewers are attached", maxViewers)
)

// watchable reports whether the viewer may see the screen now. It needs mu. A change
// of hands that is being written counts as well as the lease it ends.
func (r *Relay) watchable(v lease.ViewerID) error {
	l, _ := r.lease.Lease()
	if !allows(r.options.Watch, v, l) || r.next.Epoch > l.Epoch && !allows(r.options.Watch, v, r.next) {
		return errNotWatchable
	}
	return nil
}

// place takes one of the viewers' places.
func (r *Relay) place(v lease.ViewerID) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return net.ErrClosed
	}
	if err := r.watchable(v); err != nil {
		return err
	}
	if r.places == maxViewers {
		return errFull
	}
	r.places++
	r.served.Add(1)
	return nil
}

func (r *Relay) leave() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.places--
	r.served.Done()
}

// attach makes v a viewer; an older stream of the same one ends.
func (r *Relay) attach(v *viewer) error {
	if v.grant.Mode == ticket.Control {
		r.lease.Attach(v.grant.Viewer)
	}
	old, err := r.admit(v)
	if err != nil {
		r.detach(v, false)
		return err
	}
	if old != nil {
		old.finish(End{Code: Replaced, Reason: "the same viewer came with a newer stream"})
		r.gate.release(old)
		// Before anything of the newer one: its end must be the last of this viewer.
		r.detach(old, false)
	}
	return nil
}

// detach tells the lease, once, that v's stream has ended.
func (r *Relay) detach(v *viewer, deliberate bool) {
	if v.grant.Mode != ticket.Control || v.detached.Swap(true) {
		return
	}
	if _, err := r.lease.Detach(v.grant.Viewer, deliberate); err != nil {
		r.log.Warn("the end of a viewer's stream is not written", "viewer", v.grant.Viewer.Handle(), "err", err)
	}
}

func (r *Relay) admit(v *viewer) (old *viewer, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, net.ErrClosed
	}
	if err := r.watchable(v.grant.Viewer); err != nil {
		return nil, err
	}
	for _, other := range r.viewers {
		if other.grant == v.grant {
			old = other
		}
	}
	r.viewers = append(r.viewers, v)
	return old, nil
}

func (r *Relay) remove(v *viewer) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.viewers = slices.DeleteFunc(r.viewers, func(other *viewer) bool { return other == v })
}
