// SPDX-License-Identifier: MPL-2.0

// Package jobdiff says how two versions of a job differ, in the form of Nomad's plan
// call. Fields are flattened to text: Env[A], args[0].
package jobdiff

import (
	"cmp"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"

	"github.com/hashicorp/nomad/api"
)

// Kinds of a difference.
const (
	None    = "None"
	Added   = "Added"
	Deleted = "Deleted"
	Edited  = "Edited"
)

// What a change does to running allocations.
const (
	forcesCreate  = "forces create"
	forcesDestroy = "forces destroy"
	forcesReplace = "forces create/destroy update"
	forcesInPlace = "forces in-place update"
)

// Diff compares two versions; old is nil for a new job.
func Diff(old, new *api.Job) *api.JobDiff {
	d := &api.JobDiff{Type: Edited, ID: *new.ID}
	if old == nil {
		d.Type = Added
	}
	d.Fields = fields(jobFields(old), jobFields(new), false)
	d.Objects = slices.Concat(
		list("Datacenters", datacenters(old), datacenters(new)),
		sets("Constraint", constraints(old), constraints(new)),
	)
	for _, name := range names(groups(old), groups(new)) {
		if g := group(name, groups(old)[name], groups(new)[name]); g.Type != None {
			d.TaskGroups = append(d.TaskGroups, g)
		}
	}
	if old != nil && len(d.Fields)+len(d.Objects)+len(d.TaskGroups) == 0 {
		d.Type = None
	}
	return d
}

func group(name string, old, new *api.TaskGroup) *api.TaskGroupDiff {
	d := &api.TaskGroupDiff{Name: name}
	d.Fields = fields(groupFields(old), groupFields(new), false)
	for _, f := range d.Fields {
		if f.Name == "Count" {
			f.Annotations = countAnnotation(f)
		}
	}
	d.Objects = slices.Concat(
		object("RestartPolicy", part(old, func(g *api.TaskGroup) any { return g.RestartPolicy }), part(new, func(g *api.TaskGroup) any { return g.RestartPolicy })),
		object("ReschedulePolicy", part(old, func(g *api.TaskGroup) any { return g.ReschedulePolicy }), part(new, func(g *api.TaskGroup) any { return g.ReschedulePolicy })),
		object("EphemeralDisk", part(old, func(g *api.TaskGroup) any { return g.EphemeralDisk }), part(new, func(g *api.TaskGroup) any { return g.EphemeralDisk })),
		object("Update", part(old, func(g *api.TaskGroup) any { return g.Update }), part(new, func(g *api.TaskGroup) any { return g.Update })),
		sets("Constraint", groupConstraints(old), groupConstraints(new)),
		sets("Network", networks(old), networks(new)),
	)
	for _, name := range names(tasks(old), tasks(new)) {
		if t := task(name, tasks(old)[name], tasks(new)[name]); t.Type != None {
			d.Tasks = append(d.Tasks, t)
		}
	}
	d.Type = kind(old == nil, new == nil, len(d.Fields)+len(d.Objects)+len(d.Tasks) > 0)
	return d
}

func countAnnotation(f *api.FieldDiff) []string {
	before, _ := strconv.Atoi(f.Old)
	after, _ := strconv.Atoi(f.New)
	if after > before {
		return []string{forcesCreate}
	}
	return []string{forcesDestroy}
}

// inPlace are the fields of a task whose change needs no new process.
var inPlace = []string{"KillTimeout", "LogConfig", "Constraint", "RestartPolicy"}

func task(name string, old, new *api.Task) *api.TaskDiff {
	d := &api.TaskDiff{Name: name}
	d.Fields = fields(taskFields(old), taskFields(new), false)
	d.Objects = slices.Concat(
		flat("Config", config(old), config(new)),
		object("Resources", part(old, func(t *api.Task) any { return t.Resources }), part(new, func(t *api.Task) any { return t.Resources })),
		object("LogConfig", part(old, func(t *api.Task) any { return t.LogConfig }), part(new, func(t *api.Task) any { return t.LogConfig })),
		sets("Constraint", taskConstraints(old), taskConstraints(new)),
		sets("Template", templates(old), templates(new)),
	)
	d.Type = kind(old == nil, new == nil, len(d.Fields)+len(d.Objects) > 0)
	switch d.Type {
	case Added:
		d.Annotations = []string{forcesCreate}
	case Deleted:
		d.Annotations = []string{forcesDestroy}
	case Edited:
		d.Annotations = []string{forcesInPlace}
		for _, f := range d.Fields {
			if !slices.Contains(inPlace, f.Name) {
				d.Annotations = []string{forcesReplace}
			}
		}
		for _, o := range d.Objects {
			if !slices.Contains(inPlace, o.Name) {
				d.Annotations = []string{forcesReplace}
			}
		}
	}
	return d
}

func kind(noOld, noNew, changed bool) string {
	switch {
	case noOld:
		return Added
	case noNew:
		return Deleted
	case changed:
		return Edited
	}
	return None
}

// fields compares flattened fields; all also lists those that are equal.
func fields(old, new map[string]string, all bool) []*api.FieldDiff {
	var out []*api.FieldDiff
	for _, name := range names(old, new) {
		before, had := old[name]
		after, has := new[name]
		f := &api.FieldDiff{Name: name, Old: before, New: after, Type: Edited}
		switch {
		case before == after:
			f.Type = None
			if !all {
				continue
			}
		case !had:
			f.Type = Added
		case !has:
			f.Type = Deleted
		}
		out = append(out, f)
	}
	return out
}

// object compares two structs as one part; nil is none.
func object(name string, old, new any) []*api.ObjectDiff {
	return flat(name, flatten(old), flatten(new))
}

func flat(name string, old, new map[string]string) []*api.ObjectDiff {
	if maps.Equal(old, new) {
		return nil
	}
	return []*api.ObjectDiff{{
		Name: name, Type: kind(len(old) == 0, len(new) == 0, true), Fields: fields(old, new, len(old) > 0 && len(new) > 0),
	}}
}

// list compares two lists of text as sets.
func list(name string, old, new []string) []*api.ObjectDiff {
	d := &api.ObjectDiff{Name: name}
	for _, v := range slices.Sorted(slices.Values(old)) {
		if !slices.Contains(new, v) {
			d.Fields = append(d.Fields, &api.FieldDiff{Type: Deleted, Name: name, Old: v})
		}
	}
	for _, v := range slices.Sorted(slices.Values(new)) {
		if !slices.Contains(old, v) {
			d.Fields = append(d.Fields, &api.FieldDiff{Type: Added, Name: name, New: v})
		}
	}
	if len(d.Fields) == 0 {
		return nil
	}
	d.Type = kind(len(old) == 0, len(new) == 0, true)
	return []*api.ObjectDiff{d}
}

// sets compares two lists of parts that have no names: what is in one only.
func sets(name string, old, new []map[string]string) []*api.ObjectDiff {
	var out []*api.ObjectDiff
	in := func(list []map[string]string, one map[string]string) bool {
		return slices.ContainsFunc(list, func(o map[string]string) bool { return maps.Equal(o, one) })
	}
	for _, o := range old {
		if !in(new, o) {
			out = append(out, &api.ObjectDiff{Type: Deleted, Name: name, Fields: fields(o, nil, false)})
		}
	}
	for _, n := range new {
		if !in(old, n) {
			out = append(out, &api.ObjectDiff{Type: Added, Name: name, Fields: fields(nil, n, false)})
		}
	}
	return out
}

// names are the keys of both maps, in order.
func names[V any](a, b map[string]V) []string {
	all := slices.Collect(maps.Keys(a))
	for k := range b {
		if _, both := a[k]; !both {
			all = append(all, k)
		}
	}
	slices.SortFunc(all, cmp.Compare[string])
	return all
}

// flatten writes a struct, map or list as text by path.
func flatten(v any) map[string]string {
	out := map[string]string{}
	into(out, "", reflect.ValueOf(v))
	return out
}

func into(out map[string]string, at string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Invalid:
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			into(out, at, v.Elem())
		}
	case reflect.Struct:
		for i := range v.NumField() {
			if f := v.Type().Field(i); f.IsExported() {
				into(out, join(at, f.Name), v.Field(i))
			}
		}
	case reflect.Map:
		for _, k := range v.MapKeys() {
			path := fmt.Sprint(k)
			if at != "" {
				path = fmt.Sprintf("%s[%v]", at, k)
			}
			into(out, path, v.MapIndex(k))
		}
	case reflect.Slice, reflect.Array:
		for i := range v.Len() {
			into(out, fmt.Sprintf("%s[%d]", at, i), v.Index(i))
		}
	default:
		out[at] = scalar(v)
	}
}

func join(at, name string) string {
	if at == "" {
		return name
	}
	return at + "." + name
}

// scalar writes a number the same whether it came as an int or through JSON.
func scalar(v reflect.Value) string {
	switch {
	case v.CanInt():
		return strconv.FormatInt(v.Int(), 10)
	case v.CanFloat():
		return strconv.FormatFloat(v.Float(), 'f', -1, 64)
	}
	return fmt.Sprint(v.Interface())
}
