// SPDX-License-Identifier: MPL-2.0

package session

import (
	"errors"
	"os"
	"strings"

	"github.com/botscreen/botscreen/driver/desktop"
	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

var errNoDesktop = &dialhome.Error{Kind: dialhome.KindState, Message: "no desktop runs in this session"}

// answer replies with a body and files, or says why there are none; then files is not
// looked at.
func (l *link) answer(id uint64, body any, err error, files ...*os.File) {
	if err != nil {
		l.reply(id, nil, asError(err))
		return
	}
	l.reply(id, body, nil, files...)
}

// running is the desktop there is; nil while there is none, as before its start and asleep.
func (s *session) running() *desktop.Desktop {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.desktop
}

// handleDial opens a connection and passes it out. Only this non-dumpable process ever
// held a copy, and it closes its own after the send (X10).
func (s *session) handleDial(l *link, packet dialhome.Packet) {
	var request dialhome.Dial
	err := dialhome.Decode(packet.Body, &request)
	var f *os.File
	if err == nil {
		f, err = s.dialPeer(request)
	}
	l.answer(packet.ID, nil, err, f)
}

func (s *session) dialPeer(request dialhome.Dial) (*os.File, error) {
	switch request.Peer {
	case dialhome.PeerCDP:
		return s.dialBrowser()
	case dialhome.PeerRFB, "":
		d := s.running()
		if d == nil {
			return nil, errNoDesktop
		}
		if request.Compare {
			d.Compare()
		}
		return d.DialRFB(s.stopping)
	default:
		return nil, &dialhome.Error{Kind: dialhome.KindFailed, Message: "unknown peer"}
	}
}

// xIdentity is Xvnc's pid and start time in the session's pid namespace.
func xIdentity(d *desktop.Desktop) (pid int, start uint64) {
	id, err := process.Observe(d.XServerPID())
	if err != nil {
		return 0, 0
	}
	return id.PID, id.Start
}

func asError(err error) *dialhome.Error {
	var already *dialhome.Error
	if errors.As(err, &already) {
		return already
	}
	kind := dialhome.KindFailed
	var taken *desktop.DisplayTakenError
	var missing *desktop.MissingError
	switch {
	case errors.As(err, &taken):
		kind = dialhome.KindDisplayTaken
	case errors.As(err, &missing):
		kind = dialhome.KindMissing
	}
	return &dialhome.Error{Kind: kind, Message: bounded(err.Error())}
}

// bounded keeps text from inside well below a packet, in whole characters.
func bounded(text string) string {
	const most = 4096
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}

func boundedLines(lines []string) []string {
	const mostLines, mostBytes = 20, 512
	lines = lines[max(0, len(lines)-mostLines):]
	short := make([]string, len(lines))
	for i, line := range lines {
		short[i] = strings.ToValidUTF8(line[:min(len(line), mostBytes)], "")
	}
	return short
}
