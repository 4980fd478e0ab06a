// SPDX-License-Identifier: MPL-2.0

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Group is one screen's control group. Its methods are safe for concurrent use.
type Group struct {
	name    string
	dirs    []placed
	refused map[string]error // controllers that the unified hierarchy does not pass down to us, and why
	weaker  []string
}

// placed is the group in one hierarchy.
type placed struct {
	Mount
	dir string
}

// Name is the group's name in its tree.
func (g *Group) Name() string { return g.name }

// Weaker says in words which of the limits asked for are not in force.
func (g *Group) Weaker() []string { return slices.Clone(g.weaker) }

// Dirs are the group's directories, one per hierarchy.
func (g *Group) Dirs() []string {
	dirs := make([]string, len(g.dirs))
	for i, d := range g.dirs {
		dirs[i] = d.dir
	}
	return dirs
}

// with is the group in the hierarchy of a controller, or nil. The unified hierarchy has what others split.
func (g *Group) with(controller string) *placed {
	for i, d := range g.dirs {
		if d.Has(controller) || d.V2 && (controller == "freezer" || controller == "cpuacct") {
			return &g.dirs[i]
		}
	}
	return nil
}

// Add moves a process with all its threads into the group; children it makes from now on follow. Children that it
// has already stay where they are, so a process is added before it starts any.
func (g *Group) Add(pid int) error {
	for _, d := range g.dirs {
		if err := write(d.dir, "cgroup.procs", strconv.Itoa(pid)); err != nil {
			return fmt.Errorf("add process %d to cgroup %s: %w", pid, g.name, err)
		}
	}
	return nil
}

// Procs lists the processes in the group and in groups below it, sorted; without processes, or when the group is
// gone, it is empty. A pid may be recycled as soon as it is read: see [Group.Kill].
func (g *Group) Procs() ([]int, error) {
	found := map[int]bool{}
	for _, d := range g.dirs {
		err := eachGroup(d.dir, func(dir string) error {
			data, err := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			if gone(err) {
				return nil
			}
			for _, pid := range parseProcs(data) {
				found[pid] = true
			}
			return err
		})
		if err != nil {
			return nil, fmt.Errorf("list processes of cgroup %s: %w", g.name, err)
		}
	}
	pids := make([]int, 0, len(found))
	for pid := range found {
		pids = append(pids, pid)
	}
	slices.Sort(pids)
	return pids, nil
}

// parseProcs reads cgroup.procs, one pid per line. 0 stands for a process outside our pid namespace; it and
// nonsense are left out.
func parseProcs(data []byte) []int {
	var pids []int
	for field := range strings.FieldsSeq(string(data)) {
		if pid, err := strconv.Atoi(field); err == nil && pid > 0 {
			pids = append(pids, pid)
		}
	}
	return pids
}

// eachGroup calls visit for the groups below dir, deepest first, and for dir.
func eachGroup(dir string, visit func(dir string) error) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !gone(err) {
		return err
	}
	for _, e := range entries {
		if e.IsDir() {
			if err := eachGroup(filepath.Join(dir, e.Name()), visit); err != nil {
				return err
			}
		}
	}
	return visit(dir)
}

// gone says that a group vanished while we looked: ENODEV is what its open files answer then.
func gone(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENODEV)
}

func isReadOnly(err error) bool { return errors.Is(err, syscall.EROFS) }

// Freeze stops every process of the group where it stands and returns once all have stopped.
func (g *Group) Freeze(ctx context.Context) error {
	if err := g.setFrozen(ctx, true); err != nil {
		return fmt.Errorf("freeze cgroup %s: %w", g.name, err)
	}
	return nil
}

// Thaw lets a frozen group go on.
func (g *Group) Thaw(ctx context.Context) error {
	if err := g.setFrozen(ctx, false); err != nil {
		return fmt.Errorf("thaw cgroup %s: %w", g.name, err)
	}
	return nil
}

func (g *Group) setFrozen(ctx context.Context, frozen bool) error {
	d := g.with("freezer")
	if d == nil {
		return errors.New("the freezer controller cannot be had here")
	}
	file := "freezer.state"
	if d.V2 {
		file = "cgroup.freeze"
	}
	word := freezeWords(d.V2)[frozen]
	return settleFrozen(ctx, frozen, func() error { return write(d.dir, file, word) }, d.frozen)
}

func (d *placed) frozen() (bool, error) {
	file := "freezer.state"
	if d.V2 {
		file = "cgroup.events"
	}
	text, err := os.ReadFile(filepath.Join(d.dir, file))
	return isFrozen(text, d.V2), err
}

// removeTries times removePause is how long Remove waits for the kernel to let go of processes that have ended.
const (
	removeTries = 50
	removePause = 20 * time.Millisecond
)

// Remove removes the group, which has to be empty, and empty groups below it. A group that is gone is no error.
func (g *Group) Remove() error {
	for _, d := range g.dirs {
		err := eachGroup(d.dir, func(dir string) error {
			err := os.Remove(dir)
			for try := 1; errors.Is(err, syscall.EBUSY) && try < removeTries; try++ {
				// A process that has just died may still count for a moment.
				time.Sleep(removePause)
				err = os.Remove(dir)
			}
			if gone(err) {
				return nil
			}
			return err
		})
		if err != nil {
			return fmt.Errorf("remove cgroup %s: %w", g.name, err)
		}
	}
	return nil
}
