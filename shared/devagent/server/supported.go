// SPDX-License-Identifier: MPL-2.0

package server

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// A job that comes as JSON may ask for anything that Nomad knows. What this agent
// does not run is refused by name; a field that holds what Nomad fills in by itself
// (a job that was read from the API and is sent back) is not a request.

// known are the fields that the agent runs, or that only a server writes.
var known = map[string][]string{
	"Job": {
		"Region", "Namespace", "ID", "Name", "Type", "Priority", "Datacenters", "NodePool", "Constraints", "TaskGroups",
		"Update", "Reschedule", "Meta", "Stop", "Dispatched", "ConsulNamespace", "VaultNamespace", "NomadTokenID",
		"Status", "StatusDescription", "Stable", "Version", "SubmitTime", "CreateIndex", "ModifyIndex", "JobModifyIndex",
		"VersionTag", "UI",
	},
	"TaskGroup": {"Name", "Count", "Constraints", "Tasks", "RestartPolicy", "ReschedulePolicy", "Update", "Networks", "Meta"},
	"Task": {
		"Name", "Driver", "User", "Config", "Constraints", "Env", "Resources", "RestartPolicy", "Meta", "KillTimeout",
		"LogConfig", "Templates", "KillSignal",
	},
	"Resources":       {"CPU", "Cores", "MemoryMB", "MemoryMaxMB"},
	"NetworkResource": {"Mode", "ReservedPorts", "DynamicPorts"},
	"Port":            {"Label", "Value", "To"},
	"LogConfig":       {"MaxFiles", "MaxFileSizeMB", "Disabled", "Enabled"},
	"Template": {
		"DestPath", "EmbeddedTmpl", "ChangeMode", "ChangeSignal", "Splay", "Perms", "LeftDelim", "RightDelim", "Envvars",
		"ErrMissingKey",
	},
}

// defaults are jobs with nothing but what Nomad fills in, to compare with.
func defaults(jobType *string) *api.Job {
	id := "x"
	job := &api.Job{ID: &id, Type: jobType, TaskGroups: []*api.TaskGroup{{
		Name: &id, Tasks: []*api.Task{{Name: id, Templates: []*api.Template{{}}}},
		Networks: []*api.NetworkResource{{}},
	}}}
	job.Canonicalize()
	return job
}

// unsupported names everything in a submitted job that this agent does not run.
func unsupported(job *api.Job) []string {
	kind := api.JobTypeService
	if job.Type != nil && slices.Contains(jobTypes, *job.Type) {
		kind = *job.Type
	}
	d := defaults(&kind)
	var out faults
	compare(&out, "job", job, d)
	for _, g := range job.TaskGroups {
		if g == nil {
			out.add("a group is null")
			continue
		}
		where := fmt.Sprintf("group %q", text(g.Name))
		compare(&out, where, g, d.TaskGroups[0])
		for _, n := range g.Networks {
			compare(&out, where+" network", n, d.TaskGroups[0].Networks[0])
			for _, p := range slices.Concat(n.ReservedPorts, n.DynamicPorts) {
				compare(&out, where+" port "+p.Label, &p, &api.Port{HostNetwork: "default"})
			}
		}
		for _, t := range g.Tasks {
			if t == nil {
				out.add("a task of %s is null", where)
				continue
			}
			compareTask(&out, fmt.Sprintf("%s task %q", where, t.Name), t, d.TaskGroups[0].Tasks[0])
		}
	}
	return out
}

func compareTask(out *faults, where string, t, d *api.Task) {
	compare(out, where, t, d)
	if t.Resources != nil {
		compare(out, where+" resources", t.Resources, d.Resources)
	}
	if t.LogConfig != nil {
		compare(out, where+" logs", t.LogConfig, d.LogConfig)
	}
	for _, one := range t.Templates {
		compare(out, where+" template", one, d.Templates[0])
	}
}

// compare names the fields of v that are set, differ from the default and are not
// known.
func compare(out *faults, where string, v, d any) {
	value, standard := reflect.ValueOf(v), reflect.ValueOf(d)
	if value.Kind() != reflect.Pointer || value.IsNil() {
		return
	}
	value, standard = value.Elem(), standard.Elem()
	for i := range value.NumField() {
		f := value.Type().Field(i)
		if slices.Contains(known[value.Type().Name()], f.Name) || blank(value.Field(i)) {
			continue
		}
		if reflect.DeepEqual(value.Field(i).Interface(), standard.Field(i).Interface()) {
			continue
		}
		out.add("the embedded agent does not run %q in %s", word(f), where)
	}
}

// blank says whether a field asks for nothing: empty, or a pointer to something
// empty.
func blank(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return v.IsNil() || blank(v.Elem())
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() && !blank(v.Field(i)) {
				return false
			}
		}
		return true
	}
	return v.IsZero()
}

// word is the name of a field in a job file.
func word(f reflect.StructField) string {
	if tag, _, _ := strings.Cut(f.Tag.Get("hcl"), ","); tag != "" {
		return tag
	}
	return f.Name
}

func text(p *string) string {
	if p == nil {
		return ""
	}
	return *p
}
