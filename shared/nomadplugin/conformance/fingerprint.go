// SPDX-License-Identifier: MPL-2.0

package conformance

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/botscreen/botscreen/shared/nomadplugin"
)

func (s *suite) fingerprintChecks() {
	s.check("C34_first_at_once", (*suite).checkFirstFingerprint)
	s.check("C35_stays_open", (*suite).checkFingerprintStream)
	s.check("C36_transitions", (*suite).checkTransitions)
	s.check("C57_events_stay_open", (*suite).checkEventStream)
}

// fingerprints collects from a stream. stop ends it after it had the given time to end by itself, and
// returns how it ended.
func (s *suite) fingerprints() (prints <-chan *nomadplugin.Fingerprint, stop func(after time.Duration) error) {
	i := s.instance(s.host)
	ctx, cancel := context.WithCancel(context.Background())
	s.Cleanup(cancel)
	out, ended := make(chan *nomadplugin.Fingerprint, 64), make(chan error, 1)
	go func() {
		ended <- i.Fingerprint(ctx, func(f *nomadplugin.Fingerprint) error {
			out <- f
			return nil
		})
	}()
	return out, func(after time.Duration) error {
		select {
		case err := <-ended:
			return fmt.Errorf("ended by itself: %w", err)
		case <-time.After(after):
		}
		cancel()
		select {
		case err := <-ended:
			return err
		case <-time.After(patience):
			return errors.New("does not end")
		}
	}
}

func (s *suite) next(prints <-chan *nomadplugin.Fingerprint) *nomadplugin.Fingerprint {
	s.Helper()
	select {
	case f := <-prints:
		return f
	case <-time.After(patience):
		s.Fatal("no fingerprint")
		return nil
	}
}

func (s *suite) checkFirstFingerprint() {
	var f *nomadplugin.Fingerprint
	s.instance(s.host)
	s.within(s.ProbeDeadline, "the first fingerprint", func() {
		prints, _ := s.fingerprints()
		f = s.next(prints)
	})
	if f.GetHealthDescription() == "" {
		s.Error("no health description")
	}
	prefix := "driver." + s.Driver
	for name := range f.GetAttributes() {
		if name != prefix && !strings.HasPrefix(name, prefix+".") {
			s.Errorf("attribute %q is outside of %s.", name, prefix)
		}
	}
}

func (s *suite) checkFingerprintStream() {
	first, stopFirst := s.fingerprints()
	second, stopSecond := s.fingerprints()
	s.next(first)
	s.next(second)
	const open = 1500 * time.Millisecond
	s.within(open+time.Second, "the end of the stream", func() {
		if err := stopFirst(open); !errors.Is(err, context.Canceled) {
			s.Error(err)
		}
	})
	s.within(time.Second, "the end of the stream", func() {
		if err := stopSecond(0); !errors.Is(err, context.Canceled) {
			s.Error(err)
		}
	})
}

func (s *suite) checkTransitions() {
	if s.Degrade == nil {
		s.Skip("the target has no Degrade")
	}
	prints, _ := s.fingerprints()
	until := func(healthy bool) string {
		for {
			f := s.next(prints)
			if (f.GetHealth() == nomadplugin.Healthy) == healthy {
				return f.GetHealthDescription()
			}
		}
	}
	was := until(true)
	restore := s.Degrade(s)
	if ill := until(false); ill == "" || ill == was {
		s.Errorf("description %q does not say why", ill)
	}
	restore()
	until(true)
}

func (s *suite) checkEventStream() {
	i := s.instance(s.host)
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	err := i.TaskEvents(ctx, func(*nomadplugin.TaskEvent) error { return nil })
	if !errors.Is(err, context.DeadlineExceeded) {
		s.Errorf("the stream ended by itself: %v", err)
	}
}
