// SPDX-License-Identifier: MPL-2.0

package memory

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/shirou/gopsutil/v3/common"
	"github.com/shirou/gopsutil/v3/mem"

	"github.com/botscreen/botscreen/driver/cgroup"
)

// Prober reads how much memory is available. The zero value reads this machine for this process.
type Prober struct {
	cgroup.Host
	// Within are further groups whose limits count, by their path in the memory hierarchy: those beneath which
	// screens are made, when they are not above this process.
	Within []string
}

// noLimit is where a v1 limit means none: the kernel writes the greatest multiple of the page size that fits.
const noLimit = 1 << 60

// Read looks at the host and at every limit above us now. It never fails: what cannot be read is left out and
// named in Reading.Unknown.
func (p Prober) Read(ctx context.Context) Reading {
	var r Reading
	if host, err := p.host(ctx); err != nil {
		r.note("the host's available memory: %v", err)
	} else {
		r.Known, r.AvailableBytes, r.HostBytes = true, host, host
	}
	mounts, err := p.Mounts()
	if err != nil {
		r.note("cgroup limits: %v", err)
		return r
	}
	self, err := p.Self()
	if err != nil {
		r.note("cgroup limits: %v", err)
		self = cgroup.Membership{}
	}
	for _, m := range mounts {
		group, ok := self["memory"]
		switch {
		case !m.V2 && m.Has("memory"):
		case m.V2 && !ok:
			// The unified hierarchy counts only where no v1 hierarchy has the memory controller.
			group, ok = self[""]
		default:
			continue
		}
		if ok {
			p.walk(&r, m, group)
		}
		for _, more := range p.Within {
			p.walk(&r, m, more)
		}
	}
	return r
}

// host is the kernel's own estimate of what can be had without swapping.
func (p Prober) host(ctx context.Context) (uint64, error) {
	proc := p.ProcFS
	if proc == "" {
		proc = "/proc"
	}
	// Set even for /proc, or a HOST_PROC in our environment would choose.
	ctx = context.WithValue(ctx, common.EnvKey, common.EnvMap{common.HostProcEnvKey: proc})
	v, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return 0, err
	}
	if v.Available == 0 {
		return 0, errors.New("no MemAvailable in meminfo")
	}
	return v.Available, nil
}

// walk takes the limits of group and of every group above it that the mount shows.
func (p Prober) walk(r *Reading, m cgroup.Mount, group string) {
	for dir := m.DirOf(group); ; dir = filepath.Dir(dir) {
		name := m.GroupOf(dir)
		if m.V2 {
			r.levelV2(dir, name)
		} else {
			r.levelV1(dir, name)
		}
		if dir == m.Dir || len(dir) <= len(m.Dir) {
			return
		}
	}
}

func (r *Reading) levelV1(dir, name string) {
	limit, ok := r.limit(dir, name, "memory.limit_in_bytes")
	stat := readStat(dir)
	// What limits us from above the part of the hierarchy that a container is shown.
	if h, found := stat["hierarchical_memory_limit"]; found && h < noLimit && (!ok || h < limit) {
		limit, ok = h, true
	}
	if ok {
		r.apply(dir, Limit{Cgroup: name, Bytes: limit}, "memory.usage_in_bytes", stat["total_inactive_file"])
	}
}

func (r *Reading) levelV2(dir, name string) {
	inactive := readStat(dir)["inactive_file"]
	// Above memory.high a group is not killed but throttled until it stands still, which is no better for a desktop.
	for _, file := range []string{"memory.max", "memory.high"} {
		if limit, ok := r.limit(dir, name, file); ok {
			r.apply(dir, Limit{Cgroup: name, Bytes: limit}, "memory.current", inactive)
		}
	}
}

// limit reads a limit; false means that there is none or that it is unknown, which is then noted.
func (r *Reading) limit(dir, name, file string) (uint64, bool) {
	text, err := readWord(dir, file)
	if errors.Is(err, fs.ErrNotExist) || text == "max" {
		// The root group, and groups without the controller, have no such file and no limit.
		return 0, false
	}
	value, err := parseBytes(text, err)
	if err != nil {
		r.note("%s of cgroup %s: %v", file, name, err)
		return 0, false
	}
	return value, value < noLimit
}

// apply lowers the reading to what is left below the limit.
func (r *Reading) apply(dir string, l Limit, usageFile string, inactive uint64) {
	text, err := readWord(dir, usageFile)
	usage, err := parseBytes(text, err)
	if err != nil {
		// The limit alone still says what there is at most.
		r.note("%s of cgroup %s: %v", usageFile, l.Cgroup, err)
	}
	l.WorkingSetBytes = usage - min(usage, inactive)
	left := l.Bytes - min(l.Bytes, l.WorkingSetBytes)
	if !r.Known || left < r.AvailableBytes {
		r.Known, r.AvailableBytes, r.Limit = true, left, &l
	}
}

func (r *Reading) note(format string, args ...any) {
	r.Unknown = append(r.Unknown, fmt.Sprintf(format, args...))
}

func readWord(dir, file string) (string, error) {
	data, err := os.ReadFile(filepath.Join(dir, file))
	return strings.TrimSpace(string(data)), err
}

func parseBytes(text string, err error) (uint64, error) {
	if err != nil {
		return 0, err
	}
	if text == "" {
		return 0, errors.New("it is blank")
	}
	value, err := strconv.ParseUint(text, 10, 64)
	if errors.Is(err, strconv.ErrRange) {
		return math.MaxUint64, nil
	}
	if err != nil {
		return 0, fmt.Errorf("%.40q is not a number", text)
	}
	return value, nil
}

func readStat(dir string) map[string]uint64 {
	data, err := os.ReadFile(filepath.Join(dir, "memory.stat"))
	if err != nil {
		return nil
	}
	return cgroup.ParseFlat(data)
}
