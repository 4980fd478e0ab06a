// SPDX-License-Identifier: MPL-2.0

package client

import (
	"slices"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/shared/devagent/state"
	"github.com/botscreen/botscreen/shared/nomadplugin"
)

// A plugin that an earlier agent has left may speak before this one has looked at its
// allocations: what it says is kept until then, in its order.
func TestEventBeforeTheFirstLook(t *testing.T) {
	store, err := state.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	c, err := New(Config{Store: store, AllocDir: t.TempDir(), StateDir: t.TempDir(), Log: hclog.NewNullLogger()})
	if err != nil {
		t.Fatal(err)
	}
	say := func(text string) { c.Event(&nomadplugin.TaskEvent{AllocId: "a", TaskName: "t", Message: text}) }
	say("one")
	say("two")
	runner := &allocRunner{report: make(chan struct{}, 1)}
	task := &taskRunner{alloc: runner, name: "t"}
	runner.tasks = map[string]*taskRunner{"t": task}
	c.allocs["a"] = runner
	c.fileEarly()
	say("three")
	var got []string
	for _, e := range task.snapshot().Events {
		got = append(got, e.DriverMessage)
	}
	if !slices.Equal(got, []string{"one", "two", "three"}) {
		t.Errorf("filed %q", got)
	}
}
