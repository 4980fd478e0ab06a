// SPDX-License-Identifier: MPL-2.0

package lease

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/botscreen/botscreen/shared/screen"
)

// record is a lease as it lies in lease.json.
type record struct {
	V      int              `json:"v"`
	Holder Holder           `json:"holder"`
	Viewer string           `json:"viewer,omitempty"`
	Since  time.Time        `json:"since,omitzero"`
	Reason screen.Untrusted `json:"reason,omitzero"`
	Epoch  Epoch            `json:"epoch"`
	Away   time.Time        `json:"away_since,omitzero"`
}

const recordVersion = 1

var byteOrderMark = []byte("\xef\xbb\xbf")

func encode(l Lease) ([]byte, error) {
	return json.Marshal(record{
		V: recordVersion, Holder: l.Holder, Viewer: string(l.Viewer), Since: l.Since,
		Reason: l.Reason, Epoch: l.Epoch, Away: l.Away,
	})
}

// decode reads a lease and believes it only when everything about it is right. A
// byte-order mark is tolerated (rule L1).
func decode(text []byte) (Lease, error) {
	var r record
	if err := json.Unmarshal(bytes.TrimPrefix(text, byteOrderMark), &r); err != nil {
		return Lease{}, fmt.Errorf("is no lease: %w", err)
	}
	switch {
	case r.V > recordVersion || r.V < 0:
		return Lease{}, fmt.Errorf("has version %d, this program knows %d", r.V, recordVersion)
	case !r.Holder.Valid():
		return Lease{}, fmt.Errorf("has the holder %.32q, want agent or human", string(r.Holder))
	case r.Epoch == 0 || r.Epoch > MaxEpoch:
		return Lease{}, fmt.Errorf("has epoch %d, want 1 to %d", r.Epoch, MaxEpoch)
	case r.Holder == Agent && r.Viewer != "":
		return Lease{}, fmt.Errorf("is the agent's and names a viewer")
	}
	return Lease{
		Holder: r.Holder, Viewer: ViewerID(r.Viewer), Since: r.Since,
		Reason: r.Reason, Epoch: r.Epoch, Away: r.Away,
	}, nil
}

func encodeMark(e Epoch) []byte { return strconv.AppendUint(nil, uint64(e), 10) }

// decodeMark reads the high-water mark.
func decodeMark(text []byte) (Epoch, error) {
	n, err := strconv.ParseUint(string(bytes.TrimSpace(text)), 10, 64)
	if err != nil || Epoch(n) > MaxEpoch {
		return 0, fmt.Errorf("is no epoch: %.32q", text)
	}
	return Epoch(n), nil
}
