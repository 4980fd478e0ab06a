// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/nomadjob"
	"github.com/botscreen/botscreen/shared/screen"
)

// end stops every job, ends the agent and looks for what is left.
func (a *agent) end(t *testing.T) {
	t.Helper()
	if a.cmd != nil {
		if !a.guest && a.api != nil {
			a.stopJobs(t, func(string) bool { return true })
		}
		a.terminate()
	}
	for pid, words := range a.processes() {
		t.Errorf("the agent has ended and left process %d: %s", pid, words)
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	a.unmount()
}

func (a *agent) terminate() {
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-a.done:
	case <-time.After(20 * time.Second):
		_ = a.cmd.Process.Kill()
		<-a.done
	}
	a.cmd = nil
}

// stopJobs ends the jobs with such names and waits for the end of what they run.
func (a *agent) stopJobs(t *testing.T, which func(id string) bool) {
	t.Helper()
	jobs, _, err := a.api.Jobs().List(nil)
	if err != nil {
		return // of an agent without jobs, or one that a test has killed
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, j := range jobs {
		if !which(j.ID) {
			continue
		}
		if err := nomadjob.Stop(ctx, a.api, j.Namespace, j.ID, true); err != nil {
			t.Error(err)
		}
	}
}

// processes are those of the agent and its screens by pid: its directory is in their words
// or in their environment.
func (a *agent) processes() map[int]string {
	found := map[int]string{}
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		words, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		environ, _ := os.ReadFile(filepath.Join("/proc", e.Name(), "environ")) // empty for a zombie
		if bytes.Contains(words, []byte(a.dir+"/")) || bytes.Contains(environ, []byte(a.dir+"/")) {
			found[pid] = strings.ReplaceAll(string(words), "\x00", " ")
		}
	}
	return found
}

// ended expects that nothing of a bot's screen runs on an agent: a destroy has waited for it.
func (b *bench) ended(a *agent, profile string) {
	b.Helper()
	run := filepath.Join(a.dir, "run", screen.ID{Namespace: "default", Profile: screen.Profile(profile)}.Hash())
	for pid, words := range a.processes() {
		if strings.Contains(words, run) {
			b.Errorf("the screen of %s still runs process %d: %s", profile, pid, words)
		}
	}
}

// unmount takes away what Nomad mounted for its allocations: it keeps them until it
// collects an allocation, long after the test.
func (a *agent) unmount() {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return
	}
	for line := range strings.Lines(string(mounts)) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], a.dir+"/") {
			_ = syscall.Unmount(fields[4], syscall.MNT_DETACH)
		}
	}
}
