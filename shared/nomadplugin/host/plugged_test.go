// SPDX-License-Identifier: MPL-2.0

package host

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
)

// plugged is a host on a scripted plugin.
type plugged struct {
	*testing.T
	options Options
	notes   string
}

func script(t *testing.T, text string) *plugged {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	// Short, because plugins put their sockets there.
	dir, err := os.MkdirTemp("", "nph")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	notes := dir + "/notes"
	return &plugged{T: t, notes: notes, options: Options{
		Path: self, Args: []string{scriptedFlag, text, notes}, Config: map[string]any{"n": 5},
		Logger: hclog.NewNullLogger(), StartTimeout: 10 * time.Second,
		pace: pace{launchMin: 20 * time.Millisecond, launchMax: 50 * time.Millisecond,
			stop: []time.Duration{30 * time.Millisecond, 40 * time.Millisecond, 50 * time.Millisecond}},
	}}
}

func (p *plugged) context() context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	p.Cleanup(cancel)
	return ctx
}

func (p *plugged) load() *Host {
	p.Helper()
	h, err := Load(p.context(), p.options)
	if err != nil {
		p.Fatal(err)
	}
	p.Cleanup(func() { _ = h.Close(p.context()) })
	return h
}

func (p *plugged) instance() *Instance {
	p.Helper()
	i, err := p.load().Instance(p.context())
	if err != nil {
		p.Fatal(err)
	}
	return i
}

// calls are the notes, with processes numbered in the order of their appearance.
func (p *plugged) calls() (calls []string) {
	p.Helper()
	data, err := os.ReadFile(p.notes)
	if err != nil {
		p.Fatal(err)
	}
	numbers := map[string]int{}
	for _, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
		pid, call, _ := strings.Cut(line, " ")
		if numbers[pid] == 0 {
			numbers[pid] = len(numbers) + 1
		}
		calls = append(calls, fmt.Sprintf("p%d %s", numbers[pid], call))
	}
	return calls
}
