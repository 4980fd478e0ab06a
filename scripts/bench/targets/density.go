// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/botscreen/botscreen/scripts/bench/pss"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/rfb"
	"github.com/botscreen/botscreen/shared/screen"
)

const (
	// fewScreens and manyScreens are what targets 13 and 14 start at once.
	fewScreens, manyScreens = 20, 70
	firstUngated            = 2000            // display numbers of what runs without the driver
	settle                  = 4 * time.Second // until a desktop at rest is measured, as the references were
)

// sleeper measures targets 11 and 15 on one screen: what its supervisor takes, running and
// asleep, a wake beside a start of the same screen, and how soon a frozen one shows itself.
func (b *bench) sleeper(runs int) ([]row, error) {
	var awake, asleep, starts, wakes []float64
	for i := range runs {
		took, end, err := b.startScreen(2000 + i)
		if err != nil {
			return nil, err
		}
		s, err := b.measureSleeper(float64(took) / float64(time.Millisecond))
		if err := errors.Join(err, end()); err != nil {
			return nil, err
		}
		starts, wakes = append(starts, s.start), append(wakes, s.wake)
		awake, asleep = append(awake, s.awake), append(asleep, s.asleep)
	}
	thaws, err := b.thaws(runs)
	if err != nil {
		return nil, err
	}
	return []row{
		alone(11, "supervisor of a running screen (PSS)", "MB", awake).under(12),
		alone(11, "supervisor of a sleeping screen (PSS)", "MB", asleep).under(8),
		beside(15, "wake to ready, beside a start", "ms", wakes, starts).atMost(1.0),
		alone(15, "thaw from frozen to a viewer's first picture", "ms", thaws).under(50),
	}, nil
}

// thaws measures the first picture of a frozen desktop, which has to go on for it: from a
// viewer's call until the whole picture is there.
func (b *bench) thaws(runs int) (times []float64, err error) {
	_, end, err := b.startScreenIn(2900, map[string]any{"isolation": "host", "idle_action": "freeze"})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, end()) }()
	op, err := b.operator()
	if err != nil {
		return nil, err
	}
	client := control.NewClient(control.Unix(op))
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for range runs {
		time.Sleep(settle)
		if err := client.Sleep(ctx); err != nil {
			return nil, err
		}
		status, err := client.Status(ctx)
		if err != nil {
			return nil, err
		}
		if status.State != screen.Frozen {
			return nil, fmt.Errorf("it is %s, not frozen", status.State)
		}
		time.Sleep(settle)
		began := time.Now()
		if err := firstPicture(ctx, client); err != nil {
			return nil, err
		}
		times = append(times, float64(time.Since(began))/float64(time.Millisecond))
	}
	return times, nil
}

// firstPicture is that of a new viewer.
func firstPicture(ctx context.Context, client *control.Client) error {
	conn, err := client.Stream(ctx, control.CallTunnel, url.Values{"command": {control.CommandRFB}}, nil)
	if err != nil {
		return err
	}
	if err := control.OpenTunnel(ctx, conn, control.Hello{Viewer: "bench", Mode: control.Watch}); err != nil {
		_ = conn.Close()
		return err
	}
	viewer, err := rfb.Connect(ctx, conn, rfb.Options{})
	if err != nil {
		return err
	}
	defer viewer.Close()
	_, err = viewer.Screenshot(ctx)
	return err
}

type sleeperFigures struct{ start, wake, awake, asleep float64 }

func (b *bench) measureSleeper(start float64) (f sleeperFigures, err error) {
	f.start = start
	op, err := b.operator()
	if err != nil {
		return f, err
	}
	client := control.NewClient(control.Unix(op))
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	supervisors := b.processes("supervise")
	if len(supervisors) != 1 {
		return f, fmt.Errorf("%d supervisors", len(supervisors))
	}
	time.Sleep(settle)
	if f.awake, err = pss.MB(supervisors[0]); err != nil {
		return f, err
	}
	if err := client.Sleep(ctx); err != nil {
		return f, err
	}
	time.Sleep(settle)
	if f.asleep, err = pss.MB(supervisors[0]); err != nil {
		return f, err
	}
	began := time.Now()
	err = client.Wake(ctx)
	f.wake = float64(time.Since(began)) / float64(time.Millisecond)
	return f, err
}

// operators are the operator's sockets of the screens there are.
func (b *bench) operators() ([]string, error) {
	return filepath.Glob(filepath.Join(b.dir, "run", "*", "op"))
}

// operator is that of the one screen there is.
func (b *bench) operator() (string, error) {
	ops, err := b.operators()
	if err == nil && len(ops) != 1 {
		err = fmt.Errorf("%d operator sockets, want one", len(ops))
	}
	if err != nil {
		return "", err
	}
	return ops[0], nil
}

// processes are the bench's own with this as their first argument.
func (b *bench) processes(word string) (pids []int) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		line, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		words := strings.Split(string(line), "\x00")
		if err == nil && len(words) > 1 && words[1] == word && strings.HasPrefix(words[0], b.dir+"/") {
			pids = append(pids, pid)
		}
	}
	return pids
}

// crowd measures target 13, twenty screens at once beside the same programs without a
// gate, and target 14, as many as a node shall carry.
func (b *bench) crowd(int) ([]row, error) {
	deskwatch, err := b.build("deskwatch")
	if err != nil {
		return nil, err
	}
	var awake, asleep float64
	few, err := b.startAtOnce(3000, fewScreens, func() (err error) {
		awake, asleep, err = b.supervisorsMB()
		return err
	})
	if err != nil {
		return nil, err
	}
	loop, err := atOnce(deskwatch, bestScript, fewScreens)
	if err != nil {
		return nil, err
	}
	ungated, err := atOnce(deskwatch, "ours", fewScreens)
	if err != nil {
		return nil, err
	}
	var each float64
	many, err := b.startAtOnce(4000, manyScreens, func() error {
		time.Sleep(settle)
		var err error
		each, err = b.desktopMB(manyScreens)
		return err
	})
	if err != nil {
		return nil, err
	}
	bare, err := atOnce(deskwatch, bestScript, manyScreens)
	if err != nil {
		return nil, err
	}
	last := func(times []float64) []float64 { return []float64{slices.Max(times)} }
	middle := func(times []float64) []float64 { return []float64{median(times)} }
	some, all := fmt.Sprintf("%d screens at once", fewScreens), fmt.Sprintf("%d screens at once", manyScreens)
	return []row{
		beside(13, some+": the last, beside a bare loop of the best script", "ms", last(few), last(loop.ready)).atMost(0.6),
		beside(13, some+": the median, beside the same", "ms", middle(few), middle(loop.ready)).atMost(0.4),
		beside(13, some+": the last, beside our own start alone, ungated", "ms", last(few), last(ungated.ready)),
		beside(13, some+": the median, beside the same", "ms", middle(few), middle(ungated.ready)),
		alone(11, fmt.Sprintf("supervisor of a running screen, of %d (PSS)", fewScreens), "MB", []float64{awake}).under(12),
		alone(11, fmt.Sprintf("supervisor of a sleeping screen, of %d (PSS)", fewScreens), "MB", []float64{asleep}).under(8),
		beside(14, all+": the last is ready, beside a bare loop of the best script", "ms", last(many), last(bare.ready)),
		beside(14, all+": the median, beside the same", "ms", middle(many), middle(bare.ready)),
		beside(14, all+": memory of one desktop (PSS), beside the same", "MB", []float64{each}, middle(bare.pss)).under(55),
	}, nil
}

// startAtOnce starts screens at the same moment and returns when each was ready, which all
// have to be, on displays of their own. While they run, during is called; then they end,
// and nothing of them may be left.
func (b *bench) startAtOnce(first, count int, during func() error) (times []float64, err error) {
	times = make([]float64, count)
	ends, failed := make([]func() error, count), make([]error, count)
	var all sync.WaitGroup
	for i := range count {
		all.Go(func() {
			// Without a floor: the promises of seventy starts pass what any node has free.
			took, end, err := b.startScreenIn(first+i, map[string]any{"isolation": "host", "min_free_memory_mb": 0})
			times[i], ends[i], failed[i] = float64(took)/float64(time.Millisecond), end, err
		})
	}
	all.Wait()
	defer func() {
		for _, end := range ends {
			if end != nil {
				err = errors.Join(err, end())
			}
		}
		if left := append(b.processes("session"), b.processes("supervise")...); err == nil && len(left) > 0 {
			err = fmt.Errorf("left after the stop: %v", left)
		}
	}()
	if err := errors.Join(failed...); err != nil {
		return nil, err
	}
	if n, err := b.displays(); err != nil || n != count {
		return nil, fmt.Errorf("%d screens have %d displays, %w", count, n, err)
	}
	if during != nil {
		return times, during()
	}
	return times, nil
}

// supervisorsMB is what a supervisor takes among as many as there are, each with a screen
// that runs, and then with one that sleeps. What all share is counted once.
func (b *bench) supervisorsMB() (awake, asleep float64, err error) {
	time.Sleep(settle)
	if awake, err = b.meanMB("supervise"); err != nil {
		return 0, 0, err
	}
	ops, err := b.operators()
	if err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, op := range ops {
		client := control.NewClient(control.Unix(op))
		err := client.Sleep(ctx)
		client.Close()
		if err != nil {
			return 0, 0, err
		}
	}
	time.Sleep(settle)
	asleep, err = b.meanMB("supervise")
	return awake, asleep, err
}

// meanMB is what one of the bench's processes with this as their first argument takes.
func (b *bench) meanMB(word string) (float64, error) {
	pids := b.processes(word)
	if len(pids) == 0 {
		return 0, fmt.Errorf("no process is a %s", word)
	}
	total := 0.0
	for _, pid := range pids {
		mb, err := pss.MB(pid)
		if err != nil {
			return 0, err
		}
		total += mb
	}
	return total / float64(len(pids)), nil
}

// displays counts the different ones that screens have.
func (b *bench) displays() (int, error) {
	ops, err := b.operators()
	if err != nil {
		return 0, err
	}
	different := map[string]bool{}
	for _, op := range ops {
		client := control.NewClient(control.Unix(op))
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		status, err := client.Status(ctx)
		cancel()
		client.Close()
		if err != nil {
			return 0, err
		}
		different[status.Display] = true
	}
	return len(different), nil
}

// desktopMB is what the programs of one desktop take, shared pages counted once.
func (b *bench) desktopMB(count int) (float64, error) {
	total := 0.0
	for _, session := range b.processes("session") {
		mb, err := pss.BelowMB(session)
		if err != nil {
			return 0, err
		}
		total += mb
	}
	return total / float64(count), nil
}

// crowdFigures are of desktops that a loop without driver and gate has started at once.
type crowdFigures struct {
	ready []float64 // ms from the start of the first one
	pss   []float64 // MB
}

// atOnce starts so many desktops of a subject of deskwatch.
func atOnce(deskwatch, subject string, count int) (f crowdFigures, err error) {
	cmd := exec.Command(deskwatch, "-at-once", strconv.Itoa(count), "-settle", settle.String(), "-json", "-display", strconv.Itoa(firstUngated), subject)
	samples, err := readWatch(cmd)
	for _, s := range samples {
		f.ready, f.pss = append(f.ready, s.Ready), append(f.pss, s.PSS)
	}
	if err == nil && len(samples) != count {
		err = fmt.Errorf("deskwatch: %d of %d desktops", len(samples), count)
	}
	return f, err
}
