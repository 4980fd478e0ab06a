// SPDX-License-Identifier: MPL-2.0

package namespace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/botscreen/botscreen/driver/isolation"
)

// CheckIdentity reads back who the kernel says the process is (X29): the ids asked for,
// no other group, no capability in force.
func CheckIdentity(pid int, account isolation.Account) error {
	got, err := Status(pid)
	if err != nil {
		return fmt.Errorf("check identity: %w", err)
	}
	want := map[string]string{
		"Uid":    fourTimes(account.UID),
		"Gid":    fourTimes(account.GID),
		"Groups": joinGroups(account.Groups),
		"CapEff": "0000000000000000",
	}
	for field, value := range want {
		if got[field] != value {
			return fmt.Errorf("check identity: %s is %q, want %q", field, got[field], value)
		}
	}
	return nil
}

// Status is proc_pid_status(5) of a process: values by name, white space folded.
func Status(pid int) (map[string]string, error) {
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return nil, err
	}
	fields := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if name, value, ok := strings.Cut(line, ":"); ok {
			fields[name] = strings.Join(strings.Fields(value), " ")
		}
	}
	return fields, nil
}

// JoinCgroup puts a process into a group that Nomad made. One that is not there is no
// failure: an agent without privilege makes none.
func JoinCgroup(dir string, pid int) error {
	f, err := os.OpenFile(filepath.Join(dir, "cgroup.procs"), os.O_WRONLY, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("join Nomad's cgroup: %w", err)
	}
	defer f.Close()
	if _, err := fmt.Fprint(f, pid); err != nil {
		return fmt.Errorf("join Nomad's cgroup %s: %w", dir, err)
	}
	return nil
}

// fourTimes is how status shows the real, effective, saved and file-system id.
func fourTimes(id uint32) string {
	text := strconv.FormatUint(uint64(id), 10)
	return strings.Join([]string{text, text, text, text}, " ")
}

func joinGroups(groups []uint32) string {
	texts := make([]string, len(groups))
	for i, g := range groups {
		texts[i] = strconv.FormatUint(uint64(g), 10)
	}
	return strings.Join(texts, " ")
}
