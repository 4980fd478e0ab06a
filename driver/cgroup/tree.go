// SPDX-License-Identifier: MPL-2.0

package cgroup

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/botscreen/botscreen/shared/form"
)

// DefaultPidsMax lets a desktop (about 44 threads) have a browser with a dozen tabs (212 with one, 488 with two)
// and stops a fork bomb.
const DefaultPidsMax = 2048

// ours is the group that holds all our groups, so that recovery finds them and nobody else's.
const ours = "botscreen"

// wanted are the controllers we use where the machine has them.
var wanted = []string{"pids", "memory", "cpu", "cpuacct", "freezer"}

// UnavailableError says that no group of ours can be made here: no cgroups are mounted, or this process may not
// write to them. Screens run without limits then, which the caller says in their status.
type UnavailableError struct {
	Why string
	Err error
}

func (e *UnavailableError) Error() string {
	if e.Err != nil {
		return "cgroups unavailable: " + e.Why + ": " + e.Err.Error()
	}
	return "cgroups unavailable: " + e.Why
}

func (e *UnavailableError) Unwrap() error { return e.Err }

// Sentence is the error for a person.
func (e *UnavailableError) Sentence() string {
	return fmt.Sprintf("Screens on this node run without limits on memory and processes: %s. "+
		"Run the plugin as root on a machine with a writable /sys/fs/cgroup to have them.", e.Why)
}

// Tree is where the groups of this node's screens are made: <parent>/botscreen/<name> in every hierarchy we use.
type Tree struct {
	mounts []Mount
	parent string
}

// Open finds the hierarchies of this machine. parent is the path of the group beneath which ours are made, such
// as Nomad's group for a task; "" is the top. It makes nothing.
func Open(host Host, parent string) (*Tree, error) {
	all, err := host.Mounts()
	if err != nil {
		return nil, &UnavailableError{Why: "no cgroup file system is mounted", Err: err}
	}
	t := &Tree{parent: path.Clean("/" + parent)}
	for _, controller := range wanted {
		t.use(all, func(m Mount) bool { return !m.V2 && m.Has(controller) })
	}
	if len(t.mounts) == 0 {
		// Hybrid machines have the unified hierarchy too, but without the controllers.
		t.use(all, func(m Mount) bool { return m.V2 })
	}
	if len(t.mounts) == 0 {
		return nil, &UnavailableError{Why: "no cgroup file system is mounted"}
	}
	return t, nil
}

// use adds the first mount that fits, once.
func (t *Tree) use(all []Mount, fits func(Mount) bool) {
	i := slices.IndexFunc(all, fits)
	if i >= 0 && !slices.ContainsFunc(t.mounts, func(m Mount) bool { return m.Dir == all[i].Dir }) {
		t.mounts = append(t.mounts, all[i])
	}
}

// V2 reports whether groups are made in the unified hierarchy.
func (t *Tree) V2() bool { return t.mounts[0].V2 }

// Path is the path of the group name in its hierarchies.
func (t *Tree) Path(name string) string { return path.Join(t.parent, ours, name) }

// Limits is what a group may take; 0 leaves a limit off.
type Limits struct {
	MemoryBytes uint64
	PidsMax     uint64
	// CPUShares is the weight in Nomad's and cgroup v1's unit, 2 to 262144.
	CPUShares uint64
}

var goodName = form.Of(`^[a-z0-9][a-zA-Z0-9._-]{0,127}$`)

// Create makes the group name with its limits. Where some of the hierarchies or limits cannot be had the group is
// made with what there is, and [Group.Weaker] says what is missing; where nothing can be had the error is an
// [UnavailableError]. An empty group of that name, left by a crash, is replaced; one with processes in it is an
// error that is fs.ErrExist.
func (t *Tree) Create(name string, limits Limits) (*Group, error) {
	if !goodName().MatchString(name) {
		return nil, fmt.Errorf("create cgroup %q: not a group name, want %s", name, goodName())
	}
	if err := t.clearLeftover(name); err != nil {
		return nil, fmt.Errorf("create cgroup %s: %w", name, err)
	}
	g := &Group{name: name}
	var refusals []error
	for _, m := range t.mounts {
		dir, err := t.makeDirs(m, name, g)
		if err != nil {
			refusals = append(refusals, err)
			continue
		}
		g.dirs = append(g.dirs, placed{Mount: m, dir: dir})
	}
	if len(g.dirs) == 0 {
		return nil, fmt.Errorf("create cgroup %s: %w", name, unavailable(refusals[0]))
	}
	g.limit(limits)
	return g, nil
}

func unavailable(err error) *UnavailableError {
	why := "the cgroup file system refuses new groups"
	switch {
	case errors.Is(err, fs.ErrPermission):
		why = "this process may not make cgroups"
	case errors.Is(err, syscall.EOPNOTSUPP):
		why = "the control group of this process is threaded, and no process can be in one below it"
	case isReadOnly(err):
		why = "the cgroup file system is mounted read-only"
	}
	return &UnavailableError{Why: why, Err: err}
}

// clearLeftover removes an empty group of the name.
func (t *Tree) clearLeftover(name string) error {
	old, err := t.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	pids, err := old.Procs()
	if err != nil {
		return err
	}
	if len(pids) > 0 {
		return fmt.Errorf("%w with %d processes in it", fs.ErrExist, len(pids))
	}
	return old.Remove()
}

// makeDirs makes the group and what is above it in one hierarchy and, in the unified one, passes the controllers
// down to it.
func (t *Tree) makeDirs(m Mount, name string, g *Group) (string, error) {
	dir := m.Dir
	for _, part := range t.parts(m, name) {
		if m.V2 {
			g.refuse(passDown(m, dir))
		}
		dir = filepath.Join(dir, part)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", err
		}
	}
	if m.V2 {
		if err := takesProcesses(dir); err != nil {
			_ = os.Remove(dir)
			return "", err
		}
	}
	return dir, nil
}

// parts are the directories from the mount down to the group.
func (t *Tree) parts(m Mount, name string) []string {
	parent := t.parent
	if rest, ok := strings.CutPrefix(parent, m.Root+"/"); m.Root != "/" && ok {
		parent = "/" + rest
	}
	return strings.Split(strings.TrimPrefix(path.Join(parent, ours, name), "/"), "/")
}

// passDown enables the controllers for the children of dir and returns those that were refused, and why. One by
// one: the kernel takes a list only as a whole.
func passDown(m Mount, dir string) map[string]error {
	enabled, _ := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
	missing := slices.DeleteFunc([]string{"cpu", "memory", "pids"}, func(controller string) bool {
		return !m.Has(controller) || slices.Contains(strings.Fields(string(enabled)), controller)
	})
	if len(missing) == 0 {
		return nil
	}
	refused := map[string]error{}
	lived := inhabited(dir)
	for _, controller := range missing {
		err := lived
		if err == nil {
			err = write(dir, "cgroup.subtree_control", "+"+controller)
		}
		if err != nil {
			refused[controller] = err
		}
	}
	return refused
}

// inhabited is the error for a group with processes of its own, below which no group of ours gets controllers; the
// top of the whole hierarchy, which has no type, is exempt. The kernel would refuse only some of them: with cpu and
// pids it makes every group below invalid for processes, see "threads" in admin-guide/cgroup-v2.
func inhabited(dir string) error {
	if _, err := os.Stat(filepath.Join(dir, "cgroup.type")); err != nil {
		return nil
	}
	if procs, err := os.ReadFile(filepath.Join(dir, "cgroup.procs")); err != nil || len(procs) == 0 {
		return nil
	}
	return &fs.PathError{Op: "pass controllers on below", Path: filepath.Join(dir, "cgroup.procs"), Err: syscall.EBUSY}
}

// takesProcesses is the error for a group in the unified hierarchy that no process can be in, because somebody has
// made one above it threaded.
func takesProcesses(dir string) error {
	kind, err := os.ReadFile(filepath.Join(dir, "cgroup.type"))
	if kind := strings.TrimSpace(string(kind)); err == nil && (kind == "threaded" || kind == "domain invalid") {
		return &fs.PathError{Op: "use as " + kind, Path: dir, Err: syscall.EOPNOTSUPP}
	}
	return nil
}

// refuse keeps the first reason for each controller.
func (g *Group) refuse(controllers map[string]error) {
	for controller, err := range controllers {
		if _, known := g.refused[controller]; !known {
			if g.refused == nil {
				g.refused = map[string]error{}
			}
			g.refused[controller] = err
		}
	}
}

// whyNot says in words why the controller is not passed down to us.
func (g *Group) whyNot(controller string) string {
	err := g.refused[controller]
	var at *fs.PathError
	if !errors.As(err, &at) || !errors.Is(err, syscall.EBUSY) {
		return "the " + controller + " controller cannot be had here"
	}
	// The rule of cgroups(7) about internal processes: a container's top group has its first process.
	return fmt.Sprintf("%s has processes of its own, so the kernel passes the %s controller to no group below it; "+
		"move them to a group of theirs, or start the agent in one", filepath.Dir(at.Path), controller)
}

// Open finds the group name again, in the hierarchies that have it; none is an error that is fs.ErrNotExist.
func (t *Tree) Open(name string) (*Group, error) {
	if !goodName().MatchString(name) {
		return nil, fmt.Errorf("open cgroup %q: not a group name, want %s", name, goodName())
	}
	g := &Group{name: name}
	for _, m := range t.mounts {
		dir := filepath.Join(append([]string{m.Dir}, t.parts(m, name)...)...)
		info, err := os.Stat(dir)
		if err == nil && info.IsDir() {
			g.dirs = append(g.dirs, placed{Mount: m, dir: dir})
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("open cgroup %s: %w", name, err)
		}
	}
	if len(g.dirs) == 0 {
		return nil, fmt.Errorf("open cgroup %s: %w", name, fs.ErrNotExist)
	}
	return g, nil
}

// List names the groups of ours that exist, sorted.
func (t *Tree) List() ([]string, error) {
	found := map[string]bool{}
	for _, m := range t.mounts {
		parts := t.parts(m, "x")
		dir := filepath.Join(append([]string{m.Dir}, parts[:len(parts)-1]...)...)
		entries, err := os.ReadDir(dir)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("list cgroups: %w", err)
		}
		for _, e := range entries {
			if e.IsDir() {
				found[e.Name()] = true
			}
		}
	}
	names := make([]string, 0, len(found))
	for name := range found {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// limit writes the limits and notes what could not be set.
func (g *Group) limit(l Limits) {
	if l.MemoryBytes > 0 {
		g.set("memory", "limit on memory", "memory.limit_in_bytes", "memory.max", strconv.FormatUint(l.MemoryBytes, 10))
	}
	if l.PidsMax > 0 {
		g.set("pids", "limit on processes", "pids.max", "pids.max", strconv.FormatUint(l.PidsMax, 10))
	}
	if l.CPUShares > 0 {
		shares := min(max(l.CPUShares, 2), 262144)
		value := strconv.FormatUint(shares, 10)
		if d := g.with("cpu"); d != nil && d.V2 {
			value = strconv.FormatUint(weight(shares), 10)
		}
		g.set("cpu", "share of the processors", "cpu.shares", "cpu.weight", value)
	}
}

// weight turns v1 shares (2 to 262144, default 1024) into a v2 weight (1 to 10000) the way runc and systemd do.
func weight(shares uint64) uint64 { return 1 + (shares-2)*9999/262142 }

func (g *Group) set(controller, what, v1File, v2File, value string) {
	d := g.with(controller)
	if d == nil || g.refused[controller] != nil {
		g.weaker = append(g.weaker, fmt.Sprintf("no %s: %s", what, g.whyNot(controller)))
		return
	}
	file := v1File
	if d.V2 {
		file = v2File
	}
	if err := write(d.dir, file, value); err != nil {
		g.weaker = append(g.weaker, fmt.Sprintf("no %s: %v", what, err))
	}
}

// write writes a kernel file in one call, which is how cgroup files take values; it never creates one.
func write(dir, file, value string) error {
	f, err := os.OpenFile(filepath.Join(dir, file), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}
