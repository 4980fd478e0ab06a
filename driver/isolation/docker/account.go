// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/process"
)

func writeAccountFiles(order isolation.Order) error {
	scratch, err := os.OpenRoot(order.Scratch)
	if err != nil {
		return fmt.Errorf("account file: %w", err)
	}
	defer scratch.Close()
	for _, file := range isolation.AccountFiles(order) {
		if err := scratch.WriteFile(file.Name, []byte(file.Text), 0o644); err != nil {
			return fmt.Errorf("account file: %w", err)
		}
	}
	return nil
}

// confined reads back from the kernel who the engine's process is (X29).
func confined(pid int, id string, account isolation.Account) (process.Identity, error) {
	identity, err := inContainer(pid, id)
	if err != nil {
		return identity, err
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return identity, err
	}
	return identity, checkStatus(string(text), account)
}

// inContainer is the process of that pid where it is the one in the container: an engine
// elsewhere names pids that are somebody else's here, which is errElsewhere.
func inContainer(pid int, id string) (process.Identity, error) {
	identity, err := process.Observe(pid)
	if err != nil {
		return process.Identity{}, err
	}
	groups, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cgroup")
	if err != nil {
		return process.Identity{}, err
	}
	if !strings.Contains(string(groups), id) {
		return process.Identity{}, errElsewhere
	}
	return identity, nil
}

// checkStatus compares proc_pid_status(5) with what was asked for.
func checkStatus(text string, account isolation.Account) error {
	got := map[string][]string{}
	for line := range strings.Lines(text) {
		if name, values, ok := strings.Cut(line, ":"); ok {
			got[name] = strings.Fields(values)
		}
	}
	uid, gid := strconv.FormatUint(uint64(account.UID), 10), strconv.FormatUint(uint64(account.GID), 10)
	// Engines add the gid to the supplementary groups, where it gives nothing more.
	got["Groups"] = slices.DeleteFunc(got["Groups"], func(id string) bool { return id == gid })
	const none = "0000000000000000"
	for _, want := range []struct {
		field  string
		values []string
	}{
		{"Uid", []string{uid, uid, uid, uid}},
		{"Gid", []string{gid, gid, gid, gid}},
		{"Groups", groupIDs(account.Groups)},
		{"CapPrm", []string{none}}, {"CapEff", []string{none}}, {"CapBnd", []string{none}}, {"CapAmb", []string{none}},
		{"NoNewPrivs", []string{"1"}},
		{"Seccomp", []string{"2"}},
	} {
		if !slices.Equal(got[want.field], want.values) {
			return fmt.Errorf("check identity: %s is %v, want %v", want.field, got[want.field], want.values)
		}
	}
	return nil
}
