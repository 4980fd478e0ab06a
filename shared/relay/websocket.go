// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/botscreen/botscreen/shared/relay/ticket"
)

// Subprotocols of a viewer's WebSocket. Binary frames carry RFB in both; with the
// second, text frames carry the lease beside it, see message.go.
const (
	ProtocolBinary = "binary" // what every web VNC client speaks
	ProtocolLease  = "botscreen"
	// ProtocolTicket begins the further subprotocol that carries the ticket: it is in
	// no URL, so in no log, history or referrer (SEC-07).
	ProtocolTicket = "ticket."
)

// QueryLayout is the URL's parameter with the person's keyboard layout.
const QueryLayout = "layout"

// ServeHTTP serves one viewer over a WebSocket, from its ticket to its end. Host and
// Origin are checked before the upgrade and the ticket after it, so that a page can
// read the code (rule R2).
func (r *Relay) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	r.upgrade(w, req, func(link *socketLink, settled func()) {
		id, grant, err := r.options.Tickets.Redeem(secretOf(req), func(g ticket.Grant) error {
			r.mu.Lock()
			defer r.mu.Unlock()
			return r.watchable(g.Viewer)
		})
		if err != nil {
			settled()
			r.refuse(req.Context(), link, err)
			return
		}
		v := r.newViewer(link, Admission{Grant: grant, Layout: req.URL.Query().Get(QueryLayout)})
		v.ticket = id
		r.serveSocket(req.Context(), v, settled)
	})
}

// Vouched serves the WebSocket of a viewer that came through a door which has decided
// what it may do: it shows no ticket and is given no renewal, because it comes back
// through the same door.
func (r *Relay) Vouched(grant ticket.Grant) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		r.upgrade(w, req, func(link *socketLink, settled func()) {
			v := r.newViewer(link, Admission{Grant: grant, Layout: req.URL.Query().Get(QueryLayout)})
			r.serveSocket(req.Context(), v, settled)
		})
	})
}

// upgrade makes a WebSocket of a request that is not a foreign page's, and calls serve
// with it; settled is to be called when the viewer is pending no longer.
func (r *Relay) upgrade(w http.ResponseWriter, req *http.Request, serve func(link *socketLink, settled func())) {
	if err := r.options.foreign(req); err != nil {
		r.log.Warn("viewer refused", "code", Foreign, "err", err)
		http.Error(w, "This page may not open a view of a screen.", http.StatusForbidden)
		return
	}
	select {
	case r.pending <- struct{}{}:
	default:
		http.Error(w, "Too many connections at once.", http.StatusServiceUnavailable)
		return
	}
	settled := sync.OnceFunc(func() { <-r.pending })
	defer settled()
	conn, err := websocket.Accept(gatherer{w}, req, &websocket.AcceptOptions{
		Subprotocols:       []string{ProtocolLease, ProtocolBinary},
		InsecureSkipVerify: true, // foreign has verified
	})
	if err != nil {
		return // Accept has answered
	}
	defer conn.CloseNow()
	conn.SetReadLimit(-1) // every message within is bounded by its framing
	serve(&socketLink{conn: conn, texts: conn.Subprotocol() == ProtocolLease}, settled)
}

// serveSocket tells a viewer that speaks of the lease who it is, and gives one with a
// ticket a way back in.
func (r *Relay) serveSocket(ctx context.Context, v *viewer, settled func()) {
	link := v.link.(*socketLink)
	if !link.texts {
		r.serve(ctx, v, settled)
		return
	}
	link.ops = v.operate
	greeting := hello{
		Type: "hello", Viewer: v.grant.Viewer.Handle(), Mode: v.grant.Mode,
		Layout: r.options.Layout, Paste: r.options.Paste != nil,
	}
	if v.ticket != "" {
		renewal := r.options.Tickets.Renew(v.ticket, v.grant)
		greeting.Renewal = string(renewal.Secret)
		v.afterwards = func(end End) {
			if end.Deliberate() || end.Code == BadTicket || end.Code == Replaced {
				renewal.Drop()
			} else {
				renewal.Ended()
			}
		}
	}
	v.greeting = greeting
	r.serve(ctx, v, settled)
}

// refuse answers a ticket that opens nothing. All refusals look alike, and whoever
// tries many waits for each.
func (r *Relay) refuse(ctx context.Context, link *socketLink, err error) {
	if errors.Is(err, errNotWatchable) {
		link.close(endOfRefusal(err))
		return
	}
	if wait := r.options.Tickets.Penalty(); wait > 0 {
		select {
		case r.waiting <- struct{}{}:
			defer func() { <-r.waiting }()
			_ = sleep(ctx, wait) // the refusal goes to whoever is still there
		default: // too many wait already
		}
	}
	link.close(End{Code: BadTicket, Reason: "the ticket opens nothing"})
}

// sleep waits, and returns the cause where ctx ends first.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// secretOf finds the ticket among the subprotocols.
func secretOf(req *http.Request) ticket.Secret {
	for _, line := range req.Header.Values("Sec-WebSocket-Protocol") {
		for token := range strings.SplitSeq(line, ",") {
			if secret, ok := strings.CutPrefix(strings.TrimSpace(token), ProtocolTicket); ok {
				return ticket.Secret(secret)
			}
		}
	}
	return ""
}

// socketLink is a viewer on a WebSocket.
type socketLink struct {
	conn  *websocket.Conn
	texts bool              // text frames are spoken
	ops   func(text []byte) // takes one
	frame io.Reader         // the binary frame being read
}

var errText = errors.New("a text frame, which was not agreed on")

// Read reads the stream out of the binary frames: where these begin and end means
// nothing.
func (s *socketLink) Read(b []byte) (int, error) {
	for {
		for s.frame == nil {
			if err := s.nextFrame(); err != nil {
				return 0, err
			}
		}
		n, err := s.frame.Read(b)
		if err == io.EOF {
			s.frame, err = nil, nil
		}
		if n > 0 || err != nil {
			return n, err
		}
	}
}

// nextFrame goes to the next binary frame, or does what a text frame says.
func (s *socketLink) nextFrame() error {
	kind, frame, err := s.conn.Reader(context.Background()) // close ends it
	if err != nil {
		return err
	}
	if kind == websocket.MessageBinary {
		s.frame = frame
		return nil
	}
	if !s.texts {
		return errText
	}
	text, err := io.ReadAll(io.LimitReader(frame, maxText+1))
	if err != nil {
		return err
	}
	if len(text) > maxText {
		return errText
	}
	s.ops(text)
	return nil
}

// Write has no deadline of its own: the caller's timer aborts it.
func (s *socketLink) Write(b []byte) (int, error) {
	if err := s.conn.Write(context.Background(), websocket.MessageBinary, b); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (s *socketLink) alive(ctx context.Context) error { return s.conn.Ping(ctx) }

func (s *socketLink) tell(message any) error {
	if !s.texts {
		return nil
	}
	text, err := json.Marshal(message)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), writeTimeout)
	defer cancel()
	return s.conn.Write(ctx, websocket.MessageText, text)
}

func (s *socketLink) endOf(err error) End {
	if errors.Is(err, errText) {
		return End{Code: NotFrameable, Reason: "it sent a text frame this relay does not take", Cause: err}
	}
	switch code := Code(websocket.CloseStatus(err)); code {
	case Normal, GoingAway:
		return End{Code: code, Reason: "the viewer left"}
	default:
		return End{Code: Abnormal, Reason: "the connection broke", Cause: err}
	}
}

func (s *socketLink) close(end End) {
	if end.Code == Abnormal {
		s.conn.CloseNow() // nobody is there to be told
		return
	}
	s.conn.Close(websocket.StatusCode(end.Code), end.Reason)
}

func (s *socketLink) abort() { s.conn.CloseNow() }
