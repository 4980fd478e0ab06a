// SPDX-License-Identifier: MPL-2.0

package main

import (
	"errors"
	"sync"
	"time"

	"github.com/botscreen/botscreen/scripts/bench/pss"
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
		if w.PSS, err = pss.BelowMB(w.cmd.Process.Pid); err != nil {
			return err
		}
		b.print(w.sample)
	}
	return nil
}
