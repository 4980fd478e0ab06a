// SPDX-License-Identifier: MPL-2.0

package server

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/template"
)

// faults collects what is wrong; each is a line of its own.
type faults []string

func (f *faults) add(format string, args ...any) { *f = append(*f, fmt.Sprintf(format, args...)) }

// nest puts the faults of a part under its name, as Nomad does.
func (f *faults) nest(inner faults, format string, args ...any) {
	if len(inner) > 0 {
		f.add("%s validation failed: %s", fmt.Sprintf(format, args...), strings.TrimRight(faultList(inner), "\n"))
	}
}

// validate finds everything that is wrong with a job whose defaults are filled in,
// in the words of Nomad's servers.
func validate(job *api.Job) []string {
	var f faults
	validateNames(&f, job)
	if !slices.Contains(jobTypes, *job.Type) {
		f.add("Invalid job type: %q", *job.Type)
	}
	if *job.Priority < 1 || *job.Priority > 100 {
		f.add("Job priority must be between [1, 100]")
	}
	if len(job.Datacenters) == 0 {
		f.add("Missing job datacenters")
	}
	for i, dc := range job.Datacenters {
		if dc == "" {
			f.add("Job datacenter %d must not be empty", i)
		}
	}
	validateConstraints(&f, job.Constraints)
	if len(job.TaskGroups) == 0 {
		f.add("Missing job task groups")
	}
	seen := map[string]bool{}
	for i, g := range job.TaskGroups {
		name := *g.Name
		switch {
		case name == "":
			f.add("Job task group %d missing name", i+1)
			continue
		case seen[name]:
			f.add("Job task group %s defined more than once", name)
		}
		seen[name] = true
		f.nest(validateGroup(job, g), "Task group %s", name)
	}
	return f
}

// jobTypes are the types of jobs that the scheduler knows.
var jobTypes = []string{api.JobTypeService, api.JobTypeBatch, api.JobTypeSystem, api.JobTypeSysbatch}

func validateNames(f *faults, job *api.Job) {
	switch id := *job.ID; {
	case id == "":
		f.add("Missing job ID")
	case strings.Contains(id, " "):
		f.add("Job ID contains a space")
	case strings.Contains(id, "\x00"):
		f.add("Job ID contains a null character")
	}
	if *job.Name == "" {
		f.add("Missing job name")
	} else if strings.Contains(*job.Name, "\x00") {
		f.add("Job Name contains a null character")
	}
	if *job.Region != Region {
		f.add("No path to region %q: this agent is region %q", *job.Region, Region)
	}
	if *job.Namespace != Namespace {
		f.add("job %q is in nonexistent namespace %q", *job.ID, *job.Namespace)
	}
	if pool := *job.NodePool; pool != "default" && pool != "all" {
		f.add("job %q is in nonexistent node pool %q", *job.ID, pool)
	}
}

// operands are those that the scheduler knows.
var operands = []string{
	"=", "==", "is", "!=", "not", "<", "<=", ">", ">=",
	api.ConstraintDistinctHosts, api.ConstraintDistinctProperty, api.ConstraintRegex, api.ConstraintVersion,
	api.ConstraintSemver, api.ConstraintSetContains, api.ConstraintSetContainsAll, api.ConstraintSetContainsAny,
	api.ConstraintAttributeIsSet, api.ConstraintAttributeIsNotSet,
}

func validateConstraints(f *faults, constraints []*api.Constraint) {
	for i, c := range constraints {
		var inner faults
		switch {
		case c.Operand == "":
			inner.add("Missing constraint operand")
		case !slices.Contains(operands, c.Operand):
			inner.add("Unknown constraint type %q", c.Operand)
		case c.Operand == api.ConstraintRegex:
			if _, err := regexp.Compile(c.RTarget); err != nil {
				inner.add("Regular expression failed to compile: %v", err)
			}
		}
		if c.LTarget == "" && c.Operand != api.ConstraintDistinctHosts && c.Operand != "" {
			inner.add("No LTarget provided but is required by constraint")
		}
		f.nest(inner, "Constraint %d", i+1)
	}
}

func validateGroup(job *api.Job, g *api.TaskGroup) faults {
	var f faults
	if *g.Count < 0 {
		f.add("Task group count can't be negative")
	}
	if len(g.Tasks) == 0 {
		f.add("Missing tasks for task group")
	}
	validateConstraints(&f, g.Constraints)
	validateRestart(&f, g.RestartPolicy)
	validateReschedule(&f, job, g)
	validateUpdate(&f, job, g)
	f.nest(validateNetworks(g), "Networks")
	seen := map[string]bool{}
	for i, t := range g.Tasks {
		switch {
		case t.Name == "":
			f.add("Task %d missing name", i+1)
			continue
		case seen[t.Name]:
			f.add("Task %s redefines %q", t.Name, t.Name)
		}
		seen[t.Name] = true
		f.nest(validateTask(t), "Task %s", t.Name)
	}
	return f
}

func validateRestart(f *faults, r *api.RestartPolicy) {
	switch {
	case r == nil:
		return
	case *r.Mode != "fail" && *r.Mode != "delay":
		f.add("Unsupported restart mode: %q", *r.Mode)
	case *r.Attempts < 0:
		f.add("Restart attempts can't be negative")
	case *r.Attempts > 0 && *r.Interval < 5*time.Second:
		f.add("Interval can not be less than 5s (got %v)", *r.Interval)
	case *r.Attempts > 0 && time.Duration(*r.Attempts)**r.Delay > *r.Interval:
		f.add("Nomad can't restart the TaskGroup %v times in an interval of %v with a delay of %v", *r.Attempts, *r.Interval, *r.Delay)
	}
}

func validateReschedule(f *faults, job *api.Job, g *api.TaskGroup) {
	r := g.ReschedulePolicy
	if r == nil || *job.Type == api.JobTypeSystem || *job.Type == api.JobTypeSysbatch {
		return
	}
	if !slices.Contains([]string{"constant", "exponential", "fibonacci"}, *r.DelayFunction) && (*r.Unlimited || *r.Attempts > 0) {
		f.add("Invalid delay function %q, must be one of [\"constant\" \"exponential\" \"fibonacci\"]", *r.DelayFunction)
	}
	if *r.Attempts < 0 || *r.Delay < 0 {
		f.add("Reschedule attempts and delay can't be negative")
	}
	if !*r.Unlimited && *r.Attempts > 0 && *r.Interval <= 0 {
		f.add("Interval must be a non zero value if Attempts > 0")
	}
}

func validateUpdate(f *faults, job *api.Job, g *api.TaskGroup) {
	u := g.Update
	if u == nil || *job.Type != api.JobTypeService {
		return
	}
	if u.Canary != nil && *u.Canary > 0 || u.AutoPromote != nil && *u.AutoPromote {
		f.add("update: canary and auto_promote are not run by the embedded agent")
	}
	if u.MaxParallel != nil && *u.MaxParallel > 0 && *u.MinHealthyTime >= *u.HealthyDeadline {
		f.add("Minimum healthy time must be less than healthy deadline: %v > %v", *u.MinHealthyTime, *u.HealthyDeadline)
	}
	if u.HealthCheck != nil && !slices.Contains([]string{"", "checks", "task_states", "manual"}, *u.HealthCheck) {
		f.add("Invalid health check given: %q", *u.HealthCheck)
	}
}

func validateNetworks(g *api.TaskGroup) faults {
	var f faults
	labels := map[string]bool{}
	for _, n := range g.Networks {
		if n.Mode != "" && n.Mode != "host" && n.Mode != "none" {
			f.add("network mode %q is not run by the embedded agent: it knows host and none", n.Mode)
		}
		for _, p := range append(slices.Clone(n.ReservedPorts), n.DynamicPorts...) {
			switch {
			case p.Label == "":
				f.add("Port label can't be empty")
			case labels[p.Label]:
				f.add("Port label %s already in use", p.Label)
			case p.Value < 0 || p.Value > 65535:
				f.add("Port %s cannot be greater than 65535", p.Label)
			case p.To < -1 || p.To > 65535:
				f.add("Port %q cannot be mapped to a port (%d) out of range", p.Label, p.To)
			}
			labels[p.Label] = true
		}
	}
	return f
}

func validateTask(t *api.Task) faults {
	var f faults
	if strings.ContainsAny(t.Name, `/\`) {
		f.add("Task name cannot include slashes")
	} else if strings.Contains(t.Name, "\x00") || t.Name == "alloc" || strings.Trim(t.Name, ".") == "" {
		f.add("Task name %q cannot be the name of its directory", t.Name)
	}
	if t.Driver == "" {
		f.add("Missing task driver")
	}
	if *t.KillTimeout < 0 {
		f.add("KillTimeout must be a positive value")
	}
	validateResources(&f, t.Resources)
	validateConstraints(&f, t.Constraints)
	for _, c := range t.Constraints {
		if c.Operand == api.ConstraintDistinctHosts || c.Operand == api.ConstraintDistinctProperty {
			f.add("Constraint not allowed at task level: %s", c.Operand)
		}
	}
	validateRestart(&f, t.RestartPolicy)
	if l := t.LogConfig; l != nil && (*l.MaxFiles < 1 || *l.MaxFileSizeMB < 1) {
		f.add("minimum number of log files is 1 and minimum file size 1MB; got %d and %d", *l.MaxFiles, *l.MaxFileSizeMB)
	}
	for i, one := range t.Templates {
		if _, err := template.Compile(one); err != nil {
			f.add("Template %d validation failed: %v", i+1, err)
		}
	}
	return f
}

func validateResources(f *faults, r *api.Resources) {
	switch {
	case r.Cores != nil && *r.Cores > 0 && *r.CPU > 0:
		f.add("Task can only ask for 'cpu' or 'cores' resource, not both.")
	case *r.CPU < 1 && (r.Cores == nil || *r.Cores < 1):
		f.add("minimum CPU value is 1; got %d", *r.CPU)
	}
	if *r.MemoryMB < 10 {
		f.add("minimum MemoryMB value is 10; got %d", *r.MemoryMB)
	}
	if limit := r.MemoryMaxMB; limit != nil && *limit != 0 && *limit != -1 && *limit < *r.MemoryMB {
		f.add("MemoryMaxMB value (%d) should be larger than MemoryMB value (%d)", *limit, *r.MemoryMB)
	}
}
