// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// DOC-01: a child that is waited for takes no thread of ours, which a screen that is full of
// processes would not have. Go never gives one back, so those that were needed are there in
// the end.
func TestDOC01ChildrenTakeNoThreads(t *testing.T) {
	const children = 64
	reaper, before := NewReaper(), threads(t)
	var waiting, over sync.WaitGroup
	var started []*exec.Cmd
	for i := range children {
		cmd := exec.Command("sh", "-c", "read line; exit "+strconv.Itoa(i))
		input, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := reaper.Start(cmd); err != nil {
			t.Fatal(err)
		}
		started = append(started, cmd)
		waiting.Add(1)
		over.Go(func() {
			waiting.Done()
			_ = reaper.Wait(cmd) // its status comes as an error
		})
		defer input.Close()
	}
	waiting.Wait()
	for _, cmd := range started {
		if err := cmd.Process.Signal(os.Kill); err != nil {
			t.Error(err)
		}
	}
	over.Wait()
	for i, cmd := range started {
		if code := cmd.ProcessState.ExitCode(); code != -1 {
			t.Errorf("child %d ended with %d, want its signal", i, code)
		}
	}
	if after := threads(t); after > before+children/4 {
		t.Errorf("%d threads became %d while %d children were waited for", before, after, children)
	}
}

// threads is how many this process has, see proc(5).
func threads(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "\nThreads:\t")
	text, _, _ := strings.Cut(rest, "\n")
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	return n
}
