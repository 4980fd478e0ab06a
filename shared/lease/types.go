// SPDX-License-Identifier: MPL-2.0

package lease

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/botscreen/botscreen/shared/screen"
)

// Epoch counts changes of hands. It never falls, whatever restarts or moves, and
// starts at the Unix time in milliseconds, so that it grows across nodes too.
type Epoch uint64

// MaxEpoch is the highest epoch ever written: every JSON reader still counts
// exactly there.
const MaxEpoch Epoch = 1 << 53

// Holder is who may send input now.
type Holder string

// The two holders.
const (
	Agent Holder = "agent"
	Human Holder = "human"
)

// Valid reports whether h is one of the two holders.
func (h Holder) Valid() bool { return h == Agent || h == Human }

// ViewerID is a viewer's secret name for itself: whoever knows it may act as that
// viewer, so it travels only between the viewer and the supervisor and prints as
// [redacted]. Everybody else sees its Handle.
type ViewerID string

// maxViewerID bounds an id in bytes.
const maxViewerID = 128

// Valid reports whether v can be an id: 1 to 128 printable ASCII characters.
func (v ViewerID) Valid() bool {
	for _, b := range []byte(v) {
		if b < ' ' || b > '~' {
			return false
		}
	}
	return v != "" && len(v) <= maxViewerID
}

// Format hides the capability from every verb of fmt, and so from error texts.
func (v ViewerID) Format(f fmt.State, _ rune) {
	if v != "" {
		io.WriteString(f, "[redacted]")
	}
}

// LogValue hides the capability from logs.
func (v ViewerID) LogValue() slog.Value { return slog.StringValue(fmt.Sprint(v)) }

// Handle is the name of a viewer that others may see: 12 hex digits of the
// SHA-256 of its id. It gives no power.
type Handle string

// Handle derives the public name; an empty id has none.
func (v ViewerID) Handle() Handle {
	if v == "" {
		return ""
	}
	sum := sha256.Sum256([]byte(v))
	return Handle(hex.EncodeToString(sum[:6]))
}

// Public is a lease as everybody may see it: in the status, in events, in
// refusals.
type Public struct {
	Holder Holder           `json:"holder"`
	Viewer Handle           `json:"viewer,omitempty"` // set while a human holds
	Since  time.Time        `json:"since,omitzero"`
	Reason screen.Untrusted `json:"reason,omitzero"`
	Epoch  Epoch            `json:"epoch"`
	// Away says that the human's stream ended without a hand-back and since when.
	Away time.Time `json:"away_since,omitzero"`
}
