// SPDX-License-Identifier: MPL-2.0

package httpapi

import (
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"
	"golang.org/x/sys/unix"
)

// hostStats says how the machine is: memory, disk and uptime. Processor time is not
// sampled here; the driver's statistics have it per task.
func (a *API) hostStats(http.ResponseWriter, *http.Request) (any, error) {
	out := &api.HostStats{Memory: memoryStats(), CPU: []*api.HostCPUStats{}, DiskStats: []*api.HostDiskStats{}, DeviceStats: []*api.DeviceGroupStats{}}
	var info unix.Sysinfo_t
	if unix.Sysinfo(&info) == nil {
		out.Uptime = uint64(info.Uptime)
	}
	var disk unix.Statfs_t
	if unix.Statfs(a.Client.AllocDir, &disk) == nil && disk.Blocks > 0 {
		size := uint64(disk.Bsize)
		out.AllocDirStats = &api.HostDiskStats{
			Mountpoint: a.Client.AllocDir, Size: disk.Blocks * size, Available: disk.Bavail * size, Used: (disk.Blocks - disk.Bfree) * size,
			UsedPercent: 100 * float64(disk.Blocks-disk.Bfree) / float64(disk.Blocks),
		}
		if disk.Files > 0 {
			out.AllocDirStats.InodesUsedPercent = 100 * float64(disk.Files-disk.Ffree) / float64(disk.Files)
		}
	}
	return out, nil
}

// memoryStats reads /proc/meminfo (proc(5)), in bytes.
func memoryStats() *api.HostMemoryStats {
	out := &api.HostMemoryStats{}
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return out
	}
	for l := range strings.Lines(string(text)) {
		name, rest, _ := strings.Cut(l, ":")
		fields := strings.Fields(rest)
		if len(fields) == 0 {
			continue
		}
		kb, _ := strconv.ParseUint(fields[0], 10, 64)
		switch name {
		case "MemTotal":
			out.Total = kb << 10
		case "MemAvailable":
			out.Available = kb << 10
		case "MemFree":
			out.Free = kb << 10
		}
	}
	out.Used = out.Total - min(out.Available, out.Total)
	return out
}
