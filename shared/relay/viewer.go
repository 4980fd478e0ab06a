// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
)

// link is the way to a viewer: its RFB bytes, and what is beside them.
type link interface {
	io.Reader
	// Write sends one chunk. It may be called beside tell.
	io.Writer
	// alive asks for a sign of life and fails when none comes. It is nil where the link
	// has no way to ask.
	alive(ctx context.Context) error
	// tell sends what is not RFB, where the viewer understands it.
	tell(message any) error
	// endOf says how a stream ended of which Read returned this error.
	endOf(err error) End
	// close says why and ends the link. It takes at most ten seconds.
	close(End)
	// abort ends the link at once; what blocks in it returns.
	abort()
}

// viewer is one person's stream.
type viewer struct {
	relay    *Relay
	grant    ticket.Grant
	ticket   ticket.ID // empty where a door vouched for the viewer
	keycodes bool      // its keyboard is the desktop's
	since    time.Time
	link     link
	upstream net.Conn
	messages chan any // to be told

	// What a WebSocket that speaks of the lease adds; nil elsewhere.
	greeting   any       // told first
	afterwards func(End) // called before the stream counts as over

	announced announced // what its server knows of; its reader's alone

	detached atomic.Bool

	once  sync.Once
	ended chan struct{}
	end   End // good once ended is closed
}

// Admission is who comes through a door that has decided what they may do.
type Admission struct {
	Grant ticket.Grant
	// Layout is the person's keyboard layout, empty where it is not known.
	Layout string
}

// ServeStream serves one viewer on a connection that carries RFB alone, such as an
// exec stream or a Unix socket, and returns how it ended. It owns conn. Such a stream
// has no way to say that its viewer left on purpose, so its end never hands back:
// who can tell releases the lease itself.
func (r *Relay) ServeStream(ctx context.Context, conn net.Conn, a Admission) End {
	link := &streamLink{conn}
	select {
	case r.pending <- struct{}{}:
	default:
		end := End{Code: TryLater, Reason: "too many connections at once"}
		link.close(end)
		return end
	}
	pending := sync.OnceFunc(func() { <-r.pending })
	defer pending()
	return r.serve(ctx, r.newViewer(link, a), pending)
}

func (r *Relay) newViewer(l link, a Admission) *viewer {
	return &viewer{
		relay: r, grant: a.Grant, link: l, ended: make(chan struct{}), messages: make(chan any, 8),
		keycodes: a.Layout != "" && a.Layout == r.options.Layout,
	}
}

// serve runs a viewer from its handshake to its end; settled is called when it is
// pending no longer.
func (r *Relay) serve(ctx context.Context, v *viewer, settled func()) End {
	if err := r.place(v.grant.Viewer); err != nil {
		v.finish(endOfRefusal(err))
		v.conclude()
		return v.end
	}
	defer r.leave()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(r.life, cancel)()
	gone := func() { v.finish(End{Code: Gone, Reason: "the screen is gone"}) }
	defer context.AfterFunc(ctx, gone)()
	err := v.begin(ctx)
	switch {
	case err == nil:
		settled()
		v.run()
	case ctx.Err() != nil: // whatever that broke
		gone()
	default:
		v.finish(endOfRefusal(err))
	}
	v.conclude()
	r.log.Info("viewer left", "viewer", v.grant.Viewer.Handle(), "mode", v.grant.Mode, "end", v.end.String())
	return v.end
}

// conclude is the last of a stream that has ended.
func (v *viewer) conclude() {
	if v.afterwards != nil {
		v.afterwards(v.end)
	}
	v.link.close(v.end)
}

func endOfRefusal(err error) End {
	var late *handshakeError
	switch {
	case errors.Is(err, errNotWatchable):
		return End{Code: NotWatchable, Reason: "only the person in control sees the screen"}
	case errors.Is(err, errFull):
		return End{Code: TryLater, Reason: errFull.Error()}
	case errors.As(err, &late):
		return End{Code: NotFrameable, Reason: "no RFB session came about", Cause: err}
	default:
		return End{Code: Gone, Reason: "the screen does not answer", Cause: err}
	}
}

// handshakeError is a fault of the viewer's side.
type handshakeError struct{ err error }

func (e *handshakeError) Error() string { return "viewer: " + e.err.Error() }
func (e *handshakeError) Unwrap() error { return e.err }

// begin connects the viewer to the screen and attaches it.
func (v *viewer) begin(ctx context.Context) error {
	dialCtx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	upstream, err := v.relay.options.Dial(dialCtx)
	if err != nil {
		return err
	}
	v.upstream = upstream
	if err := v.shakeHands(ctx); err != nil {
		upstream.Close()
		return err
	}
	v.since = time.Now()
	if err := v.relay.attach(v); err != nil {
		upstream.Close()
		return err
	}
	return nil
}

// shakeHands joins the server as a shared viewer, whatever this one asks for (rule
// R5), and then welcomes it.
func (v *viewer) shakeHands(ctx context.Context) error {
	v.upstream.SetDeadline(time.Now().Add(handshakeTimeout))
	_, init, err := rfb.Join(v.upstream, v.relay.options.MaxSize)
	if err != nil {
		return err
	}
	v.upstream.SetDeadline(time.Time{})
	init.Name = v.relay.options.Name
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	defer context.AfterFunc(ctx, v.link.abort)()
	if _, err := rfb.Welcome(v.link, init); err != nil {
		return &handshakeError{err}
	}
	return nil
}

// run relays until one side ends. What the viewer leaves pressed is released and the
// lease told before the link is closed, which may take long.
func (v *viewer) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() { v.finish(v.inbound(ctx)) })
	group.Go(func() { v.finish(v.outbound()) })
	group.Go(func() { v.watch(ctx) })
	if v.grant.Mode == ticket.Control {
		group.Go(func() { v.warm(ctx) })
	}
	<-v.ended
	cancel()
	v.upstream.Close()
	v.relay.gate.release(v)
	v.relay.detach(v, v.end.Deliberate())
	v.relay.remove(v) // after that a newer stream of this viewer cannot see it
	v.link.close(v.end)
	group.Wait()
}

// warm opens the input connection before the first key needs it.
func (v *viewer) warm(ctx context.Context) {
	if err := v.relay.gate.connect(ctx); err != nil && ctx.Err() == nil {
		v.relay.log.Warn("no input connection yet", "err", err)
	}
}

// finish ends the stream; the first reason counts. From here on nothing of the screen
// is sent and no input passes. It does not block.
func (v *viewer) finish(end End) {
	v.once.Do(func() {
		v.end = end
		close(v.ended)
	})
}

func (v *viewer) over() bool {
	select {
	case <-v.ended:
		return true
	default:
		return false
	}
}

// mayInput is asked under the input lock, for every message (rule R6).
func (v *viewer) mayInput() bool {
	return v.grant.Mode == ticket.Control && !v.over() && v.relay.lease.Holds(v.grant.Viewer)
}

// watch looks after the viewer beside its bytes: signs of life, activity, and what
// the viewer is told of the lease.
func (v *viewer) watch(ctx context.Context) {
	v.relay.options.Activity()
	activity := time.NewTicker(activityEvery)
	defer activity.Stop()
	var group sync.WaitGroup
	defer group.Wait()
	group.Go(func() { v.ping(ctx) })
	if v.greeting != nil {
		v.say(v.greeting)
		v.say(v.relay.wish())
	}
	var shown lease.Lease
	for {
		l, changed := v.relay.lease.Lease()
		if l != shown {
			shown = l
			v.say(leaseMessage(v.grant, l))
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case m := <-v.messages:
			v.say(m)
		case <-activity.C:
			v.relay.options.Activity()
		}
	}
}

// tell queues a message; one that the viewer is too slow for is dropped.
func (v *viewer) tell(m any) {
	select {
	case v.messages <- m:
	default:
	}
}

func (v *viewer) say(m any) {
	if err := v.link.tell(m); err != nil {
		v.finish(v.unwritable(err))
	}
}

// farewell is how long a failed write waits for the reader.
const farewell = time.Second

// unwritable is the end of a link that takes no more. A viewer that has just left says
// so to the reader, which knows better why: on purpose, or not (rule L9).
func (v *viewer) unwritable(err error) End {
	timer := time.NewTimer(farewell)
	defer timer.Stop()
	select {
	case <-v.ended:
		return v.end
	case <-timer.C:
		return End{Code: Abnormal, Reason: "the connection broke", Cause: err}
	}
}

// Signs of life: a viewer that vanished is found within a minute (RFB-21).
const (
	pingEvery   = 20 * time.Second
	pingTimeout = 20 * time.Second
)

func (v *viewer) ping(ctx context.Context) {
	ticker := time.NewTicker(pingEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		bounded, cancel := context.WithTimeout(ctx, pingTimeout)
		err := v.link.alive(bounded)
		cancel()
		if err != nil && ctx.Err() == nil {
			v.finish(End{Code: Abnormal, Reason: "the viewer gives no sign of life", Cause: err})
			v.link.abort()
			return
		}
	}
}
