// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// Figures of Debian's websockify where it is not installed, recorded on the same machine
// kind.
const (
	websockifyMBs   = 815
	websockifyCPU   = 0.97
	websockifyP50US = 184
	websockifyP99US = 404
)

// transport measures targets 6 and 7: the picture's way through the relay, with gate,
// lease and a holder, over a WebSocket.
func (b *bench) transport(runs int) ([]row, error) {
	lines, err := b.relaybench("transport", strconv.Itoa(runs))
	if err != nil {
		return nil, err
	}
	type figures struct{ rate, cpu, p50, p99 []float64 }
	all := map[string]*figures{}
	for _, line := range lines {
		var s struct {
			Subject string  `json:"subject"`
			Rate    float64 `json:"mb_per_s"`
			CPU     float64 `json:"cpu_s_per_gb"`
			P50     float64 `json:"p50_us"`
			P99     float64 `json:"p99_us"`
		}
		if err := json.Unmarshal(line, &s); err != nil {
			return nil, err
		}
		if all[s.Subject] == nil {
			all[s.Subject] = &figures{}
		}
		f := all[s.Subject]
		f.rate, f.cpu, f.p50, f.p99 = append(f.rate, s.Rate), append(f.cpu, s.CPU), append(f.p50, s.P50), append(f.p99, s.P99)
	}
	direct, bare, ours, other := all["direct"], all["bare"], all["relay"], all["websockify"]
	const loop, daemon = ", beside a bare loop over the same library", ", beside websockify"
	rows := []row{
		beside(6, "relay over WebSocket, bytes"+loop, "MB/s", ours.rate, bare.rate).atLeast(0.95),
		beside(6, "relay over WebSocket, CPU"+loop, "s/GB", ours.cpu, bare.cpu).atMost(1.10),
		beside(6, "relay over WebSocket, round trip p50 added"+loop, "us", less(ours.p50, direct.p50), less(bare.p50, direct.p50)),
		beside(6, "relay over WebSocket, round trip p99 added"+loop, "us", less(ours.p99, direct.p99), less(bare.p99, direct.p99)),
	}
	compare := beside
	if other == nil {
		same := func(v float64) []float64 { return []float64{v} }
		other = &figures{same(websockifyMBs), same(websockifyCPU), same(websockifyP50US), same(websockifyP99US)}
		compare = func(target int, name, unit string, ours, recorded []float64) row {
			return besideRecorded(target, name, unit, ours, recorded[0])
		}
	}
	return append(rows,
		compare(7, "relay over WebSocket, bytes"+daemon, "MB/s", ours.rate, other.rate).atLeast(1.25),
		compare(7, "relay over WebSocket, CPU"+daemon, "s/GB", ours.cpu, other.cpu).atMost(0.75),
		compare(7, "relay over WebSocket, round trip p50"+daemon, "us", ours.p50, other.p50).atMost(1),
		compare(7, "relay over WebSocket, round trip p99"+daemon, "us", ours.p99, other.p99).atMost(1),
	), nil
}

// less is what a way adds to the direct one, run by run.
func less(through, direct []float64) []float64 {
	added := make([]float64, len(through))
	for i := range added {
		added[i] = through[i] - direct[i]
	}
	return added
}

// gate measures target 8: what viewers send, parsed and judged message by message.
func (b *bench) gate(runs int) ([]row, error) {
	lines, err := b.relaybench("gate", strconv.Itoa(runs))
	if err != nil {
		return nil, err
	}
	passed, copied, allocs := map[string][]float64{}, map[string][]float64{}, []float64{}
	for _, line := range lines {
		var s struct {
			Subject, Stream string
			Rate            float64 `json:"gb_per_s"`
			Allocs          float64 `json:"allocs_per_message"`
		}
		if err := json.Unmarshal(line, &s); err != nil {
			return nil, err
		}
		if s.Subject == "copy" {
			copied[s.Stream] = append(copied[s.Stream], s.Rate)
			continue
		}
		passed[s.Stream] = append(passed[s.Stream], s.Rate)
		allocs = append(allocs, s.Allocs)
	}
	var rows []row
	for _, stream := range []string{"session", "requests", "pointer"} {
		rows = append(rows, beside(8, "gate, "+gateNames[stream]+", beside a memory copy", "GB/s", passed[stream], copied[stream]).over(1))
	}
	// The connection itself takes some hundred, of millions of messages.
	return append(rows, alone(8, "gate, allocations per message", "", allocs).under(0.001)), nil
}

var gateNames = map[string]string{
	"session":  "what a watching viewer sends",
	"requests": "requests for pixels only",
	"pointer":  "pointer messages only",
}

// relaybench runs the program of that name and returns its lines.
func (b *bench) relaybench(args ...string) ([][]byte, error) {
	program, err := b.build("relaybench")
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(program, args...)
	cmd.Env = append(os.Environ(), "TMPDIR="+b.dir)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("relaybench %s: %w", args[0], err)
	}
	var lines [][]byte
	for scanner := bufio.NewScanner(strings.NewReader(string(out))); scanner.Scan(); {
		lines = append(lines, []byte(scanner.Text()))
	}
	return lines, nil
}
