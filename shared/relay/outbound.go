// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"errors"
	"time"
)

// chunk is how much of the picture is read and sent at once (rule R8): with a frame's
// header a little less than two of the loopback device's segments (65,463 bytes on
// IPv6), for a frame that reaches into one more costs a packet more. Measured the best
// of all sizes (docs/decisions/031).
const chunk = 127 << 10

var errStalled = errors.New("viewer has not read for 10 s")

// outbound carries the picture, unparsed. While the viewer does not read, nothing is
// read from its server either; nobody else waits for it.
func (v *viewer) outbound() End {
	// One timer for the whole stream: a deadline per chunk would cost more.
	stalled := time.AfterFunc(writeTimeout, func() {
		v.finish(End{Code: TryLater, Reason: "the viewer does not read", Cause: errStalled})
		v.link.abort()
	})
	stalled.Stop()
	defer stalled.Stop()
	buf := make([]byte, chunk)
	for {
		n, err := v.upstream.Read(buf)
		// Asked after the read: what was painted after a takeover reaches nobody who may
		// not see it.
		if v.over() {
			return v.end
		}
		if n > 0 {
			stalled.Reset(writeTimeout)
			if _, err := v.link.Write(buf[:n]); err != nil {
				return v.unwritable(err)
			}
			v.relay.sent.Add(uint64(n))
			stalled.Stop()
		}
		if err != nil {
			return End{Code: Gone, Reason: "the screen ended this view", Cause: err}
		}
	}
}
