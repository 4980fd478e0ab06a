// SPDX-License-Identifier: MPL-2.0

package jobdiff

import (
	"encoding/json"
	"testing"

	"github.com/hashicorp/nomad/api"
)

func job(edit func(*api.Job)) *api.Job {
	id, group := "j", "g"
	j := &api.Job{ID: &id, TaskGroups: []*api.TaskGroup{{
		Name: &group, Tasks: []*api.Task{{Name: "t", Driver: "d", Config: map[string]any{"args": []any{"1000"}, "command": "x", "n": 3}}},
	}}}
	if edit != nil {
		edit(j)
	}
	j.Canonicalize()
	return j
}

func TestSameJobHasNoDifference(t *testing.T) {
	a := job(nil)
	text, _ := json.Marshal(a)
	var b api.Job
	if err := json.Unmarshal(text, &b); err != nil {
		t.Fatal(err)
	}
	if d := Diff(a, &b); d.Type != None {
		out, _ := json.Marshal(d)
		t.Errorf("got %s", out)
	}
}

func TestNewJobIsAdded(t *testing.T) {
	d := Diff(nil, job(nil))
	if d.Type != Added || d.TaskGroups[0].Type != Added || d.TaskGroups[0].Tasks[0].Annotations[0] != "forces create" {
		t.Errorf("got %+v", d)
	}
}

// The words and the shape are those that Nomad 2.0.5 gave for the same edit.
func TestEditedTask(t *testing.T) {
	memory := 60
	d := Diff(job(nil), job(func(j *api.Job) {
		task := j.TaskGroups[0].Tasks[0]
		task.Env = map[string]string{"A": "b"}
		task.Config = map[string]any{"args": []any{"2000"}, "command": "x", "n": 3}
		task.Resources = &api.Resources{MemoryMB: &memory}
	}))
	if d.Type != Edited || len(d.Fields) != 0 || len(d.TaskGroups) != 1 {
		t.Fatalf("got %+v", d)
	}
	task := d.TaskGroups[0].Tasks[0]
	if task.Type != Edited || task.Annotations[0] != "forces create/destroy update" {
		t.Errorf("task: %+v", task)
	}
	if f := task.Fields; len(f) != 1 || f[0].Type != Added || f[0].Name != "Env[A]" || f[0].New != "b" {
		t.Errorf("fields: %+v", f)
	}
	config := task.Objects[0]
	if config.Name != "Config" || config.Type != Edited {
		t.Fatalf("config: %+v", config)
	}
	want := map[string][3]string{"args[0]": {Edited, "1000", "2000"}, "command": {None, "x", "x"}, "n": {None, "3", "3"}}
	for _, f := range config.Fields {
		if got := [3]string{f.Type, f.Old, f.New}; got != want[f.Name] {
			t.Errorf("%s: got %v, want %v", f.Name, got, want[f.Name])
		}
	}
	if len(config.Fields) != len(want) {
		t.Errorf("%d fields, want %d", len(config.Fields), len(want))
	}
}

func TestCountAndInPlace(t *testing.T) {
	two := 2
	d := Diff(job(nil), job(func(j *api.Job) { j.TaskGroups[0].Count = &two }))
	if f := d.TaskGroups[0].Fields[0]; f.Name != "Count" || f.Annotations[0] != "forces create" {
		t.Errorf("count up: %+v", f)
	}
	d = Diff(job(func(j *api.Job) { j.TaskGroups[0].Count = &two }), job(nil))
	if f := d.TaskGroups[0].Fields[0]; f.Annotations[0] != "forces destroy" {
		t.Errorf("count down: %+v", f)
	}
	files := 3
	d = Diff(job(nil), job(func(j *api.Job) { j.TaskGroups[0].Tasks[0].LogConfig = &api.LogConfig{MaxFiles: &files} }))
	if got := d.TaskGroups[0].Tasks[0].Annotations[0]; got != "forces in-place update" {
		t.Errorf("logs: %s", got)
	}
}
