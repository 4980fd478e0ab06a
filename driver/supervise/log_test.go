// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/botscreen/botscreen/shared/control"
)

// X36: the log is 0600, is put aside when it is full, also while it is written, and
// exists twice at the most.
func TestX36Log(t *testing.T) {
	path := t.TempDir()
	dir, err := os.OpenRoot(path)
	must(t, err)
	defer dir.Close()
	l := &logFile{dir: dir, most: 1000}
	line := strings.Repeat("x", 99) + "\n"
	for range 35 {
		_, err := l.Write([]byte(line))
		must(t, err)
	}
	again := &logFile{dir: dir, most: 1000} // the next supervisor goes on in it
	_, _ = again.Write([]byte(line))
	entries, err := os.ReadDir(path)
	must(t, err)
	if len(entries) != 2 {
		t.Errorf("%d files", len(entries))
	}
	for name, want := range map[string]int64{logName: 600, logName + ".1": 1000} {
		info, err := os.Stat(filepath.Join(path, name))
		must(t, err)
		if info.Size() != want || info.Mode().Perm() != 0o600 {
			t.Errorf("%s has %d bytes and mode %v, want %d", name, info.Size(), info.Mode(), want)
		}
	}
}

// A log that cannot be written ends nothing, and a line longer than the whole log is
// left out.
func TestLogWithoutRoom(t *testing.T) {
	path := t.TempDir()
	dir, err := os.OpenRoot(path)
	must(t, err)
	defer dir.Close()
	must(t, dir.Mkdir(logName, 0o700)) // in its place
	for _, l := range []*logFile{{dir: dir, most: 10}, {dir: dir, most: 1000}} {
		if n, err := l.Write([]byte("0123456789abcdef")); n != 16 || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
	}
}

func TestX12Requests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBucket(requestsPerSecond, requestBurst)
		began := time.Now()
		for range requestBurst {
			must(t, b.wait(t.Context()))
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("the burst took %s", took)
		}
		for range 3 * requestsPerSecond {
			must(t, b.wait(t.Context()))
		}
		if took := time.Since(began); took < 2900*time.Millisecond || took > 3200*time.Millisecond {
			t.Errorf("60 more at 20 a second took %s", took)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := b.wait(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a caller that leaves hears %v", err)
		}
		time.Sleep(time.Hour) // in the bubble: it refills to the burst, no further
		taken := 0
		for b.take(time.Now()) {
			taken++
		}
		if taken != requestBurst {
			t.Errorf("%d at once after an hour", taken)
		}
	})
}

func TestJournal(t *testing.T) {
	j := newJournal(1000)
	if events, _ := j.after(0); events != nil {
		t.Errorf("a new journal holds %v", events)
	}
	_, changed := j.after(0)
	for range keptEvents + 10 {
		j.add(control.Event{Name: control.EventState})
	}
	select {
	case <-changed:
	default:
		t.Error("nobody was woken")
	}
	events, _ := j.after(0)
	if len(events) != keptEvents || events[0].Seq != 1011 || events[len(events)-1].Seq != 1000+keptEvents+10 {
		t.Errorf("%d events from %d", len(events), events[0].Seq)
	}
	if events, _ := j.after(1000 + keptEvents + 9); len(events) != 1 {
		t.Errorf("%d events after the last but one", len(events))
	}
	if events, _ := j.after(1 << 60); events != nil {
		t.Errorf("%d events after all", len(events))
	}
}
