// SPDX-License-Identifier: MPL-2.0

// Package taskenv makes the environment of a task, and the names that ${ } in its
// job may refer to, as a Nomad client does for a driver without file isolation.
package taskenv

import (
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// denied are the variables of the agent's own environment that no task gets
// (the default of Nomad's client option env.denylist).
var denied = map[string]bool{
	"CONSUL_TOKEN": true, "CONSUL_HTTP_TOKEN": true, "CONSUL_HTTP_TOKEN_FILE": true,
	"NOMAD_TOKEN": true, "VAULT_TOKEN": true,
	"CONSUL_LICENSE": true, "NOMAD_LICENSE": true, "VAULT_LICENSE": true,
	"CONSUL_LICENSE_PATH": true, "NOMAD_LICENSE_PATH": true, "VAULT_LICENSE_PATH": true,
	"AWS_ACCESS_KEY_ID": true, "AWS_SECRET_ACCESS_KEY": true, "AWS_SESSION_TOKEN": true, "AWS_METADATA_URL": true,
	"GOOGLE_APPLICATION_CREDENTIALS": true, "GOOGLE_OAUTH_ACCESS_TOKEN": true,
}

// Dirs are the directories that a task is told of.
type Dirs struct {
	Alloc, Local, Secrets string
}

// Input is what an environment is made from.
type Input struct {
	Alloc *api.Allocation
	Task  string
	Node  *api.Node
	// Region of the agent.
	Region string
	Dirs   Dirs
	// Host is the agent's own environment, as os.Environ gives it.
	Host []string
	// Template holds variables from templates with env = true; they win over all.
	Template map[string]string
}

// Env is the environment of one task.
type Env struct {
	// Vars is the whole environment. It holds secrets.
	Vars map[string]string
	// Node holds the dotted names of the node: node.unique.id, attr.cpu.arch, meta.rack.
	Node map[string]string
}

// Build makes the environment.
func Build(in Input) Env {
	group := in.Alloc.Job.LookupTaskGroup(in.Alloc.TaskGroup)
	task := lookupTask(group, in.Task)
	env := Env{Vars: map[string]string{}, Node: NodeNames(in.Node, in.Region)}
	set := func(name, value string) {
		if value != "" {
			env.Vars[name] = value
		}
	}
	set("NOMAD_ALLOC_DIR", in.Dirs.Alloc)
	set("NOMAD_TASK_DIR", in.Dirs.Local)
	set("NOMAD_SECRETS_DIR", in.Dirs.Secrets)
	identity(set, in)
	limits(set, in)
	ports(set, in.Alloc)
	for name, value := range metaVars(in.Alloc.Job, group, task) {
		env.Vars[env.Replace(name)] = env.Replace(value)
	}
	for _, pair := range in.Host {
		name, value, _ := strings.Cut(pair, "=")
		if _, taken := env.Vars[name]; !taken && !denied[name] && name != "" {
			env.Vars[name] = env.Replace(value)
		}
	}
	for name, value := range task.Env {
		env.Vars[name] = env.Replace(value)
	}
	maps.Copy(env.Vars, in.Template)
	env.clean()
	return env
}

func lookupTask(group *api.TaskGroup, name string) *api.Task {
	for _, t := range group.Tasks {
		if t.Name == name {
			return t
		}
	}
	return &api.Task{Name: name}
}

func identity(set func(name, value string), in Input) {
	job := in.Alloc.Job
	set("NOMAD_ALLOC_ID", in.Alloc.ID)
	set("NOMAD_SHORT_ALLOC_ID", in.Alloc.ID[:min(8, len(in.Alloc.ID))])
	set("NOMAD_ALLOC_NAME", in.Alloc.Name)
	set("NOMAD_ALLOC_INDEX", allocIndex(in.Alloc.Name))
	set("NOMAD_TASK_NAME", in.Task)
	set("NOMAD_GROUP_NAME", in.Alloc.TaskGroup)
	set("NOMAD_JOB_ID", *job.ID)
	set("NOMAD_JOB_NAME", *job.Name)
	set("NOMAD_DC", in.Node.Datacenter)
	set("NOMAD_NAMESPACE", in.Alloc.Namespace)
	set("NOMAD_REGION", in.Region)
	set("NOMAD_PARENT_CGROUP", "nomad.slice")
}

// allocIndex is the number in "job.group[3]".
func allocIndex(name string) string {
	open := strings.LastIndexByte(name, '[')
	if open < 0 {
		return ""
	}
	return strings.TrimSuffix(name[open+1:], "]")
}

func limits(set func(name, value string), in Input) {
	res := in.Alloc.AllocatedResources.Tasks[in.Task]
	if res == nil {
		return
	}
	set("NOMAD_CPU_LIMIT", strconv.FormatInt(res.Cpu.CpuShares, 10))
	// With no core reserved Nomad's value is one space.
	set("NOMAD_CPU_CORES", " ")
	if cores := res.Cpu.ReservedCores; len(cores) > 0 {
		set("NOMAD_CPU_CORES", CoreList(cores))
	}
	set("NOMAD_MEMORY_LIMIT", strconv.FormatInt(res.Memory.MemoryMB, 10))
	if res.Memory.MemoryMaxMB > 0 {
		set("NOMAD_MEMORY_MAX_LIMIT", strconv.FormatInt(res.Memory.MemoryMaxMB, 10))
	}
}

// CoreList writes core numbers the way cpusets do: 0-2,7.
func CoreList(cores []uint16) string {
	cores = slices.Sorted(slices.Values(cores))
	var parts []string
	for i := 0; i < len(cores); {
		j := i
		for j+1 < len(cores) && cores[j+1] == cores[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, strconv.Itoa(int(cores[i])))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", cores[i], cores[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

func ports(set func(name, value string), alloc *api.Allocation) {
	for _, p := range alloc.AllocatedResources.Shared.Ports {
		inside := strconv.Itoa(p.Value)
		if p.To > 0 {
			inside = strconv.Itoa(p.To)
		}
		host := strconv.Itoa(p.Value)
		address := net.JoinHostPort(p.HostIP, host)
		set("NOMAD_PORT_"+p.Label, inside)
		set("NOMAD_ALLOC_PORT_"+p.Label, inside)
		set("NOMAD_HOST_PORT_"+p.Label, host)
		set("NOMAD_IP_"+p.Label, p.HostIP)
		set("NOMAD_HOST_IP_"+p.Label, p.HostIP)
		set("NOMAD_ADDR_"+p.Label, address)
		set("NOMAD_HOST_ADDR_"+p.Label, address)
	}
}

// Meta is the metadata of a task: the job's, the group's and its own, the nearest
// winning.
func Meta(job *api.Job, group *api.TaskGroup, task *api.Task) map[string]string {
	out := map[string]string{}
	for _, meta := range []map[string]string{job.Meta, group.Meta, task.Meta} {
		maps.Copy(out, meta)
	}
	return out
}

func metaVars(job *api.Job, group *api.TaskGroup, task *api.Task) map[string]string {
	out := map[string]string{}
	for name, value := range Meta(job, group, task) {
		out["NOMAD_META_"+name] = value
		out["NOMAD_META_"+strings.ToUpper(name)] = value
	}
	return out
}

// NodeNames are the names by which a job refers to its node.
func NodeNames(node *api.Node, region string) map[string]string {
	out := map[string]string{
		"node.unique.id":   node.ID,
		"node.unique.name": node.Name,
		"node.datacenter":  node.Datacenter,
		"node.region":      region,
		"node.class":       node.NodeClass,
		"node.pool":        node.NodePool,
	}
	for name, value := range node.Attributes {
		out["attr."+name] = value
	}
	for name, value := range node.Meta {
		out["meta."+name] = value
	}
	return out
}

var reference = regexp.MustCompile(`\$\{(?:env\["([^"]+)"\]|([a-zA-Z0-9_.-]+))\}`)

// Replace puts the values of ${NAME}, ${env["NAME"]} and the node's names into a
// text. What is not known stays as it is written.
func (e Env) Replace(text string) string {
	if !strings.Contains(text, "${") {
		return text
	}
	return reference.ReplaceAllStringFunc(text, func(found string) string {
		m := reference.FindStringSubmatch(found)
		if value, ok := e.Vars[m[1]+m[2]]; ok {
			return value
		}
		if value, ok := e.Node[m[2]]; ok {
			return value
		}
		return found
	})
}

// cleaned are the prefixes of names whose rest a user chose; characters that
// programs cannot use in a variable become underscores there.
var cleaned = []string{"NOMAD_ADDR_", "NOMAD_IP_", "NOMAD_PORT_", "NOMAD_HOST_PORT_", "NOMAD_META_"}

func (e Env) clean() {
	for name, value := range maps.Clone(e.Vars) {
		if !slices.ContainsFunc(cleaned, func(prefix string) bool { return strings.HasPrefix(name, prefix) }) {
			continue
		}
		if better := strings.Map(cleanRune, name); better != name {
			delete(e.Vars, name)
			e.Vars[better] = value
		}
	}
}

func cleanRune(r rune) rune {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '_', r == '.':
		return r
	}
	return '_'
}
