// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// adopt takes over a session whose supervisor died, once its hello shows what runs.
func (s *supervisor) adopt(ctx context.Context) {
	wasFrozen := s.thawToAdopt()
	late := time.NewTimer(adoptLimit)
	defer late.Stop()
	for {
		select {
		case d := <-s.adopted:
			err := s.adoptDesktop(ctx, d)
			switch {
			case err != nil && ctx.Err() == nil:
				s.failStart(err)
			case err == nil && wasFrozen:
				s.freezeAgain()
			}
			return
		case <-late.C:
			reason := fmt.Sprintf("the session has not shown its desktop to the new supervisor within %s", adoptLimit)
			s.log.Error(reason, "pid", s.config.Session.PID)
			s.enter(screen.Starting, control.EventState, reason)
		case <-s.link.done():
			return
		}
	}
}

// adoptDesktop accepts the desktop only with the X server that this run's record names:
// a session cannot show another one (P10a).
func (s *supervisor) adoptDesktop(ctx context.Context, d dialhome.Desktop) error {
	s.mu.Lock()
	known := s.record
	s.mu.Unlock()
	switch {
	case d.State == dialhome.Idle && known.Asleep:
		s.enter(screen.Asleep, control.EventAsleep, "")
		go s.giveBack()
		return nil
	case d.State == dialhome.Idle && !known.Ready:
		return errors.New("the start was interrupted before the desktop began")
	case !known.Ready:
		return s.becomeReady(ctx, d)
	case s.config.SharedPIDs && d.XServer() != known.XServer:
		return fmt.Errorf("the session shows another X server (pid %d) than this screen's (pid %d)", d.XPID, known.XServer.PID)
	case !known.XServer.Alive():
		return errors.New("this screen's X server has ended")
	}
	s.mu.Lock()
	if d.Fence != nil {
		s.fence = fenceOf(*d.Fence)
	}
	s.keepBrowser(d)
	s.mu.Unlock()
	s.enter(screen.Ready, control.EventReady, "")
	s.wipeClipboard() // the last supervisor may have died before it could
	go s.giveBack()
	return nil
}

// onHello passes on what an adopted session shows. While a start runs there is nothing
// to see yet; another hello follows.
func (s *supervisor) onHello(d dialhome.Desktop) {
	s.catchUp(d)
	if !s.adopting || d.State == dialhome.Starting || d.State == dialhome.Dozing || d.State == dialhome.Ended {
		return
	}
	select {
	case s.adopted <- d:
	default: // one is enough
	}
}

// catchUp hears from a session that has connected again what it reported to nobody.
func (s *supervisor) catchUp(d dialhome.Desktop) {
	s.mu.Lock()
	ready := s.state == screen.Ready
	s.mu.Unlock()
	if !ready || d.State != dialhome.Running {
		return
	}
	if d.Fence != nil {
		s.onFence(fenceOf(*d.Fence))
	}
	if d.Browser != nil {
		s.onBrowser(*d.Browser)
	}
}

// serverBehind is the process at the other end of a connection to the X server, which
// knows itself as pid inside.
func serverBehind(fd, inside int) (process.Identity, error) {
	if err := checkStream(fd); err != nil {
		return process.Identity{}, fmt.Errorf("identify X server: %w", err)
	}
	pid, err := peerOf(fd)
	if err == nil && (pid <= 0 || pid == os.Getpid()) {
		err = errors.New("nobody is at the other end")
	}
	var id process.Identity
	if err == nil {
		id, err = process.Observe(pid)
	}
	if err == nil && innermostPID(pid) != inside {
		err = fmt.Errorf("pid %d there is not pid %d of the session's", pid, inside)
	}
	if err != nil {
		return process.Identity{}, fmt.Errorf("identify X server: %w", err)
	}
	return id, nil
}

// innermostPID is the last number of the NSpid line of proc_pid_status(5): the
// process' pid in its own namespace. 0 where the kernel does not say.
func innermostPID(pid int) int {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(status)) {
		if numbers, ok := strings.CutPrefix(line, "NSpid:"); ok {
			fields := strings.Fields(numbers)
			if len(fields) == 0 {
				return 0
			}
			inner, err := strconv.Atoi(fields[len(fields)-1])
			if err != nil {
				return 0
			}
			return inner
		}
	}
	return 0
}
