// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// S8a, X36: a reader that does not read and a program that floods harm nobody;
// what is lost is counted.
func TestS8aLogNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		out := &gate{open: make(chan struct{})}
		l := newLogs(out, time.Now)
		line := strings.Repeat("x", 1000) + "\n"
		for range 3000 { // 3 MB in no time, nobody reads
			l.add("flood", line)
		}
		close(out.open)
		time.Sleep(2 * time.Second) // fake time: the bucket fills again
		l.add("late", "after\n")
		l.close()
		<-l.done
		text := out.b.String()
		if len(text) > maxBytesPerSec+2*maxLineBytes {
			t.Errorf("%d bytes passed in a second", len(text))
		}
		if !strings.Contains(text, "lines dropped\nlate: after\n") {
			t.Errorf("the loss is not counted: …%q", text[max(0, len(text)-200):])
		}
		if last := l.lastOf("flood"); len(last) != linesInMessages {
			t.Errorf("%d last lines kept, want %d", len(last), linesInMessages)
		}
	})
}

type gate struct {
	open chan struct{}
	b    bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	return g.b.Write(p)
}

func TestLogRateIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := newLogs(&out, time.Now)
		for range 100 {
			for range 100 {
				l.add("p", strings.Repeat("y", 1000)+"\n")
			}
			synctest.Wait() // the writer is never behind: only the rate drops
			time.Sleep(10 * time.Millisecond)
		}
		l.close()
		<-l.done
		if out.Len() > 2*maxBytesPerSec+100*maxLineBytes {
			t.Errorf("%d bytes in one second after a full bucket, want at most %d", out.Len(), 2*maxBytesPerSec)
		}
	})
}

func TestOverlongLineIsCut(t *testing.T) {
	l := newLogs(nil, time.Now)
	w, drained, err := l.pipe("p")
	must(t, err)
	_, err = w.WriteString(strings.Repeat("z", 3*maxLineBytes) + "\nnext\n")
	must(t, err)
	must(t, w.Close())
	<-drained
	lines := l.lastOf("p")
	if len(lines) != 2 || len(lines[0]) != maxLineBytes || lines[1] != "next" {
		t.Errorf("lines of %d bytes, want %d and then next", len(lines[0]), maxLineBytes)
	}
}

func TestRestartsAreBounded(t *testing.T) {
	b := restartBudget{limit: 2, window: time.Minute}
	start := time.Now()
	for i, step := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {time.Second, true}, {2 * time.Second, false}, {61 * time.Second, true}, {62 * time.Second, true}, {63 * time.Second, false}} {
		if got := b.take(start.Add(step.after)); got != step.want {
			t.Errorf("step %d: %v, want %v", i, got, step.want)
		}
	}
}
