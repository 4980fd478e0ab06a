// SPDX-License-Identifier: MPL-2.0

package jobdiff

import (
	"maps"

	"github.com/hashicorp/nomad/api"
)

// part takes something out of a version that may not exist.
func part[T any](v *T, f func(*T) any) any {
	if v == nil {
		return nil
	}
	return f(v)
}

func jobFields(j *api.Job) map[string]string {
	if j == nil {
		return nil
	}
	out := flatten(map[string]any{
		"Name": j.Name, "Namespace": j.Namespace, "NodePool": j.NodePool, "Priority": j.Priority,
		"Region": j.Region, "Stop": j.Stop, "Type": j.Type,
	})
	return with(out, "Meta", j.Meta)
}

func groupFields(g *api.TaskGroup) map[string]string {
	if g == nil {
		return nil
	}
	return with(flatten(map[string]any{"Count": g.Count}), "Meta", g.Meta)
}

func taskFields(t *api.Task) map[string]string {
	if t == nil {
		return nil
	}
	out := flatten(map[string]any{
		"Driver": t.Driver, "KillTimeout": t.KillTimeout,
	})
	for name, value := range map[string]string{"User": t.User, "KillSignal": t.KillSignal} {
		if value != "" {
			out[name] = value
		}
	}
	return with(with(out, "Env", t.Env), "Meta", t.Meta)
}

func with(out map[string]string, name string, m map[string]string) map[string]string {
	for k, v := range m {
		out[name+"["+k+"]"] = v
	}
	return out
}

func datacenters(j *api.Job) []string {
	if j == nil {
		return nil
	}
	return j.Datacenters
}

func groups(j *api.Job) map[string]*api.TaskGroup {
	out := map[string]*api.TaskGroup{}
	if j != nil {
		for _, g := range j.TaskGroups {
			out[*g.Name] = g
		}
	}
	return out
}

func tasks(g *api.TaskGroup) map[string]*api.Task {
	out := map[string]*api.Task{}
	if g != nil {
		for _, t := range g.Tasks {
			out[t.Name] = t
		}
	}
	return out
}

func config(t *api.Task) map[string]string {
	if t == nil {
		return nil
	}
	return flatten(maps.Clone(t.Config))
}

func flattenAll[T any](list []T) []map[string]string {
	var out []map[string]string
	for _, one := range list {
		out = append(out, flatten(one))
	}
	return out
}

func constraints(j *api.Job) []map[string]string {
	if j == nil {
		return nil
	}
	return flattenAll(j.Constraints)
}

func groupConstraints(g *api.TaskGroup) []map[string]string {
	if g == nil {
		return nil
	}
	return flattenAll(g.Constraints)
}

func taskConstraints(t *api.Task) []map[string]string {
	if t == nil {
		return nil
	}
	return flattenAll(t.Constraints)
}

func networks(g *api.TaskGroup) []map[string]string {
	if g == nil {
		return nil
	}
	return flattenAll(g.Networks)
}

func templates(t *api.Task) []map[string]string {
	if t == nil {
		return nil
	}
	return flattenAll(t.Templates)
}
