// SPDX-License-Identifier: MPL-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/botscreen/botscreen/driver/process"
)

// crowd starts many desktops one after the other without waiting for any, as a loop in a
// script does. All times count from the start of the first one. When all are ready and have
// settled, their memory is measured, and all end.
func (b *bench) crowd(subject string) (err error) {
	var all []*watched
	defer func() {
		err = errors.Join(err, stopTrees(all...))
		for _, w := range all {
			w.remove()
		}
	}()
	began := time.Now()
	failed := make([]error, b.atOnce)
	var watching sync.WaitGroup
	for i := range b.atOnce {
		w, err := b.begin(subject, i)
		if err != nil {
			failed[i] = err
			break
		}
		all = append(all, w)
		// As many questions a second as one desktop gets: they are not what is measured.
		watching.Go(func() { failed[i] = b.watch(w, began, time.Duration(b.atOnce)*firstTick) })
	}
	watching.Wait()
	if err := errors.Join(failed...); err != nil {
		return err
	}
	time.Sleep(b.settle)
	for _, w := range all {
		w.CPU = cpuBelow(w.cmd.Process.Pid)
		if w.PSS, err = pssBelow(w.cmd.Process.Pid); err != nil {
			return err
		}
		b.print(w.sample)
	}
	return nil
}

// pssBelow is the memory of all processes below one, in MB, each shared page by its part; see
// proc_pid_smaps_rollup(5).
func pssBelow(root int) (float64, error) {
	below, err := process.Descendants(root)
	if err != nil {
		return 0, err
	}
	total := 0.0
	for _, pid := range below {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
		if err != nil {
			continue // it has ended
		}
		for line := range strings.Lines(string(text)) {
			if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "Pss:" {
				kb, err := strconv.ParseFloat(fields[1], 64)
				if err != nil {
					return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
				}
				total += kb / 1000
			}
		}
	}
	return total, nil
}
