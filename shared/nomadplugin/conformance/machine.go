// SPDX-License-Identifier: MPL-2.0

package conformance

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Process is a process of a task.
type Process struct {
	PID, Parent int
	UID         int
	// Command is the whole command line, for people.
	Command string
	Env     []string
}

// marked is every live process whose environment carries the mark.
func marked(mark string) (found []Process) {
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		environ, err := os.ReadFile(filepath.Join(dir, "environ"))
		if err != nil || !bytes.Contains(environ, []byte(mark)) {
			continue
		}
		if process, ok := readProcess(dir); ok {
			process.Env = strings.Split(strings.TrimRight(string(environ), "\x00"), "\x00")
			found = append(found, process)
		}
	}
	slices.SortFunc(found, func(a, b Process) int { return a.PID - b.PID })
	return found
}

// readProcess is false for a process that is gone or only waits to be reaped.
func readProcess(dir string) (Process, bool) {
	status, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return Process{}, false
	}
	field := func(name string) string {
		_, rest, _ := strings.Cut(string(status), "\n"+name+":")
		value, _, _ := strings.Cut(rest, "\n")
		first, _, _ := strings.Cut(strings.TrimSpace(value), "\t")
		return first
	}
	if state := field("State"); state == "" || state[0] == 'Z' || state[0] == 'X' {
		return Process{}, false
	}
	command, _ := os.ReadFile(filepath.Join(dir, "cmdline"))
	number := func(text string) int { n, _ := strconv.Atoi(text); return n }
	return Process{
		PID: number(filepath.Base(dir)), Parent: number(field("PPid")), UID: number(field("Uid")),
		Command: strings.TrimSpace(strings.ReplaceAll(string(command), "\x00", " ")),
	}, true
}

// roots counts the processes whose parent is not among them.
func roots(processes []Process) (count int) {
	for _, process := range processes {
		if !slices.ContainsFunc(processes, func(p Process) bool { return p.PID == process.Parent }) {
			count++
		}
	}
	return count
}

func alive(pid int) bool {
	_, ok := readProcess("/proc/" + strconv.Itoa(pid))
	return ok
}

// descriptors counts the open files of a process.
func descriptors(pid int) int {
	entries, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/fd")
	return len(entries)
}

func uuid() string {
	var b [16]byte
	_, _ = rand.Read(b[:])
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
}

// logReader collects what a task writes into its log, like the agent's log monitor: a FIFO with mode
// 0600 that is read until the last writer is gone.
type logReader struct {
	mu   sync.Mutex // guards data
	data bytes.Buffer
	file *os.File
}

func (s *suite) newLog(a *alloc, stream string) *logReader {
	s.Helper()
	path := a.fifo(stream)
	s.must(syscall.Mkfifo(path, 0o600))
	// Read and write, so that neither opening nor reading depends on a writer being there.
	file, err := os.OpenFile(path, os.O_RDWR|syscall.O_NONBLOCK, 0)
	s.must(err)
	reader := &logReader{file: file}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(reader, file)
	}()
	s.Cleanup(func() {
		_ = file.Close()
		<-done
	})
	return reader
}

func (l *logReader) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.data.Write(p)
}

func (l *logReader) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.data.String()
}

// interval reports whether a duration is within a fifth of another, on a machine with other work.
func interval(got, want time.Duration) bool {
	return got > want*8/10 && got < want*12/10+300*time.Millisecond
}
