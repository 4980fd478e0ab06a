// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/control"
)

// takeovers is how many changes of hands one run measures.
const takeovers = 100

// screen measures targets 9 and 16 on one running screen.
func (b *bench) screen(runs int) ([]row, error) {
	_, end, err := b.startScreen(1000)
	if err != nil {
		return nil, err
	}
	defer func() { _ = end() }()
	op, err := b.operator()
	if err != nil {
		return nil, err
	}
	program, err := b.build("relaybench")
	if err != nil {
		return nil, err
	}
	s := &runningScreen{program: program, op: op, dir: b.dir}
	rows, err := s.takeovers(runs)
	if err != nil {
		return nil, err
	}
	row, err := s.thumbnails(runs)
	return append(rows, row), err
}

// runningScreen is a screen of ours and the program that calls it.
type runningScreen struct{ program, op, dir string }

// probe is a process that calls the screen without end.
type probe struct {
	cmd   *exec.Cmd
	turns *json.Decoder
}

// turn is one time its calls began to be refused, or admitted.
type turn struct {
	Refused bool  `json:"refused"`
	At      int64 `json:"at_ns"`
}

func (s *runningScreen) probe(kind string) (*probe, error) {
	cmd := exec.Command(s.program, "probe", s.op, kind)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &probe{cmd, json.NewDecoder(bufio.NewReader(out))}, cmd.Start()
}

func (p *probe) await(refused bool) (at int64, err error) {
	var t turn
	if err := p.turns.Decode(&t); err != nil {
		return 0, fmt.Errorf("a probe ended: %w", err)
	}
	if t.Refused != refused {
		return 0, errors.New("a probe missed a change of hands")
	}
	return t.At, nil
}

func (p *probe) stop() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

// takeovers measures target 9: from a person's call that takes the screen until the last
// of four processes of the agent has been refused. A fifth asks who has control, which it
// hears once the lease is on disk. On an idle node two act a thousand times a second and
// two wait for the picture to change; where they take pictures without a pause instead,
// the cores are busy already.
func (s *runningScreen) takeovers(runs int) ([]row, error) {
	idle, err := s.takeoverTimes(runs, "input", "input", "watch", "watch", "lease")
	if err != nil {
		return nil, err
	}
	looking := []string{"input", "input", "screenshot", "screenshot", "lease"}
	eager, err := s.takeoverTimes(runs, looking...)
	if err != nil {
		return nil, err
	}
	stop, err := s.burn(2 * runtime.NumCPU())
	if err != nil {
		return nil, err
	}
	defer stop()
	busy, err := s.takeoverTimes(runs, looking...)
	if err != nil {
		return nil, err
	}
	return []row{
		alone(9, "takeover until four processes are refused, p99 of a run", "ms", idle.refused).under(5),
		alone(9, "takeover until the lease says so, on disk, p99", "ms", idle.known),
		alone(9, "refused while two of them look without a pause, p99", "ms", eager.refused),
		alone(9, "refused beside a busy loop for each core, twice, p99", "ms", busy.refused).under(250),
		alone(9, "the lease says so, beside the same, p99", "ms", busy.known),
	}, nil
}

// takeoverTimes are milliseconds: of each run the p99 until everybody is refused, and
// until the new lease is known.
type takeoverTimes struct{ refused, known []float64 }

func (s *runningScreen) takeoverTimes(runs int, kinds ...string) (all takeoverTimes, err error) {
	var probes []*probe
	defer func() {
		for _, p := range probes {
			p.stop()
		}
	}()
	for _, kind := range kinds {
		p, err := s.probe(kind)
		if err != nil {
			return all, err
		}
		probes = append(probes, p)
	}
	client := control.NewClient(control.Unix(s.op))
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	for range runs {
		var one takeoverTimes
		for range takeovers {
			refused, known, err := s.takeover(ctx, client, probes)
			if err != nil {
				return all, err
			}
			one.refused = append(one.refused, refused)
			one.known = append(one.known, known)
		}
		all.refused = append(all.refused, p99(one.refused))
		all.known = append(all.known, p99(one.known))
	}
	return all, nil
}

func p99(times []float64) float64 {
	slices.Sort(times)
	return times[len(times)*99/100]
}

// takeover gives, in milliseconds, how long it took until the last of all but the last
// probe was refused, and until the last one knew.
func (s *runningScreen) takeover(ctx context.Context, client *control.Client, probes []*probe) (refused, known float64, err error) {
	if _, err := client.Release(ctx, control.ReleaseRequest{Viewer: "bench"}); err != nil {
		return 0, 0, err
	}
	for _, p := range probes {
		if _, err := p.await(false); err != nil {
			return 0, 0, err
		}
	}
	begin := monotonic()
	if _, err := client.Take(ctx, control.TakeRequest{Viewer: "bench"}); err != nil {
		return 0, 0, err
	}
	for i, p := range probes {
		at, err := p.await(true)
		if err != nil {
			return 0, 0, err
		}
		took := float64(at-begin) / float64(time.Millisecond)
		if i == len(probes)-1 {
			known = took
		} else {
			refused = max(refused, took)
		}
	}
	return refused, known, nil
}

func monotonic() int64 {
	var t unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t)
	return t.Nano()
}

// burn keeps the cores busy until stop.
func (s *runningScreen) burn(n int) (stop func(), err error) {
	var all []*exec.Cmd
	stop = func() {
		for _, cmd := range all {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
	for range n {
		cmd := exec.Command("sh", "-c", "while :; do :; done")
		if err := cmd.Start(); err != nil {
			stop()
			return nil, err
		}
		all = append(all, cmd)
	}
	return stop, nil
}

// thumbnails measures target 16: a small picture of the same screen, each by a process
// of its own.
func (s *runningScreen) thumbnails(runs int) (row, error) {
	client := control.NewClient(control.Unix(s.op))
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if _, err := client.Release(ctx, control.ReleaseRequest{Viewer: "bench"}); err != nil {
		return row{}, err
	}
	status, err := client.Status(ctx)
	if err != nil {
		return row{}, err
	}
	file := filepath.Join(s.dir, "thumbnail.jpg")
	imported := exec.Command("import", "-display", status.Display, "-window", "root", "-resize", "960x600!", "-quality", "72", file)
	imported.Env = append(os.Environ(), "XAUTHORITY="+filepath.Join(filepath.Dir(s.op), "x", "Xauthority"))
	var ours, theirs []float64
	for range runs + 1 {
		mine, err := timed(exec.Command(s.program, "thumbnail", s.op, file))
		if err != nil {
			return row{}, err
		}
		other := *imported
		its, err := timed(&other)
		if err != nil {
			return row{}, err
		}
		ours, theirs = append(ours, mine), append(theirs, its)
	}
	// The first pair warms the page cache.
	return beside(16, "thumbnail 960x600 q72, beside import -resize", "ms", ours[1:], theirs[1:]).atMost(0.33), nil
}

func timed(cmd *exec.Cmd) (milliseconds float64, err error) {
	begin := time.Now()
	out, err := cmd.CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return float64(time.Since(begin)) / float64(time.Millisecond), nil
}
