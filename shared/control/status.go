// SPDX-License-Identifier: MPL-2.0

package control

import (
	"time"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// Status is everything there is to say about one screen now.
type Status struct {
	WireVersion int              `json:"wire_version"`
	State       screen.State     `json:"state"`
	Since       time.Time        `json:"since,omitzero"`  // when the state began
	Reason      screen.Untrusted `json:"reason,omitzero"` // why it is failed, queued or stopping
	Profile     screen.Profile   `json:"profile"`
	Isolation   screen.Isolation `json:"isolation"`
	Display     string           `json:"display,omitempty"` // for example ":23"; empty while there is none
	Geometry    screen.Geometry  `json:"geometry,omitzero"`
	Memory      *Memory          `json:"memory,omitempty"`
	Lease       lease.Public     `json:"lease"`
	Fence       Fence            `json:"fence"`
	ImageDigest string           `json:"image_digest,omitempty"`
	Browser     *Browser         `json:"browser,omitempty"`
	Viewers     []Viewer         `json:"viewers,omitempty"`
	Asks        []Ask            `json:"asks,omitempty"`
	Warnings    []string         `json:"warnings,omitempty"`
	// Notice is what a person has to know who takes the screen over.
	Notice string `json:"notice,omitempty"`
}

// TakeoverNotice says what no takeover hides (X3): the X protocol lets every client read
// the keyboard.
const TakeoverNotice = "Programs on this desktop, the job's own command among them, can read what you type."

// CleanNotice says it where the job clears the desktop first.
const CleanNotice = "Other programs were ended when you took over. What is left of the desktop, and the job's own command, can read what you type."

// Memory is what stands between this screen and its next start.
type Memory struct {
	AvailableMB int    `json:"available_mb"`
	FloorMB     int    `json:"floor_mb"`
	Limit       string `json:"limit,omitempty"` // whose limit is the least: "host" or a cgroup
	Blocked     bool   `json:"blocked"`         // a start would be refused now
}

// FenceMode says how strong the fence around a takeover is.
type FenceMode string

// The two modes: Enforced only after the self-test passed (threats.md X2).
const (
	Enforced FenceMode = "enforced"
	Advisory FenceMode = "advisory"
)

// Fence is the mode and, where it is advisory, why.
type Fence struct {
	Mode   FenceMode `json:"mode"`
	Reason string    `json:"reason,omitempty"`
}

// Viewer is one attached person, named by its handle.
type Viewer struct {
	Viewer  lease.Handle `json:"viewer"`
	Mode    ViewMode     `json:"mode"`
	Since   time.Time    `json:"since"`
	Holding bool         `json:"holding,omitempty"`
}

// ViewMode is what a viewer's ticket allows.
type ViewMode string

// The modes of a ticket.
const (
	Watch   ViewMode = "watch"
	Control ViewMode = "control"
)

// EventName names what happened.
type EventName string

// Every event (wire.md section 4).
const (
	EventReady       EventName = "ready"
	EventAsleep      EventName = "asleep"
	EventFrozen      EventName = "frozen"
	EventWoken       EventName = "woken"
	EventTaken       EventName = "taken"
	EventHandedBack  EventName = "handed_back"
	EventHumanWanted EventName = "human_wanted"
	EventHumanAway   EventName = "human_away"
	EventBlocked     EventName = "blocked"
	EventRefused     EventName = "refused"
	EventRestarted   EventName = "restarted"
	EventFence       EventName = "fence"      // the self-test of the fence has another result
	EventMemory      EventName = "memory"     // programs were ended for want of memory, or soon will be
	EventAgentDoor   EventName = "agent_door" // the agent's socket was replaced by somebody else's
	EventState       EventName = "state"      // any other change of the state
)

// Event is one thing that happened. Each carries the whole picture, because a
// reader may have missed the ones before.
type Event struct {
	Seq         uint64           `json:"seq"` // grows, also across supervisors
	Time        time.Time        `json:"time"`
	Name        EventName        `json:"event"`
	State       screen.State     `json:"state"`
	Profile     screen.Profile   `json:"profile"`
	Isolation   screen.Isolation `json:"isolation"`
	ImageDigest string           `json:"image_digest,omitempty"`
	Holder      lease.Holder     `json:"holder"`
	Epoch       lease.Epoch      `json:"epoch"`
	Fence       FenceMode        `json:"fence"`
	Reason      screen.Untrusted `json:"reason,omitzero"`
}

// Exit is how a screen ended.
type Exit struct {
	Code   int              `json:"code"`
	Signal int              `json:"signal,omitempty"`
	OOM    bool             `json:"oom,omitempty"`
	Cause  string           `json:"cause,omitempty"` // the session's word for why a start failed
	Lost   bool             `json:"lost,omitempty"`  // the status is not known: the session was not stopped
	Reason screen.Untrusted `json:"reason,omitzero"` // with the last lines where it died
}

// Stats is what a screen uses.
type Stats struct {
	Time        time.Time `json:"time"`
	CPUUserNs   uint64    `json:"cpu_user_ns"` // since the start
	CPUSystemNs uint64    `json:"cpu_system_ns"`
	MemoryBytes uint64    `json:"memory_bytes"` // working set: usage without inactive file pages
	CacheBytes  uint64    `json:"cache_bytes,omitempty"`
	SwapBytes   uint64    `json:"swap_bytes,omitempty"`
	MaxBytes    uint64    `json:"max_bytes,omitempty"` // the highest usage seen
	Processes   int       `json:"processes"`
	// Namespace is where the screen's job is.
	Namespace string `json:"namespace"`
	Counts    Counts `json:"counts"`
}

// Counts is what happened to a screen since its present supervisor began: a successor
// counts from zero.
type Counts struct {
	StartNs   time.Duration `json:"start_ns,omitempty"` // of the start, where this supervisor made it
	Wakes     uint64        `json:"wakes"`              // thaws included
	WakeNs    time.Duration `json:"wake_ns"`            // all of them together
	Takeovers uint64        `json:"takeovers"`
	HandBacks uint64        `json:"hand_backs"`
	Refusals  uint64        `json:"refusals"` // calls that were refused, whatever the reason
	SentBytes uint64        `json:"sent_bytes"`
	// ReceivedBytes are those of viewers that reached the X server.
	ReceivedBytes uint64 `json:"received_bytes"`
}
