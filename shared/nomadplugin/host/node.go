// SPDX-License-Identifier: MPL-2.0

package host

import (
	"os"
	"runtime"
	"strconv"
	"strings"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/basepb"
)

// LocalNode describes this machine as one NUMA node whose cores all run at the speed that
// /proc/cpuinfo shows, with the port range of a Nomad client.
func LocalNode() *nomadplugin.NodeConfig {
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo")
	speed := coreMHz(string(cpuinfo))
	cores := make([]*basepb.ClientTopologyCore, runtime.NumCPU())
	for i := range cores {
		cores[i] = &basepb.ClientTopologyCore{CoreId: uint32(i), GuessSpeed: speed}
	}
	return &nomadplugin.NodeConfig{Driver: &basepb.NomadDriverConfig{
		ClientMinPort: 14000,
		ClientMaxPort: 14512,
		Topology: &basepb.ClientTopology{
			NodeIds: []uint32{0},
			// Plugins index values by dimension without a look; 0 and none is consistent.
			Distances: &basepb.ClientTopologySLIT{},
			Cores:     cores,
		},
	}}
}

// defaultMHz stands for a machine that does not tell.
const defaultMHz = 1000

func coreMHz(cpuinfo string) uint64 {
	for line := range strings.Lines(cpuinfo) {
		name, value, ok := strings.Cut(line, ":")
		if !ok || strings.TrimSpace(name) != "cpu MHz" {
			continue
		}
		if mhz, err := strconv.ParseFloat(strings.TrimSpace(value), 64); err == nil && mhz >= 1 {
			return uint64(mhz)
		}
	}
	return defaultMHz
}
