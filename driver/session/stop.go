// SPDX-License-Identifier: MPL-2.0

package session

import (
	"context"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// killSlack is what the end of a desktop may take beyond its grace: KILL for programs,
// X server and bus, one after the other.
const killSlack = 15 * time.Second

// handleStop ends the desktop and then the session.
func (s *session) handleStop(l *link, packet dialhome.Packet) {
	var request dialhome.Stop
	if err := dialhome.Decode(packet.Body, &request); err != nil {
		l.reply(packet.ID, nil, asError(err))
		return
	}
	s.decide(exitStopped)
	s.endDesktop(unix.Signal(request.Signal), request.Grace)
	l.reply(packet.ID, nil, nil)
	s.stop()
}

// endDesktop stops the desktop, also one that is only starting, and everything else
// below the session. Where first is another signal than TERM, the programs get it
// before TERM.
func (s *session) endDesktop(first unix.Signal, grace time.Duration) {
	s.mu.Lock()
	s.state = dialhome.Ended // from here on nothing starts
	start := s.start
	s.mu.Unlock()
	if start != nil {
		start.cancel()
		<-start.over
	}
	d := s.running()
	if d == nil {
		return // a failed start has cleaned up, and commands run beside a desktop only
	}
	grace = s.endBrowser(grace)
	if first != 0 && first != unix.SIGTERM {
		_ = s.signalPrograms(first) // TERM follows in any case
	}
	limit, cancel := context.WithTimeout(context.Background(), max(grace, 0)+killSlack)
	defer cancel()
	if err := d.Stop(limit, grace); err != nil {
		fmt.Fprintf(s.log, "session: stop desktop: %v\n", err)
	}
}

// handleSignal signals one command, or every program on the desktop.
func (s *session) handleSignal(l *link, packet dialhome.Packet) {
	var request dialhome.Signal
	err := dialhome.Decode(packet.Body, &request)
	if err == nil {
		sig := unix.Signal(request.Signal)
		if request.Command != 0 {
			l.commands.signal(request.Command, sig)
		} else {
			err = s.signalPrograms(sig)
		}
	}
	l.answer(packet.ID, nil, err)
}

// signalPrograms reaches every program on the desktop but the X server: a signal meant
// for the programs must not take the screen away from under them.
func (s *session) signalPrograms(sig unix.Signal) error {
	d := s.running()
	if d == nil {
		return errNoDesktop
	}
	pids, err := process.Descendants(os.Getpid())
	if err != nil {
		return fmt.Errorf("signal programs: %w", err)
	}
	for _, pid := range pids {
		if pid != d.XServerPID() {
			_ = unix.Kill(pid, sig) // one that has just ended is no failure
		}
	}
	return nil
}
