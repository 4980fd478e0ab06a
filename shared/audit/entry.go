// SPDX-License-Identifier: MPL-2.0

package audit

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// Act is what was done.
type Act string

// Every act that leaves a line.
const (
	Began         Act = "supervisor_began"
	Taken         Act = "taken"
	HandedBack    Act = "handed_back"
	Asked         Act = "asked"  // another person wants the screen
	Denied        Act = "denied" // and does not get it
	Away          Act = "human_away"
	TicketMinted  Act = "ticket_minted"
	TicketRevoked Act = "ticket_revoked"
	Viewed        Act = "viewer_came"
	Stopped       Act = "stopped"
	Forced        Act = "command_forced" // one was run although a person held
)

// Door is the way by which somebody came.
type Door string

// The doors. Time is nobody's: a limit passed.
const (
	Operator Door = "operator" // the socket, by the kernel's word
	Exec     Door = "exec"     // a stream of Nomad's alloc exec: who it is, is claimed
	Agent    Door = "agent"
	Ticket   Door = "ticket" // the viewer listener
	Time     Door = "time"
)

// Peer is who did it, as far as the door knows.
type Peer struct {
	Door Door `json:"door"`
	// UID and PID are the kernel's word; nil where whoever came could only be believed.
	UID *int `json:"uid,omitempty"`
	PID *int `json:"pid,omitempty"`
	// TicketID names the ticket that was used or made, never its secret.
	TicketID string `json:"ticket,omitempty"`
}

// Entry is one line.
type Entry struct {
	Seq  uint64    `json:"seq"` // from 1, without a gap
	Time time.Time `json:"time"`
	Act  Act       `json:"act"`
	Peer
	Viewer   lease.Handle     `json:"viewer,omitempty"` // whom it concerns
	Before   lease.Epoch      `json:"epoch_before"`
	After    lease.Epoch      `json:"epoch_after"`
	Watchers []lease.Handle   `json:"watchers,omitempty"` // who saw the screen then
	Reason   screen.Untrusted `json:"reason,omitzero"`
	// Lost counts the lines before this one that could not be written.
	Lost uint64 `json:"lost,omitempty"`
	// Previous is the hash of the line before, empty in the first.
	Previous Hash `json:"previous"`
}

// Hash is the SHA-256 of a line without its newline, in hex.
type Hash string

func hashOf(line []byte) Hash {
	sum := sha256.Sum256(line)
	return Hash(hex.EncodeToString(sum[:]))
}

// maxLine bounds a line in bytes; the longest that can be written is far below.
const maxLine = 16 << 10

var errLine = errors.New("is no line of an audit file")

func parse(line []byte) (Entry, error) {
	var e Entry
	if err := json.Unmarshal(line, &e); err != nil || e.Seq == 0 || e.Act == "" {
		return Entry{}, errLine
	}
	return e, nil
}

// Head is the newest line there must be: a file that ends before it was cut.
type Head struct {
	Seq  uint64 `json:"seq"`
	Hash Hash   `json:"hash"`
}

func (h Head) String() string { return fmt.Sprintf("%d:%s", h.Seq, h.Hash) }

// ParseHead reads what String wrote.
func ParseHead(text string) (Head, error) {
	var h Head
	if n, err := fmt.Sscanf(text, "%d:%s", &h.Seq, &h.Hash); err != nil || n != 2 || len(h.Hash) != 2*sha256.Size {
		return Head{}, fmt.Errorf("%q is not the head of an audit file", text)
	}
	return h, nil
}
