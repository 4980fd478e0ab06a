// SPDX-License-Identifier: MPL-2.0

package taskenv

import (
	"testing"

	"github.com/hashicorp/nomad/api"
)

func input() Input {
	id, group := "bots", "desk"
	return Input{
		Task:   "bot",
		Region: "global",
		Dirs:   Dirs{Alloc: "/a/alloc", Local: "/a/bot/local", Secrets: "/a/bot/secrets"},
		Host:   []string{"PATH=/bin", "NOMAD_TOKEN=CANARY", "AWS_SECRET_ACCESS_KEY=CANARY", "LANG=de", "=odd"},
		Node: &api.Node{
			ID: "n1", Name: "vm", Datacenter: "dc1", NodePool: "default",
			Attributes: map[string]string{"unique.hostname": "vm.example"}, Meta: map[string]string{"rack": "r1"},
		},
		Alloc: &api.Allocation{
			ID: "01234567-89ab-cdef-0123-456789abcdef", Name: "bots.desk[2]", Namespace: "default", TaskGroup: group,
			AllocatedResources: &api.AllocatedResources{
				Tasks: map[string]*api.AllocatedTaskResources{"bot": {
					Cpu:    api.AllocatedCpuResources{CpuShares: 500},
					Memory: api.AllocatedMemoryResources{MemoryMB: 800, MemoryMaxMB: -1},
				}},
				Shared: api.AllocatedSharedResources{Ports: []api.PortMapping{
					{Label: "vnc", Value: 27000, To: 5901, HostIP: "127.0.0.1"},
					{Label: "my-web", Value: 8080, HostIP: "127.0.0.1"},
				}},
			},
			Job: &api.Job{
				ID: &id, Name: &id, Meta: map[string]string{"lane": "red", "owner-id": "ada"},
				TaskGroups: []*api.TaskGroup{{
					Name: &group, Meta: map[string]string{"lane": "blue"},
					Tasks: []*api.Task{{
						Name: "bot",
						Env: map[string]string{
							"LANG": "C.UTF-8",
							"WHO":  `${NOMAD_META_lane} ${env["NOMAD_ALLOC_INDEX"]} ${attr.unique.hostname} ${meta.rack} ${unknown.thing}`,
						},
					}},
				}},
			},
		},
		Template: map[string]string{"FROM_TEMPLATE": "x"},
	}
}

func TestEnvironment(t *testing.T) {
	env := Build(input())
	want := map[string]string{
		"NOMAD_ALLOC_DIR": "/a/alloc", "NOMAD_TASK_DIR": "/a/bot/local", "NOMAD_SECRETS_DIR": "/a/bot/secrets",
		"NOMAD_ALLOC_ID": "01234567-89ab-cdef-0123-456789abcdef", "NOMAD_SHORT_ALLOC_ID": "01234567",
		"NOMAD_ALLOC_NAME": "bots.desk[2]", "NOMAD_ALLOC_INDEX": "2", "NOMAD_TASK_NAME": "bot",
		"NOMAD_GROUP_NAME": "desk", "NOMAD_JOB_ID": "bots", "NOMAD_JOB_NAME": "bots", "NOMAD_DC": "dc1",
		"NOMAD_NAMESPACE": "default", "NOMAD_REGION": "global", "NOMAD_PARENT_CGROUP": "nomad.slice",
		"NOMAD_CPU_LIMIT": "500", "NOMAD_CPU_CORES": " ", "NOMAD_MEMORY_LIMIT": "800",
		"NOMAD_PORT_vnc": "5901", "NOMAD_ALLOC_PORT_vnc": "5901", "NOMAD_HOST_PORT_vnc": "27000",
		"NOMAD_IP_vnc": "127.0.0.1", "NOMAD_HOST_IP_vnc": "127.0.0.1",
		"NOMAD_ADDR_vnc": "127.0.0.1:27000", "NOMAD_HOST_ADDR_vnc": "127.0.0.1:27000",
		"NOMAD_PORT_my_web": "8080", "NOMAD_HOST_PORT_my_web": "8080", "NOMAD_ADDR_my_web": "127.0.0.1:8080",
		"NOMAD_IP_my_web": "127.0.0.1",
		// Only some prefixes are cleaned, as in Nomad.
		"NOMAD_ALLOC_PORT_my-web": "8080", "NOMAD_HOST_IP_my-web": "127.0.0.1", "NOMAD_HOST_ADDR_my-web": "127.0.0.1:8080",
		"NOMAD_META_lane": "blue", "NOMAD_META_LANE": "blue", "NOMAD_META_owner_id": "ada", "NOMAD_META_OWNER_ID": "ada",
		"PATH": "/bin", "LANG": "C.UTF-8", "WHO": "blue 2 vm.example r1 ${unknown.thing}", "FROM_TEMPLATE": "x",
	}
	for name, value := range want {
		if got, ok := env.Vars[name]; !ok || got != value {
			t.Errorf("%s = %q, want %q", name, got, value)
		}
	}
	for name, value := range env.Vars {
		if _, ok := want[name]; !ok {
			t.Errorf("not wanted: %s = %q", name, value)
		}
	}
}

func TestNodeNames(t *testing.T) {
	env := Build(input())
	for name, want := range map[string]string{
		"node.unique.id": "n1", "node.unique.name": "vm", "node.datacenter": "dc1", "node.region": "global",
		"node.class": "", "node.pool": "default", "attr.unique.hostname": "vm.example", "meta.rack": "r1",
	} {
		if got := env.Node[name]; got != want {
			t.Errorf("%s = %q, want %q", name, got, want)
		}
	}
}

func TestCoreList(t *testing.T) {
	for want, cores := range map[string][]uint16{"0-2,7": {7, 0, 2, 1}, "3": {3}, "1,3": {1, 3}, "": nil} {
		if got := CoreList(cores); got != want {
			t.Errorf("CoreList(%v) = %q, want %q", cores, got, want)
		}
	}
}
