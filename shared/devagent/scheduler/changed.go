// SPDX-License-Identifier: MPL-2.0

package scheduler

import (
	"encoding/json"
	"maps"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/taskenv"
)

// running is what a running group is made of: a change of any of it needs new
// processes. What is not here is changed in place.
type running struct {
	Networks []*api.NetworkResource
	DiskMB   int
	Tasks    map[string]runningTask
}

type runningTask struct {
	Driver, User string
	Config       map[string]any
	Env, Meta    map[string]string
	Templates    []*api.Template
	LogsOff      bool
	CPU, Cores   int
	Memory       int
	MemoryMax    int
}

// Destructive says whether going from one version of a job to another replaces the
// allocations of a group.
func Destructive(from, to *api.Job, group string) bool {
	a, b := from.LookupTaskGroup(group), to.LookupTaskGroup(group)
	if a == nil || b == nil {
		return true
	}
	// JSON, because configuration that came from a file and from the API differ in
	// the types of their numbers.
	left, errLeft := json.Marshal(describe(from, a))
	right, errRight := json.Marshal(describe(to, b))
	return errLeft != nil || errRight != nil || string(left) != string(right)
}

func describe(j *api.Job, g *api.TaskGroup) running {
	out := running{Networks: g.Networks, DiskMB: *g.EphemeralDisk.SizeMB, Tasks: map[string]runningTask{}}
	for _, t := range g.Tasks {
		out.Tasks[t.Name] = runningTask{
			Driver: t.Driver, User: t.User, Config: t.Config,
			Env: maps.Clone(t.Env), Meta: taskenv.Meta(j, g, t), Templates: t.Templates,
			LogsOff: t.LogConfig != nil && t.LogConfig.Disabled != nil && *t.LogConfig.Disabled,
			CPU:     value(t.Resources.CPU), Cores: value(t.Resources.Cores),
			Memory: value(t.Resources.MemoryMB), MemoryMax: value(t.Resources.MemoryMaxMB),
		}
	}
	return out
}

func value(p *int) int {
	if p == nil {
		return 0
	}
	return *p
}
