// SPDX-License-Identifier: MPL-2.0

package plugin

import (
	"bufio"
	"errors"
	"fmt"
	"math"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
)

// busy is a group with a process that works until its input ends.
type busy struct {
	t     *testing.T
	group *cgroup.Group
	pid   int
	lines *bufio.Scanner
}

func newBusy(t *testing.T) *busy {
	t.Helper()
	tree, err := cgroup.Open(cgroup.Host{}, "")
	var unavailable *cgroup.UnavailableError
	if errors.As(err, &unavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	group, err := tree.Create(fmt.Sprintf("stats-%d", os.Getpid()), cgroup.Limits{})
	if errors.As(err, &unavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	// It waits, so that all that it uses is counted in the group; keeps a text, and says now and
	// then that it works.
	cmd := osexec.Command("sh", "-c", `read go; x=$(head -c 16M /dev/zero | tr "\\0" a); while :; do i=0; while [ $i -lt 200000 ]; do i=$((i+1)); done; echo; done`)
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if err := group.Remove(); err != nil {
			t.Error(err)
		}
	})
	if err := group.Add(cmd.Process.Pid); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fprintln(in, "go"); err != nil {
		t.Fatal(err)
	}
	return &busy{t: t, group: group, pid: cmd.Process.Pid, lines: bufio.NewScanner(out)}
}

// work waits until the process has worked for so long, by its own time.
func (b *busy) work(d time.Duration) {
	b.t.Helper()
	for until := b.own() + d; b.own() < until; {
		if !b.lines.Scan() {
			b.t.Fatal("the process has ended")
		}
	}
}

// own is what the kernel says of the process: fields 14 and 15 of /proc/<pid>/stat, in
// ticks of a hundredth of a second.
func (b *busy) own() time.Duration {
	b.t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", b.pid))
	if err != nil {
		b.t.Fatal(err)
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, err1 := strconv.Atoi(fields[11])
	system, err2 := strconv.Atoi(fields[12])
	if err := errors.Join(err1, err2); err != nil {
		b.t.Fatal(err)
	}
	return time.Duration(user+system) * 10 * time.Millisecond
}

// counter reads one of the kernel's own figures of the group, by the file's name in either
// version and the key in it.
func (b *busy) counter(file, key string) (float64, bool) {
	b.t.Helper()
	for _, dir := range b.group.Dirs() {
		text, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			continue
		}
		if key != "" {
			n, ok := cgroup.ParseFlat(text)[key]
			return float64(n), ok
		}
		n, err := strconv.ParseFloat(strings.TrimSpace(string(text)), 64)
		return n, err == nil
	}
	return 0, false
}

// used is the group's processor time by the kernel's own word.
func (b *busy) used() time.Duration {
	if ns, ok := b.counter("cpuacct.usage", ""); ok {
		return time.Duration(ns)
	}
	us, ok := b.counter("cpu.stat", "usage_usec")
	if !ok {
		b.t.Skip("this node does not count processor time")
	}
	return time.Duration(us) * time.Microsecond
}

// Issue 7, N3: what Nomad hears of a task agrees with the kernel's own counters within 5 %,
// for the task and for each of its processes.
func TestN3StatsAgreeWithTheKernel(t *testing.T) {
	b := newBusy(t)
	s := sampler{mhz: 2000, pids: map[int]cpuReading{}}
	b.work(100 * time.Millisecond)
	read := func() (isolation.Usage, time.Time, time.Duration, time.Duration) {
		t.Helper()
		used, own := b.used(), b.own()
		usage, err := isolation.GroupUsage(b.group)
		if err != nil {
			t.Fatal(err)
		}
		return usage, time.Now(), used, own
	}
	usage, first, usedBefore, ownBefore := read()
	s.sample(usage, first)
	b.work(1500 * time.Millisecond)
	usage, second, usedAfter, ownAfter := read()
	stats := s.sample(usage, second)
	elapsed := second.Sub(first)

	agree := func(what string, ours, kernels float64) {
		t.Helper()
		if kernels == 0 || math.Abs(ours/kernels-1) > 0.05 {
			t.Errorf("%s: %.0f, the kernel says %.0f", what, ours, kernels)
		}
	}
	cpu := stats.AggResourceUsage.Cpu
	agree("processor time", cpu.Percent/100*float64(elapsed), float64(usedAfter-usedBefore))
	agree("user and system", cpu.UserMode+cpu.SystemMode, cpu.Percent)
	agree("ticks", cpu.TotalTicks, cpu.Percent/100*2000)
	process := stats.ResourceUsageByPid[strconv.Itoa(b.pid)]
	if process == nil {
		t.Fatalf("nothing of pid %d in %v", b.pid, stats.ResourceUsageByPid)
	}
	agree("the process' time", process.Cpu.Percent/100*float64(elapsed), float64(ownAfter-ownBefore))

	if usage, ok := b.counter("memory.usage_in_bytes", ""); ok {
		rss, _ := b.counter("memory.stat", "total_rss")
		agree("memory", float64(stats.AggResourceUsage.Memory.Usage), usage)
		agree("resident memory", float64(stats.AggResourceUsage.Memory.Rss), rss)
	} else if usage, ok := b.counter("memory.current", ""); ok {
		anon, _ := b.counter("memory.stat", "anon")
		agree("memory", float64(stats.AggResourceUsage.Memory.Usage), usage)
		agree("resident memory", float64(stats.AggResourceUsage.Memory.Rss), anon)
	}
	if fields, err := os.ReadFile(fmt.Sprintf("/proc/%d/statm", b.pid)); err == nil {
		pages, _ := strconv.Atoi(strings.Fields(string(fields))[1])
		agree("the process' memory", float64(process.Memory.Rss), float64(pages*os.Getpagesize()))
	}
}
