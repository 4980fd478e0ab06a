// SPDX-License-Identifier: MPL-2.0

package jobfile

import (
	"fmt"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/nomad/api"
)

func (s *section) job() *api.Job {
	id := s.labels[0]
	j := &api.Job{ID: &id, Name: s.str("name")}
	if explicit := s.str("id"); explicit != nil {
		j.ID = explicit
	}
	if j.Name == nil {
		j.Name = &id
	}
	j.Region = s.str("region")
	j.Namespace = s.str("namespace")
	j.Type = s.str("type")
	j.Priority = s.integer("priority")
	j.Datacenters = s.texts("datacenters")
	j.NodePool = s.str("node_pool")
	j.Constraints = s.constraints()
	j.Meta = s.textMap("meta")
	s.one("update", func(b *section) { j.Update = b.update() })
	s.one("reschedule", func(b *section) { j.Reschedule = b.reschedule() })
	// A task that stands directly in the job is a group of its own, as in Nomad.
	s.blocks("task", 1, func(b *section) {
		name := b.labels[0]
		j.TaskGroups = append(j.TaskGroups, &api.TaskGroup{Name: &name, Tasks: []*api.Task{b.task()}})
	})
	s.blocks("group", 1, func(b *section) { j.TaskGroups = append(j.TaskGroups, b.group()) })
	s.unique("group", 1)
	s.unique("task", 1)
	s.done()
	return j
}

func (s *section) group() *api.TaskGroup {
	name := s.labels[0]
	g := &api.TaskGroup{Name: &name}
	g.Count = s.integer("count")
	g.Constraints = s.constraints()
	g.Meta = s.textMap("meta")
	s.one("restart", func(b *section) { g.RestartPolicy = b.restart() })
	s.one("reschedule", func(b *section) { g.ReschedulePolicy = b.reschedule() })
	s.one("update", func(b *section) { g.Update = b.update() })
	s.one("network", func(b *section) { g.Networks = []*api.NetworkResource{b.network()} })
	s.blocks("task", 1, func(b *section) { g.Tasks = append(g.Tasks, b.task()) })
	s.unique("task", 1)
	s.done()
	return g
}

// unique refuses two blocks of one type with the same labels.
func (s *section) unique(kind string, labels int) {
	seen := map[string]hcl.Range{}
	for _, block := range s.body.Blocks {
		if block.Type != kind || len(block.Labels) != labels {
			continue
		}
		if previous, twice := seen[block.Labels[0]]; twice {
			s.p.fault(block.DefRange(), "Duplicate "+kind, fmt.Sprintf("%s %q is already defined at %s.", kind, block.Labels[0], previous))
		}
		seen[block.Labels[0]] = block.DefRange()
	}
}

func (s *section) restart() *api.RestartPolicy {
	r := &api.RestartPolicy{
		Attempts: s.integer("attempts"),
		Interval: s.duration("interval"),
		Delay:    s.duration("delay"),
		Mode:     s.str("mode"),
	}
	s.done()
	return r
}

func (s *section) reschedule() *api.ReschedulePolicy {
	r := &api.ReschedulePolicy{
		Attempts:      s.integer("attempts"),
		Interval:      s.duration("interval"),
		Delay:         s.duration("delay"),
		DelayFunction: s.str("delay_function"),
		MaxDelay:      s.duration("max_delay"),
		Unlimited:     s.boolean("unlimited"),
	}
	s.done()
	return r
}

func (s *section) update() *api.UpdateStrategy {
	u := &api.UpdateStrategy{
		Stagger:          s.duration("stagger"),
		MaxParallel:      s.integer("max_parallel"),
		HealthCheck:      s.str("health_check"),
		MinHealthyTime:   s.duration("min_healthy_time"),
		HealthyDeadline:  s.duration("healthy_deadline"),
		ProgressDeadline: s.duration("progress_deadline"),
		Canary:           s.integer("canary"),
		AutoRevert:       s.boolean("auto_revert"),
		AutoPromote:      s.boolean("auto_promote"),
	}
	s.done()
	return u
}

func (s *section) network() *api.NetworkResource {
	n := &api.NetworkResource{Mode: s.text("mode")}
	s.blocks("port", 1, func(b *section) {
		port := api.Port{Label: b.labels[0]}
		if static := b.integer("static"); static != nil {
			port.Value = *static
		}
		if to := b.integer("to"); to != nil {
			port.To = *to
		}
		b.done()
		if port.Value > 0 {
			n.ReservedPorts = append(n.ReservedPorts, port)
		} else {
			n.DynamicPorts = append(n.DynamicPorts, port)
		}
	})
	s.unique("port", 1)
	s.done()
	return n
}

// shorthands are the constraint operators that may stand as an argument.
var shorthands = []string{
	api.ConstraintVersion, api.ConstraintSemver, api.ConstraintRegex, api.ConstraintSetContains,
	api.ConstraintSetContainsAll, api.ConstraintSetContainsAny,
}

func (s *section) constraints() []*api.Constraint {
	var out []*api.Constraint
	s.blocks("constraint", 0, func(b *section) { out = append(out, b.constraint()) })
	return out
}

func (s *section) constraint() *api.Constraint {
	c := &api.Constraint{LTarget: s.text("attribute"), RTarget: s.text("value"), Operand: s.text("operator")}
	for _, operator := range shorthands {
		if value := s.str(operator); value != nil {
			c.Operand, c.RTarget = operator, *value
		}
	}
	if distinct := s.boolean(api.ConstraintDistinctHosts); distinct != nil {
		c.Operand, c.RTarget = api.ConstraintDistinctHosts, fmt.Sprint(*distinct)
	}
	if property := s.str(api.ConstraintDistinctProperty); property != nil {
		c.Operand, c.LTarget = api.ConstraintDistinctProperty, *property
	}
	if c.Operand == "" {
		c.Operand = "="
	}
	s.done()
	return c
}
