// SPDX-License-Identifier: MPL-2.0

// Package cgroup keeps each screen's processes in a control group of ours: made, limited, counted, frozen,
// killed to the last one and removed, on cgroup v1 (one hierarchy per controller), v2 and hybrid machines.
//
// Sources: cgroups(7), the kernel's admin-guide/cgroup-v1 and admin-guide/cgroup-v2.
package cgroup

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Host is where control groups are looked for. The zero value is this machine.
type Host struct {
	// ProcFS is where proc(5) is mounted; empty means /proc.
	ProcFS string
	// SysFS is where sysfs(5) is mounted; empty means /sys.
	SysFS string
}

func (h Host) proc() string { return cmp.Or(h.ProcFS, "/proc") }
func (h Host) sys() string  { return cmp.Or(h.SysFS, "/sys") }

// Mount is one hierarchy as it is mounted here.
type Mount struct {
	// Dir is where it is mounted.
	Dir string
	// Root is the group of the hierarchy that Dir shows; "/" unless a container's engine mounted a part.
	Root string
	// V2 is true for the unified hierarchy.
	V2 bool
	// Controllers are the hierarchy's controllers, such as memory and pids.
	Controllers []string
}

// Has reports whether the hierarchy has the controller.
func (m Mount) Has(controller string) bool { return slices.Contains(m.Controllers, controller) }

// DirOf is the directory of a group, given by its path in the hierarchy as /proc/<pid>/cgroup has it. A group
// that the mount does not show is answered with the mount itself, which then stands for it in a container.
func (m Mount) DirOf(group string) string {
	group = path.Clean("/" + group)
	if m.Root != "/" {
		rest, ok := strings.CutPrefix(group, m.Root)
		if !ok || (rest != "" && rest[0] != '/') {
			return m.Dir
		}
		group = rest
	}
	dir := filepath.Join(m.Dir, group)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return m.Dir
	}
	return dir
}

// GroupOf is the path in the hierarchy of a directory below the mount.
func (m Mount) GroupOf(dir string) string {
	rel, err := filepath.Rel(m.Dir, dir)
	if err != nil {
		return m.Root
	}
	return path.Join(m.Root, rel)
}

// Mounts lists the mounted hierarchies. Where mountinfo cannot be read the usual places are looked at.
func (h Host) Mounts() ([]Mount, error) {
	data, err := os.ReadFile(filepath.Join(h.proc(), "self/mountinfo"))
	if err != nil {
		return h.usualMounts()
	}
	mounts := parseMountinfo(data)
	for i, m := range mounts {
		// A test's or container's view of the host's /sys keeps the host's mount points.
		if rest, ok := strings.CutPrefix(m.Dir, "/sys/"); ok {
			mounts[i].Dir = filepath.Join(h.sys(), rest)
		}
		if m.V2 {
			mounts[i].Controllers = readControllers(mounts[i].Dir)
		}
	}
	return mounts, nil
}

// parseMountinfo reads proc(5)'s mountinfo and keeps the cgroup file systems:
//
//	36 35 98:0 /root /mount/point rw,noatime shared:1 - cgroup cgroup rw,memory
//	(1)(2)(3)  (4)   (5)          (6)        (7)…  (8) (9)    (10)   (11)
func parseMountinfo(data []byte) []Mount {
	var mounts []Mount
	lines := bufio.NewScanner(bytes.NewReader(data))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		before, after, ok := strings.Cut(lines.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 6 || len(right) < 3 {
			continue
		}
		m := Mount{Root: Unescape(left[3]), Dir: Unescape(left[4])}
		switch right[0] {
		case "cgroup2":
			m.V2 = true
		case "cgroup":
			m.Controllers = controllersOfOptions(right[2])
		default:
			continue
		}
		mounts = append(mounts, m)
	}
	return mounts
}

// controllersOfOptions keeps the controllers among a v1 mount's options, which name nothing else without '='.
func controllersOfOptions(options string) []string {
	var found []string
	for option := range strings.SplitSeq(options, ",") {
		if slices.Contains(v1Controllers, option) {
			found = append(found, option)
		}
	}
	return found
}

var v1Controllers = []string{"cpu", "cpuacct", "cpuset", "memory", "devices", "freezer", "net_cls", "blkio", "perf_event", "net_prio", "hugetlb", "pids", "rdma", "misc"}

// Unescape undoes mountinfo's \040 for a space and the like, see proc_pid_mountinfo(5).
func Unescape(s string) string {
	var out strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '\\' && i+4 <= len(s) {
			if c, err := strconv.ParseUint(s[i+1:i+4], 8, 8); err == nil {
				out.WriteByte(byte(c))
				i += 3
				continue
			}
		}
		out.WriteByte(s[i])
	}
	return out.String()
}

// usualMounts is the layout by convention: v1 has a directory per controller, v2 is the directory itself or, on
// a hybrid machine, "unified".
func (h Host) usualMounts() ([]Mount, error) {
	top := filepath.Join(h.sys(), "fs/cgroup")
	entries, err := os.ReadDir(top)
	if err != nil {
		return nil, fmt.Errorf("look for cgroups: %w", err)
	}
	var mounts []Mount
	for _, e := range entries {
		if found := controllersOfOptions(e.Name()); len(found) > 0 {
			mounts = append(mounts, Mount{Dir: filepath.Join(top, e.Name()), Root: "/", Controllers: found})
		}
	}
	unified := top
	if len(mounts) > 0 {
		unified = filepath.Join(top, "unified")
	}
	if info, err := os.Stat(unified); err == nil && info.IsDir() {
		mounts = append(mounts, Mount{Dir: unified, Root: "/", V2: true, Controllers: readControllers(unified)})
	}
	return mounts, nil
}

func readControllers(dir string) []string {
	data, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return nil
	}
	return strings.Fields(string(data))
}

// Membership is which group a process is in, per controller; the unified hierarchy stands under "".
type Membership map[string]string

// Self is where this process is.
func (h Host) Self() (Membership, error) { return h.membership("self") }

// Of is where the process pid is.
func (h Host) Of(pid int) (Membership, error) { return h.membership(strconv.Itoa(pid)) }

func (h Host) membership(process string) (Membership, error) {
	data, err := os.ReadFile(filepath.Join(h.proc(), process, "cgroup"))
	if err != nil {
		return nil, fmt.Errorf("read the cgroup of process %s: %w", process, err)
	}
	return parseMembership(data), nil
}

// parseMembership reads /proc/<pid>/cgroup: "hierarchy:controllers:path" per line, "0::path" for the unified one.
// Lines of another shape and paths that are not absolute are left out.
func parseMembership(data []byte) Membership {
	found := Membership{}
	for line := range strings.Lines(string(data)) {
		parts := strings.SplitN(strings.TrimSuffix(line, "\n"), ":", 3)
		if len(parts) != 3 || !strings.HasPrefix(parts[2], "/") {
			continue
		}
		// The kernel marks a group that was removed while the process was in it.
		group := strings.TrimSuffix(parts[2], " (deleted)")
		for controller := range strings.SplitSeq(parts[1], ",") {
			if controller == "" && parts[0] != "0" {
				continue
			}
			found[controller] = group
		}
	}
	return found
}
