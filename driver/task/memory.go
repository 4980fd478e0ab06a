// SPDX-License-Identifier: MPL-2.0

package task

import (
	"context"
	"fmt"
	"time"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/control"
)

// memoryLook is how often a screen's memory is looked at: a few small files.
const memoryLook = 5 * time.Second

// Memory is short from tight per cent of the task's limit on, and not any more below loose.
const tightPercent, loosePercent = 90, 75

// stallPercent is for how much of ten seconds all programs of the screen wait for memory
// when it is worth a word, see the kernel's accounting/psi.
const stallPercent = 10

// watchMemory says in the task's events when the kernel has ended a program of the screen
// for memory, and when it is going to: otherwise a browser just vanishes.
func (t *Task) watchMemory(ctx context.Context) {
	t.mu.Lock()
	record := t.record
	t.mu.Unlock()
	group, err := isolation.GroupOf(record.Sandbox)
	if err != nil {
		t.m.log.Debug("the screen's memory is not watched", "profile", record.Profile, "error", err)
		return
	}
	w := memoryWatch{}
	w.kills, _ = group.OOMKills()
	ticker := time.NewTicker(memoryLook)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		sample, err := sampleMemory(group)
		if err != nil {
			continue // it is being removed, or the next look tells
		}
		for _, message := range w.look(sample) {
			t.mu.Lock()
			r, e := t.record, t.lease
			t.mu.Unlock()
			e.Name, e.State = control.EventMemory, t.state()
			t.m.publish(&r, message, e)
		}
	}
}

// memorySample is what a look sees.
type memorySample struct {
	kills      uint64 // processes ended for memory since the group was made
	used       uint64 // bytes that cannot be reclaimed
	limit      uint64 // bytes; 0 for none
	stallWhole int    // per cent of the last ten seconds in which nothing went on for want of memory
}

func sampleMemory(group *cgroup.Group) (memorySample, error) {
	kills, err := group.OOMKills()
	if err != nil {
		return memorySample{}, err
	}
	stats, err := group.Stats()
	if err != nil || stats.Memory == nil {
		return memorySample{}, err
	}
	return memorySample{
		kills: kills, used: stats.Memory.WorkingSet, limit: stats.Memory.Limit, stallWhole: group.MemoryStall(),
	}, nil
}

// memoryWatch remembers what has been said: each thing is said once, until it is over.
type memoryWatch struct {
	kills          uint64
	tight, stalled bool
}

func (w *memoryWatch) look(s memorySample) (messages []string) {
	if s.kills > w.kills {
		messages = append(messages, fmt.Sprintf("Out of memory: the kernel ended %s of the screen, which goes on%s. Give the task more `memory` or `memory_max`.",
			counted(s.kills-w.kills, "process", "processes"), limitWords(s.limit)))
	}
	w.kills = s.kills
	if s.limit > 0 {
		percent := int(s.used * 100 / s.limit)
		if percent >= tightPercent && !w.tight {
			messages = append(messages, fmt.Sprintf("Memory is getting short: %d of the task's %d MB are in use. At the limit the kernel ends programs of the screen, a browser first.",
				s.used>>20, s.limit>>20))
		}
		w.tight = percent >= tightPercent || w.tight && percent >= loosePercent
	}
	if s.stallWhole >= stallPercent && !w.stalled {
		messages = append(messages, fmt.Sprintf("The screen waits for memory: in %d %% of the last ten seconds none of its programs went on.", s.stallWhole))
	}
	w.stalled = s.stallWhole >= stallPercent || w.stalled && s.stallWhole > 0
	return messages
}

func counted(n uint64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func limitWords(bytes uint64) string {
	if bytes == 0 {
		return "; the node itself has too little"
	}
	return fmt.Sprintf("; the task's limit is %d MB", bytes>>20)
}
