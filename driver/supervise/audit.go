// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"fmt"
	"os"
	"sync"

	"github.com/botscreen/botscreen/shared/audit"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// knownPeers bounds of how many viewers it is remembered by which door they came.
const knownPeers = 256

// trail writes down who had the screen (X39). The lease says what changed; by which
// door whoever did it came is remembered here.
type trail struct {
	log *audit.Log

	mu      sync.Mutex // guards all below
	peers   map[lease.Handle]audit.Peer
	order   []lease.Handle // the oldest first
	freeing *audit.Peer    // an operator is freeing the screen
}

func newTrail(dir *os.Root) *trail {
	return &trail{log: audit.NewLog(dir), peers: map[lease.Handle]audit.Peer{}}
}

// came remembers by which door a viewer acts.
func (t *trail) came(v lease.Handle, p audit.Peer) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.peers[v]; !known {
		t.order = append(t.order, v)
	}
	t.peers[v] = p
	if len(t.order) > knownPeers {
		delete(t.peers, t.order[0])
		t.order = t.order[1:]
	}
}

// by is who did something as viewer v, or an operator who frees; else time did.
func (t *trail) by(v lease.Handle) audit.Peer {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.freeing != nil {
		return *t.freeing
	}
	if p, ok := t.peers[v]; ok {
		return p
	}
	return audit.Peer{Door: audit.Time}
}

// free notes that p frees the screen while do runs.
func (t *trail) free(p audit.Peer, do func()) {
	t.mu.Lock()
	t.freeing = &p
	t.mu.Unlock()
	defer func() {
		t.mu.Lock()
		t.freeing = nil
		t.mu.Unlock()
	}()
	do()
}

// cameBy is the caller as an audit line has it. Where the kernel does not say who came,
// it was through Nomad.
func cameBy(c controlserver.Caller) audit.Peer {
	if c.UID < 0 {
		return audit.Peer{Door: audit.Exec}
	}
	p := audit.Peer{Door: audit.Operator, UID: &c.UID, PID: &c.PID}
	if c.Role == screen.RoleAgent {
		p.Door = audit.Agent
	}
	return p
}

// leaseActs names what the lease tells.
var leaseActs = map[lease.NoticeKind]audit.Act{
	lease.Taken: audit.Taken, lease.HandedBack: audit.HandedBack, lease.HumanAway: audit.Away,
	lease.Asked: audit.Asked, lease.Denied: audit.Denied,
}

// auditBegin is the first line of this supervisor. It says what is wrong with those
// before: a file that was cut goes on from where it ends, and would look whole again.
func (s *supervisor) auditBegin() {
	reason := ""
	text, err := s.trail.log.Read()
	if err == nil {
		_, err = audit.Verify(text, s.record.Audit)
	}
	if err != nil {
		reason = "the lines before do not hold: " + err.Error()
		s.log.Error("the audit file does not hold", "error", err)
	}
	s.auditAct(audit.Began, audit.Peer{Door: audit.Time}, s.holds().Viewer.Handle(), reason)
}

// auditLease writes down what happened to the lease. Who takes is the one it goes to,
// and who gives the one it was with.
func (s *supervisor) auditLease(n lease.Notice) {
	concerned := n.To.Viewer.Handle()
	actor := concerned
	switch n.Kind {
	case lease.HandedBack:
		concerned = n.From.Viewer.Handle()
		actor = concerned
	case lease.Asked:
		concerned, actor = n.From.Viewer.Handle(), n.Claim.Viewer.Handle()
	case lease.HumanAway:
		actor = ""
	}
	reason := n.To.Reason
	if n.Kind == lease.Asked || n.Kind == lease.Denied {
		reason = n.Claim.Reason
	}
	s.auditLine(audit.Entry{
		Act: leaseActs[n.Kind], Peer: s.trail.by(actor), Viewer: concerned,
		Before: n.From.Epoch, After: n.To.Epoch, Reason: reason,
	})
}

// auditAct writes down what left the lease as it is.
func (s *supervisor) auditAct(act audit.Act, by audit.Peer, v lease.Handle, reason string) {
	epoch := s.holds().Epoch
	s.auditLine(audit.Entry{Act: act, Peer: by, Viewer: v, Before: epoch, After: epoch, Reason: screen.Distrust(reason)})
}

// auditLine adds who sees the screen and writes. A file that takes no line keeps nobody
// from taking over: the status says so, and the next line how many are missing.
func (s *supervisor) auditLine(e audit.Entry) {
	for _, v := range s.relay.Viewers() {
		e.Watchers = append(e.Watchers, v.Viewer)
	}
	err := s.trail.log.Append(e)
	if err != nil {
		s.log.Error("cannot write down who has the screen", "error", err)
	}
	s.mu.Lock()
	s.auditTrouble = err
	if err == nil {
		s.record.Audit = s.trail.log.Head()
	}
	s.mu.Unlock()
}

// Audit is the file as it is.
func (s *supervisor) Audit(context.Context) ([]byte, string, error) {
	text, err := s.trail.log.Read()
	if err != nil {
		return nil, "", &control.Error{Kind: control.Internal, Message: fmt.Sprintf("Cannot read who had the screen: %s.", err),
			Next: "Look at the control directory of this screen on its node."}
	}
	s.mu.Lock()
	head := s.record.Audit
	s.mu.Unlock()
	return text, head.String(), nil
}
