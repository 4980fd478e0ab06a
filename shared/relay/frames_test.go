// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"testing/iotest"

	"github.com/botscreen/botscreen/shared/rfb"
)

// reference relays a stream that does not hold by rfb.MessageReader, one message at a
// time, in the simplest way.
func reference(said []byte) (out []byte, err error) {
	var known announced
	messages := rfb.NewMessageReader(bytes.NewReader(said))
	for {
		m, err := messages.Next()
		if err != nil {
			return out, err
		}
		fence, isFence := m.Fence()
		switch {
		case m.Type() == rfb.TypeSetEncodings:
			start := len(out)
			out = m.AppendFiltered(out, func(e rfb.Encoding) bool { return carried(e, false) })
			known = announcedBy(out[start:])
		case m.Type() == rfb.TypeFramebufferUpdateRequest, m.Type() == rfb.TypeSetPixelFormat,
			isFence && (known.fence || fence.Flags&rfb.FenceRequest == 0),
			m.Type() == rfb.TypeEnableContinuousUpdates && known.fence && known.continuous:
			out = append(out, m...)
		}
	}
}

// FuzzFrames: the relay's own reader takes and refuses what rfb.MessageReader does,
// at the same place, however the bytes arrive.
func FuzzFrames(f *testing.F) {
	for _, r := range recordings(f) {
		if len(r.Hex) < 4096 {
			f.Add(append(bytes.Clone(everything), unhex(f, r.Hex)...), false)
		}
	}
	f.Add(bytes.Repeat(everything, 300), true)
	f.Fuzz(func(t *testing.T, said []byte, slowly bool) {
		want, wantErr := reference(said)
		var r io.Reader = bytes.NewReader(said)
		if slowly {
			r = iotest.HalfReader(iotest.DataErrReader(r))
		}
		upstream := &sink{}
		v := &viewer{relay: &Relay{}, link: &quiet{Reader: r}, upstream: upstream}
		end := v.inbound(t.Context())
		if !bytes.Equal(upstream.Bytes(), want) {
			t.Fatalf("got  %x\nwant %x", upstream.Bytes(), want)
		}
		var bad, wantBad *rfb.ProtocolError
		if errors.As(end.Cause, &bad) != errors.As(wantErr, &wantBad) || bad != nil && *bad != *wantBad {
			t.Fatalf("got %v, want %v", end.Cause, wantErr)
		}
		if bad == nil && !errors.Is(end.Cause, wantErr) {
			t.Fatalf("got %v, want %v", end.Cause, wantErr)
		}
	})
}
