// SPDX-License-Identifier: MPL-2.0

package cgroup

import (
	"fmt"
	"io/fs"
	"path"
	"strings"
)

// Of finds the group that a process is in, in each hierarchy where the group's own name has
// mark in it, such as a container's id: a process may be in a group with others, which are
// none of our business. None is an error that is fs.ErrNotExist.
func (t *Tree) Of(host Host, pid int, mark string) (*Group, error) {
	member, err := host.Of(pid)
	if err != nil {
		return nil, err
	}
	g := &Group{name: mark}
	for _, m := range t.mounts {
		controller := ""
		if !m.V2 && len(m.Controllers) > 0 {
			controller = m.Controllers[0]
		}
		group, ok := member[controller]
		if !ok || mark == "" || !strings.Contains(path.Base(group), mark) {
			continue
		}
		if dir := m.DirOf(group); dir != m.Dir { // else the mount does not show it
			g.dirs = append(g.dirs, placed{Mount: m, dir: dir})
		}
	}
	if len(g.dirs) == 0 {
		return nil, fmt.Errorf("find the cgroup %s of process %d: %w", mark, pid, fs.ErrNotExist)
	}
	return g, nil
}
