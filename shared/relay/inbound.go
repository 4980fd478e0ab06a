// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/botscreen/botscreen/shared/relay/ticket"
	"github.com/botscreen/botscreen/shared/rfb"
)

// pasteTimeout bounds how long a paste holds up the keys behind it.
const pasteTimeout = 2 * time.Second

// inbound reads what the viewer sends, message by message, however it is cut into
// packets. What is not input goes to the viewer's own server, input to the gate.
func (v *viewer) inbound(ctx context.Context) End {
	in := &inflow{viewer: v, ctx: ctx, watching: v.grant.Mode != ticket.Control}
	messages := frames{r: v.link}
	for {
		rest, bad, err := in.chew(messages.unread())
		if err == nil {
			err = in.flush()
		}
		if err != nil {
			return endOfUpstream(err)
		}
		messages.keep(rest)
		if bad != nil {
			return endOfBad(messages.locate(bad))
		}
		if err := messages.more(); err != nil {
			return v.link.endOf(err)
		}
	}
}

func endOfBad(bad *rfb.ProtocolError) End {
	return End{Code: NotFrameable, Cause: bad,
		Reason: fmt.Sprintf("it sent a message this relay does not carry (type %d)", bad.Type)}
}

func endOfUpstream(err error) End {
	return End{Code: Gone, Reason: "the screen does not take input", Cause: err}
}

// inflow is a viewer's direction to the screen.
type inflow struct {
	viewer   *viewer
	ctx      context.Context
	watching bool // the ticket gives no input
	pace     bucket
	out      []byte           // for the viewer's own server
	moved    bool             // the pointer, since the last flush
	at       rfb.PointerEvent // where to
}

// chew handles the whole messages in b and returns what is left. A message that
// cannot be framed is bad; whatever came before it has been handled.
func (in *inflow) chew(b []byte) (rest []byte, bad *rfb.ProtocolError, err error) {
	start, end := 0, 0 // of the bytes that pass as they are, taken together
	for {
		n := 0
		if end < len(b) {
			n = int(kinds[b[end]].length)
		}
		if n == 0 || n > len(b)-end {
			var bad *rfb.ProtocolError
			if n, bad = lengthOf(b[end:]); n == 0 || bad != nil {
				in.out = append(in.out, b[start:end]...)
				return b[end:], bad, nil
			}
		}
		kind := &kinds[b[end]]
		if kind.passes {
			end += n
			continue
		}
		if start < end {
			in.out = append(in.out, b[start:end]...)
		}
		m := rfb.Message(b[end : end+n])
		end += n
		start = end
		if in.watching && kind.input {
			continue
		}
		if err := in.take(m); err != nil {
			return nil, nil, err
		}
	}
}

// passes reports the types that go to the viewer's own server unseen.
func passes(kind byte) bool {
	return kind == rfb.TypeFramebufferUpdateRequest || kind == rfb.TypeSetPixelFormat
}

// take handles one message of the others.
func (in *inflow) take(m rfb.Message) error {
	switch m.Type() {
	case rfb.TypeSetEncodings:
		in.encodings(m)
	case rfb.TypeFence:
		in.fence(m)
	case rfb.TypeEnableContinuousUpdates:
		// Xvnc hangs up on one that has not announced both (RFB-14).
		if a := in.viewer.announced; a.fence && a.continuous {
			in.out = append(in.out, m...)
		}
	case rfb.TypeClientCutText:
		return in.cutText(m)
	case rfb.TypeXVP: // power is nobody's here (RFB-12)
	default:
		return in.input(m)
	}
	return nil
}

func (in *inflow) encodings(m rfb.Message) {
	start := len(in.out)
	in.out = m.AppendFiltered(in.out, func(e rfb.Encoding) bool { return carried(e, in.viewer.keycodes) })
	in.viewer.announced = announcedBy(in.out[start:])
}

// fence passes answers always: without them the server stops sending (RFB-03). A
// request from one that has not announced fences would make it hang up.
func (in *inflow) fence(m rfb.Message) {
	if f, _ := m.Fence(); f.Flags&rfb.FenceRequest == 0 || in.viewer.announced.fence {
		in.out = append(in.out, m...)
	}
}

// input passes what acts on the screen while the viewer holds it, and swallows it
// otherwise: a late key is no reason to throw anybody out.
func (in *inflow) input(m rfb.Message) error {
	if err := in.pace.take(in.ctx); err != nil {
		return err
	}
	err := in.viewer.relay.gate.fromViewer(in.ctx, in.viewer, m)
	if errors.Is(err, errDropped) {
		return nil
	}
	if err == nil && in.viewer.announced.cursor {
		if at, ok := m.Pointer(); ok {
			in.at, in.moved = at, true
		}
	}
	return err
}

// flush sends what was gathered, and the pointer's last place (rule R14): once for
// all motions that came together.
func (in *inflow) flush() error {
	if in.moved {
		in.moved = false
		if err := in.viewer.relay.gate.repeat(in.viewer, in.at); err != nil {
			return err
		}
	}
	if len(in.out) == 0 {
		return nil
	}
	v := in.viewer
	v.upstream.SetWriteDeadline(time.Now().Add(writeTimeout))
	n, err := v.upstream.Write(in.out)
	v.relay.got.Add(uint64(n))
	in.out = in.out[:0]
	return err
}

// cutText is a paste of a viewer that has no better way. The clipboard does not travel
// in RFB (threats.md X24); the extended form is a notice about one, which view-only
// viewers send by themselves (rule R6a).
func (in *inflow) cutText(m rfb.Message) error {
	text, _ := m.CutText()
	if text.Extended || !in.viewer.mayInput() {
		return nil
	}
	if err := in.pace.take(in.ctx); err != nil {
		return err
	}
	var utf8 strings.Builder
	for _, b := range text.Data {
		utf8.WriteRune(rune(b)) // RFC 6143 section 7.5.6: Latin-1
	}
	in.viewer.paste(utf8.String())
	return nil
}

// paste puts a holder's text into the screen's clipboard.
func (v *viewer) paste(text string) {
	if v.relay.options.Paste == nil || !v.mayInput() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pasteTimeout)
	defer cancel()
	if err := v.relay.options.Paste(ctx, text); err != nil {
		v.relay.log.Warn("paste failed", "viewer", v.grant.Viewer.Handle(), "err", err)
		v.tell(failed{Type: "error", Op: "paste", Message: "the text could not be pasted"})
	}
}
