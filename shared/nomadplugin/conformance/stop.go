// SPDX-License-Identifier: MPL-2.0

package conformance

import (
	"errors"
	"time"

	"github.com/botscreen/botscreen/shared/nomadplugin"
)

func (s *suite) stopChecks() {
	s.check("C50_ignored_signal", (*suite).checkStubborn)
	s.check("C50_no_time", (*suite).checkStopAtOnce)
	s.check("C50_own_signal", (*suite).checkStopSignal)
	s.check("C52_descendants", (*suite).checkDescendants)
	s.check("C53_destroy_by_force", (*suite).checkDestroyForce)
	s.check("C55_stats_end_with_the_task", (*suite).checkStatsEnd)
}

func (s *suite) checkStubborn() {
	if s.Stubborn == nil {
		s.Skip("the target has no Stubborn")
	}
	r := s.start(s.host, s.newAlloc(), s.Stubborn(s))
	s.checkLogText(r)
	const timeout = time.Second
	start := time.Now()
	s.must(r.on.StopTask(s.soon(), r.id, timeout, ""))
	if took := time.Since(start); took < timeout || took > timeout+s.StopTimeout {
		s.Errorf("stop took %v: want the timeout of %v and little more", took, timeout)
	}
	result := s.wait(r.on, r.id)
	wantCode, wantSignal := int32(137), int32(9)
	if s.EndsInOrder {
		wantCode, wantSignal = 0, 0
	}
	if result.GetExitCode() != wantCode || result.GetSignal() != wantSignal {
		s.Errorf("got %v: want code %d and signal %d", result, wantCode, wantSignal)
	}
	s.gone(r.mark)
}

func (s *suite) checkStopAtOnce() {
	r := s.start(s.host, s.newAlloc(), s.Runs(s))
	s.within(s.StopTimeout, "a stop without any time", func() { s.must(r.on.StopTask(s.soon(), r.id, 0, "")) })
	s.wait(r.on, r.id)
	s.gone(r.mark)
}

func (s *suite) checkStopSignal() {
	r := s.start(s.host, s.newAlloc(), s.Runs(s))
	s.within(s.StopTimeout+2*time.Second, "a stop with a signal", func() {
		s.must(r.on.StopTask(s.soon(), r.id, s.StopTimeout, "SIGINT"))
	})
	s.wait(r.on, r.id)
	s.gone(r.mark)
}

func (s *suite) checkDescendants() {
	if s.Descends == nil {
		s.Skip("the target has no Descends")
	}
	r := s.start(s.host, s.newAlloc(), s.Descends(s))
	s.eventually("descendants", func() bool { return len(marked(r.mark)) > 1 })
	s.must(r.on.StopTask(s.soon(), r.id, s.StopTimeout, ""))
	if left := marked(r.mark); len(left) > 0 {
		s.Errorf("after the stop there is still %d %s", left[0].PID, left[0].Command)
	}
}

func (s *suite) checkDestroyForce() {
	before := s.traces()
	r := s.start(s.host, s.newAlloc(), s.Runs(s))
	waited := make(chan error, 1)
	go func() {
		_, err := r.on.WaitTask(s.soon(), r.id)
		waited <- err
	}()
	s.must(r.on.DestroyTask(s.soon(), r.id, true))
	<-waited
	if left := marked(r.mark); len(left) > 0 {
		s.Errorf("after the destruction there is still %d %s", left[0].PID, left[0].Command)
	}
	if err := r.on.DestroyTask(s.soon(), r.id, true); !errors.Is(err, nomadplugin.ErrTaskNotFound) {
		s.Errorf("a second time: %v", err)
	}
	s.refused(r.id)
	s.unchanged(before)
}

func (s *suite) checkStatsEnd() {
	if s.NoStats {
		s.Skip("the driver has no statistics")
	}
	r := s.start(s.host, s.newAlloc(), s.Runs(s))
	first, ended := make(chan struct{}, 1), make(chan error, 1)
	go func() {
		ended <- r.on.TaskStats(s.soon(), r.id, time.Second, func(*nomadplugin.TaskStats) error {
			select {
			case first <- struct{}{}:
			default:
			}
			return nil
		})
	}()
	<-first
	s.must(r.on.StopTask(s.soon(), r.id, s.StopTimeout, ""))
	s.within(3*time.Second, "the end of the statistics of an ended task", func() {
		if err := <-ended; err != nil {
			s.Errorf("got %v: want a normal end", err)
		}
	})
}
