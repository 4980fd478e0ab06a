// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"
	"unicode"
)

// Bounds on what programs of the desktop write (rules S8, S8a, X36).
const (
	maxLineBytes    = 4096    // longer lines are cut
	maxBytesPerSec  = 1 << 20 // over all programs together
	keptLines       = 60
	queuedLines     = 256 // lines waiting for a slow Options.Log
	linesInMessages = 10  // last lines in an error
)

// logs drains the output of every program, keeps its last lines and passes the
// rest on as fast as the rate and Options.Log allow. A program never waits for
// it: 64 KiB of unread output would freeze the X server.
type logs struct {
	queue chan string
	done  chan struct{} // closed when the writer has ended
	now   func() time.Time

	mu      sync.Mutex // guards the rest
	ring    []logLine
	budget  float64 // bytes that may pass now
	filled  time.Time
	dropped int
	closed  bool
}

type logLine struct {
	program, text string
	at            time.Time
}

func newLogs(out io.Writer, now func() time.Time) *logs {
	l := &logs{
		queue: make(chan string, queuedLines), done: make(chan struct{}),
		now: now, budget: maxBytesPerSec, filled: now(),
	}
	go l.write(out)
	return l
}

// write is the only goroutine that Options.Log can block.
func (l *logs) write(out io.Writer) {
	defer close(l.done)
	for line := range l.queue {
		if out != nil {
			_, _ = io.WriteString(out, line) // a log that cannot be written harms nobody
		}
	}
}

// pipe returns a new pipe end for the output of a program. The caller closes it
// when the program has started. Reading ends, and drained is closed, when the
// last process that inherited the pipe is gone.
func (l *logs) pipe(program string) (w *os.File, drained <-chan struct{}, err error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("open log pipe of %s: %w", program, err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.drain(program, r)
	}()
	return w, ended, nil
}

func (l *logs) drain(program string, r io.ReadCloser) {
	defer r.Close()
	in := bufio.NewReaderSize(r, maxLineBytes)
	for {
		line, err := in.ReadSlice('\n')
		l.add(program, string(line))
		for errors.Is(err, bufio.ErrBufferFull) { // the rest of an overlong line
			_, err = in.ReadSlice('\n')
		}
		if err != nil {
			return
		}
	}
}

// add takes one line of a program's output. Empty lines carry nothing.
func (l *logs) add(program, raw string) {
	text := cleanLine(raw)
	if text == "" {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	l.ring = append(l.ring, logLine{program, text, l.now()})
	if len(l.ring) > keptLines {
		l.ring = append(l.ring[:0], l.ring[len(l.ring)-keptLines:]...)
	}
	if !l.spend(len(raw)) {
		l.dropped++
		return
	}
	if l.dropped > 0 && l.enqueue(fmt.Sprintf("botscreen: %d lines dropped\n", l.dropped)) {
		l.dropped = 0
	}
	if !l.enqueue(program + ": " + text + "\n") {
		l.dropped++
	}
}

// spend takes bytes from a bucket that refills by maxBytesPerSec and holds one
// second's worth.
func (l *logs) spend(bytes int) bool {
	now := l.now()
	l.budget = min(maxBytesPerSec, l.budget+now.Sub(l.filled).Seconds()*maxBytesPerSec)
	l.filled = now
	if float64(bytes) > l.budget {
		return false
	}
	l.budget -= float64(bytes)
	return true
}

func (l *logs) enqueue(line string) bool {
	select {
	case l.queue <- line:
		return true
	default:
		return false
	}
}

// last returns the last lines, of one program or, for "", of all.
func (l *logs) last(program string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for _, line := range l.ring {
		switch program {
		case "":
			lines = append(lines, line.program+": "+line.text)
		case line.program:
			lines = append(lines, line.text)
		}
	}
	return lines
}

// lastOf returns the few last lines of one program for an error.
func (l *logs) lastOf(program string) []string {
	lines := l.last(program)
	return lines[max(0, len(lines)-linesInMessages):]
}

// lastSince returns the few last lines that one program wrote since then.
func (l *logs) lastSince(program string, since time.Time) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var lines []string
	for _, line := range l.ring {
		if line.program == program && !line.at.Before(since) {
			lines = append(lines, line.text)
		}
	}
	return lines[max(0, len(lines)-linesInMessages):]
}

// close ends the log; lines that come later are dropped. It does not wait for
// a writer that is stuck in Options.Log.
func (l *logs) close() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.closed {
		l.closed = true
		close(l.queue)
	}
}

// cleanLine makes a line from a program fit for a terminal: the programs are
// not trusted, so control and bidirectional-override characters go.
func cleanLine(raw string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\t':
			return ' '
		case unicode.IsControl(r), unicode.Is(unicode.Bidi_Control, r), r == unicode.ReplacementChar:
			return -1
		}
		return r
	}, strings.TrimRight(raw, "\r\n "))
}
