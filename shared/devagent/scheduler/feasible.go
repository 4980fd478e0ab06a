// SPDX-License-Identifier: MPL-2.0

package scheduler

import (
	"fmt"
	"math/rand/v2"
	"path"
	"slices"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/taskenv"
)

// The range of dynamic ports, as of a Nomad client.
const (
	minDynamicPort = 20000
	maxDynamicPort = 32000
)

// missingDrivers is Nomad's name for the filter on drivers.
const missingDrivers = "missing drivers"

// node is the one node with what is promised on it.
type node struct {
	*api.Node
	names    map[string]string
	portFree func(int) bool

	cpu, memory, disk int64
	cores             map[uint16]bool
	ports             map[int]bool
}

func newNode(n *api.Node, region string, live []*api.Allocation, portFree func(int) bool) *node {
	out := &node{
		Node: n, names: taskenv.NodeNames(n, region), portFree: portFree,
		cores: map[uint16]bool{}, ports: map[int]bool{},
	}
	for _, a := range live {
		out.use(a.AllocatedResources, 1)
	}
	return out
}

// use adds (by 1) or gives back (by -1) what an allocation holds.
func (n *node) use(r *api.AllocatedResources, by int64) {
	if r == nil {
		return
	}
	n.disk += by * r.Shared.DiskMB
	for _, p := range r.Shared.Ports {
		n.ports[p.Value] = by > 0
	}
	for _, t := range r.Tasks {
		n.cpu += by * t.Cpu.CpuShares
		n.memory += by * t.Memory.MemoryMB
		for _, core := range t.Cpu.ReservedCores {
			n.cores[core] = by > 0
		}
	}
}

// place looks for room for one allocation of a group. Without room the metric says
// why, in Nomad's words.
func (n *node) place(job *api.Job, group *api.TaskGroup, others []*api.Allocation) (*api.AllocatedResources, *api.AllocationMetric) {
	start := time.Now()
	metric := &api.AllocationMetric{NodePool: *job.NodePool, NodesAvailable: map[string]int{}}
	defer func() { metric.AllocationTime = time.Since(start) }()
	if n.Node == nil || n.Status != "ready" || n.SchedulingEligibility != api.NodeSchedulingEligible {
		return nil, metric
	}
	if n.NodePool != *job.NodePool && *job.NodePool != "all" {
		return nil, metric
	}
	if !slices.ContainsFunc(job.Datacenters, func(glob string) bool { ok, err := path.Match(glob, n.Datacenter); return ok && err == nil }) {
		return nil, metric
	}
	metric.NodesInPool = 1
	metric.NodesAvailable[n.Datacenter] = 1
	metric.NodesEvaluated = 1
	if filter := n.filter(job, group, others); filter != "" {
		metric.NodesFiltered = 1
		metric.ConstraintFiltered = map[string]int{filter: 1}
		return nil, metric
	}
	resources, exhausted := n.fit(group)
	if exhausted != "" {
		metric.NodesExhausted = 1
		metric.DimensionExhausted = map[string]int{exhausted: 1}
		metric.ResourcesExhausted = asked(group)
		return nil, metric
	}
	return resources, metric
}

// filter names what keeps the group off the node, "" when nothing does.
func (n *node) filter(job *api.Job, group *api.TaskGroup, others []*api.Allocation) string {
	for _, c := range job.Constraints {
		if !meets(c, n.names) {
			return constraintText(c)
		}
	}
	for _, t := range group.Tasks {
		if d := n.Drivers[t.Driver]; d == nil || !d.Detected || !d.Healthy {
			return missingDrivers
		}
	}
	constraints := slices.Clone(group.Constraints)
	for _, t := range group.Tasks {
		constraints = append(constraints, t.Constraints...)
	}
	for _, c := range constraints {
		if !meets(c, n.names) {
			return constraintText(c)
		}
	}
	return n.distinct(job, group, constraints, others)
}

// distinct looks at constraints about the other allocations of the job; with one
// node each of them allows as many allocations as one host or one value may have.
func (n *node) distinct(job *api.Job, group *api.TaskGroup, constraints []*api.Constraint, others []*api.Allocation) string {
	inGroup := 0
	for _, a := range others {
		if a.TaskGroup == *group.Name {
			inGroup++
		}
	}
	for _, c := range append(slices.Clone(job.Constraints), constraints...) {
		count := inGroup
		if slices.Contains(job.Constraints, c) {
			count = len(others)
		}
		switch {
		case c.Operand == api.ConstraintDistinctHosts && c.RTarget != "false" && count > 0:
			return api.ConstraintDistinctHosts
		case c.Operand == api.ConstraintDistinctProperty && count >= allowed(c.RTarget):
			return fmt.Sprintf("%s: %s", api.ConstraintDistinctProperty, c.LTarget)
		}
	}
	return ""
}

// allowed is how many allocations may share one value of a property.
func allowed(text string) int {
	var n int
	if _, err := fmt.Sscan(text, &n); err != nil || n < 1 {
		return 1
	}
	return n
}

// fit gives the resources of one allocation, or the dimension that is exhausted.
func (n *node) fit(group *api.TaskGroup) (*api.AllocatedResources, string) {
	out := &api.AllocatedResources{
		Tasks:  map[string]*api.AllocatedTaskResources{},
		Shared: api.AllocatedSharedResources{DiskMB: int64(*group.EphemeralDisk.SizeMB)},
	}
	if exhausted := n.fitPorts(group, &out.Shared); exhausted != "" {
		return nil, exhausted
	}
	var cpu, memory int64
	taken := map[uint16]bool{}
	for _, t := range group.Tasks {
		r := &api.AllocatedTaskResources{
			Cpu:    api.AllocatedCpuResources{CpuShares: int64(*t.Resources.CPU)},
			Memory: api.AllocatedMemoryResources{MemoryMB: int64(*t.Resources.MemoryMB)},
		}
		if limit := t.Resources.MemoryMaxMB; limit != nil {
			r.Memory.MemoryMaxMB = int64(*limit)
		}
		if !n.reserveCores(t, &r.Cpu, taken) {
			return nil, "cores"
		}
		cpu += r.Cpu.CpuShares
		memory += r.Memory.MemoryMB
		out.Tasks[t.Name] = r
	}
	switch {
	case n.cpu+cpu > n.NodeResources.Cpu.CpuShares:
		return nil, "cpu"
	case n.memory+memory > n.NodeResources.Memory.MemoryMB:
		return nil, "memory"
	case n.disk+out.Shared.DiskMB > n.NodeResources.Disk.DiskMB:
		return nil, "disk"
	}
	return out, ""
}

func (n *node) reserveCores(t *api.Task, cpu *api.AllocatedCpuResources, taken map[uint16]bool) bool {
	want := 0
	if t.Resources.Cores != nil {
		want = *t.Resources.Cores
	}
	for _, core := range n.NodeResources.Cpu.ReservableCpuCores {
		if want == 0 {
			break
		}
		if !n.cores[core] && !taken[core] {
			taken[core] = true
			cpu.ReservedCores = append(cpu.ReservedCores, core)
			want--
		}
	}
	if total := int64(n.NodeResources.Cpu.TotalCpuCores); total > 0 && len(cpu.ReservedCores) > 0 {
		cpu.CpuShares = n.NodeResources.Cpu.CpuShares / total * int64(len(cpu.ReservedCores))
	}
	return want == 0
}

func (n *node) fitPorts(group *api.TaskGroup, shared *api.AllocatedSharedResources) string {
	for _, network := range group.Networks {
		given := *network
		given.ReservedPorts, given.DynamicPorts = slices.Clone(network.ReservedPorts), slices.Clone(network.DynamicPorts)
		taken := map[int]bool{}
		for _, p := range given.ReservedPorts {
			if n.ports[p.Value] || taken[p.Value] {
				return fmt.Sprintf("network: reserved port collision %s=%d", p.Label, p.Value)
			}
			taken[p.Value] = true
			shared.Ports = append(shared.Ports, n.mapping(p, p.Value))
		}
		for i, p := range given.DynamicPorts {
			value := n.dynamicPort(taken)
			if value == 0 {
				return "network: dynamic port selection failed"
			}
			taken[value] = true
			given.DynamicPorts[i].Value = value
			shared.Ports = append(shared.Ports, n.mapping(p, value))
		}
		given.IP, given.Device = hostIP, "lo"
		shared.Networks = append(shared.Networks, &given)
	}
	return ""
}

// hostIP is where the ports of a development agent's tasks are.
const hostIP = "127.0.0.1"

func (n *node) mapping(p api.Port, value int) api.PortMapping {
	m := api.PortMapping{Label: p.Label, Value: value, To: p.To, HostIP: hostIP}
	if p.To == -1 {
		m.To = value
	}
	return m
}

// dynamicPort gives a port that no allocation has and nobody listens on, 0 if none.
func (n *node) dynamicPort(taken map[int]bool) int {
	size := maxDynamicPort - minDynamicPort
	start := rand.IntN(size)
	for i := range size {
		port := minDynamicPort + (start+i)%size
		if !n.ports[port] && !taken[port] && (n.portFree == nil || n.portFree(port)) {
			return port
		}
	}
	return 0
}

func asked(group *api.TaskGroup) map[string]*api.Resources {
	out := map[string]*api.Resources{}
	for _, t := range group.Tasks {
		r := *t.Resources
		out[t.Name] = &r
	}
	return out
}
