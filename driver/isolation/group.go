// SPDX-License-Identifier: MPL-2.0

package isolation

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/shared/screen"
)

// GroupName is the cgroup of one run: two drivers with other directories may each have a
// screen of the same name, and OpenGroup tells runs apart by its end.
func GroupName(order Order) string { return order.ID.Hash() + groupEnd(order.Instance) }

func groupEnd(instance string) string { return "-" + instance[:min(8, len(instance))] }

// CreateGroup makes the cgroup of a sandbox; it is nil without error where this node
// lets us make none (X35).
func CreateGroup(tree *cgroup.Tree, name string, limits cgroup.Limits) (*cgroup.Group, error) {
	if tree == nil {
		return nil, nil
	}
	group, err := tree.Create(name, limits)
	var unavailable *cgroup.UnavailableError
	if errors.As(err, &unavailable) {
		return nil, nil
	}
	return group, err
}

// GroupWarnings say which of its limits a sandbox that was just launched has not, and why;
// group is nil where the node lets us make none (X35).
func GroupWarnings(group *cgroup.Group) []string {
	if group == nil {
		return []string{"no limits on memory and processes: no control group can be made on this node"}
	}
	return group.Weaker()
}

// OpenGroup finds the cgroup of a record; it is nil without error where there is none. One
// that another run made is refused: a name alone is no proof (X38).
func OpenGroup(tree *cgroup.Tree, record Record) (*cgroup.Group, error) {
	if tree == nil || record.Cgroup == "" {
		return nil, nil
	}
	if !strings.HasSuffix(record.Cgroup, groupEnd(record.Instance)) {
		return nil, fmt.Errorf("the cgroup %s is not this run's and is not touched", record.Cgroup)
	}
	group, err := tree.Open(record.Cgroup)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil // nothing of the screen is left in it
	}
	return group, err
}

// GroupUsage is one sample of a cgroup's counters; group may be nil.
func GroupUsage(group *cgroup.Group) (Usage, error) {
	if group == nil {
		return Usage{}, errors.New("measure screen: it has no cgroup on this node")
	}
	stats, err := group.Stats()
	if err != nil {
		return Usage{}, fmt.Errorf("measure screen: %w", err)
	}
	pids, err := group.Procs()
	if err != nil {
		return Usage{}, fmt.Errorf("measure screen: %w", err)
	}
	return Usage{Stats: stats, PIDs: pids}, nil
}

// GroupMark is in the name of that cgroup and of no other.
func GroupMark(record Record) string {
	if record.Isolation == screen.Docker {
		return record.Container
	}
	return record.Cgroup
}

// GroupOf is the cgroup that a sandbox's processes are in, ours or its engine's, by the
// session that the record names. It is an error where they have none of their own.
func GroupOf(record Record) (*cgroup.Group, error) {
	tree, err := cgroup.Open(cgroup.Host{}, "")
	if err != nil {
		return nil, err
	}
	group, err := tree.Of(cgroup.Host{}, record.Session.PID, GroupMark(record))
	if err != nil {
		return nil, err
	}
	if !record.Session.Alive() { // it was another one's pid
		return nil, process.ErrGone
	}
	return group, nil
}

// ExposeToOOM gives a session that has started nothing yet, and with it all that it will
// start, the score of any program: an agent's unit that keeps the kernel off the agent
// (Nomad's own has OOMScoreAdjust=-1000) would keep it off every desktop too. Where that is
// refused the agent's score is what it is.
func ExposeToOOM(pid int) { _ = process.ScoreOOM(pid, 0) }

// OOMKilled reports whether the kernel killed something in a cgroup for memory.
func OOMKilled(group *cgroup.Group) bool {
	if group == nil {
		return false
	}
	n, err := group.OOMKills()
	return err == nil && n > 0
}
