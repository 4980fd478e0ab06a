// SPDX-License-Identifier: MPL-2.0

package dialhome

import (
	"encoding/json"
	"fmt"
)

// Version is the "v" of every packet.
const Version = 1

// MaxPacket bounds one packet, in bytes.
const MaxPacket = 64 << 10

// Op is what the supervisor asks of the session.
type Op string

// The operations of wire.md section 3.
const (
	OpStart  Op = "start"  // bring the desktop up; the first start carries the plan as a memfd
	OpDial   Op = "dial"   // open a connection to Xvnc, or to the browser, and pass it out
	OpExec   Op = "exec"   // run a command; its descriptors come back
	OpSignal Op = "signal" // signal a command, or the desktop where no command is named
	OpClear  Op = "clear"  // end what commands started, or every program but the desktop's own
	OpSleep  Op = "sleep"  // end the desktop but not the session; the next start needs no plan
	OpStop   Op = "stop"   // end the desktop and then the session

	OpBrowserOpen  Op = "browser_open"  // show an address, in the browser that runs or in a new one
	OpBrowserClose Op = "browser_close" // ask the browser to go, and answer when it has gone
	OpBrowserRenew Op = "browser_renew" // load the page in front again, or open an empty window
	OpBrowserPage  Op = "browser_page"  // say what page is in front, and whether a password stands there

	OpWindows   Op = "windows"    // list the windows
	OpPointer   Op = "pointer"    // say where the pointer is
	OpFocus     Op = "focus"      // say who gets what is typed
	OpEndClient Op = "end_client" // end the X connection of a client that OpFocus named
	// With the clipboard a file of the supervisor's rides in the request, which the
	// session reads from or writes to: a text is longer than a packet.
	OpReadClipboard Op = "read_clipboard"
	OpSetClipboard  Op = "set_clipboard"
	OpWipeClipboard Op = "wipe_clipboard"
)

// Event is what a session reports by itself.
type Event string

// The events of wire.md section 3.
const (
	EventHello     Event = "hello" // first packet after each dial: what runs already
	EventXServer   Event = "xserver_ready"
	EventWM        Event = "wm_ready"
	EventPainted   Event = "painted"
	EventClipboard Event = "clipboard" // a program copied something, where the plan asks to be told
	EventFence     Event = "fence"
	EventBrowser   Event = "browser" // another state of the browser
	EventRestarted Event = "restarted"
	EventGaveUp    Event = "gave_up"
	EventExited    Event = "exited" // a command that exec started has ended
	EventDied      Event = "died"   // the desktop has ended; the session follows
)

// Packet is one message: a request (ID and Op), an answer (ID and OK or Err) or an
// event (Event).
type Packet struct {
	V     int             `json:"v"`
	ID    uint64          `json:"id,omitempty"`
	Op    Op              `json:"op,omitempty"`
	Event Event           `json:"event,omitempty"`
	OK    bool            `json:"ok,omitempty"`
	Err   *Error          `json:"err,omitempty"`
	Body  json.RawMessage `json:"body,omitempty"`
}

// Kind sorts the errors a session answers with.
type Kind string

// Error kinds.
const (
	KindFailed       Kind = "failed"
	KindDisplayTaken Kind = "display_taken"
	KindMissing      Kind = "missing_programs"
	KindNotFound     Kind = "not_found" // no such command
	KindState        Kind = "state"     // not possible in the session's state
)

// Error is a refusal or failure the session reports.
type Error struct {
	Kind    Kind   `json:"kind"`
	Message string `json:"message"`
}

func (e *Error) Error() string { return e.Message }

// ProtocolError says that the peer broke the wire; the connection must end.
type ProtocolError struct{ Reason string }

func (e *ProtocolError) Error() string { return "dial-home protocol: " + e.Reason }

// ParsePacket reads a packet that came another way than over a Conn. What is none is a
// *ProtocolError.
func ParsePacket(text []byte) (Packet, error) { return parsePacket(text) }

// parsePacket reads one packet and refuses what is not exactly one request, one
// answer or one event. The text may hold anything: no error repeats it.
func parsePacket(text []byte) (Packet, error) {
	if len(text) > MaxPacket {
		return Packet{}, &ProtocolError{"packet too long"}
	}
	var p Packet
	if err := json.Unmarshal(text, &p); err != nil {
		return Packet{}, &ProtocolError{"not JSON"}
	}
	if p.V != Version {
		return Packet{}, &ProtocolError{fmt.Sprintf("version %d, want %d", p.V, Version)}
	}
	if !p.isRequest() && !p.isAnswer() && !p.isEvent() {
		return Packet{}, &ProtocolError{"neither a request nor an answer nor an event"}
	}
	return p, nil
}

func (p Packet) isRequest() bool {
	return p.ID != 0 && p.Op != "" && p.Event == "" && !p.OK && p.Err == nil
}

func (p Packet) isAnswer() bool {
	return p.ID != 0 && p.Op == "" && p.Event == "" && p.OK == (p.Err == nil)
}

func (p Packet) isEvent() bool {
	return p.ID == 0 && p.Op == "" && p.Event != "" && !p.OK && p.Err == nil
}
