// SPDX-License-Identifier: MPL-2.0

// Package pss reads how much memory processes take, each shared page by its part; see
// smaps_rollup in proc(5).
package pss

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
)

// MB is the memory of one process, in MB of 1000 kB.
func MB(pid int) (float64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "Pss:" {
			kb, err := strconv.ParseFloat(fields[1], 64)
			return kb / 1000, err
		}
	}
	return 0, errors.New("no Pss in smaps_rollup")
}

// BelowMB is that of all processes below one, without those that end meanwhile.
func BelowMB(root int) (float64, error) {
	below, err := process.Descendants(root)
	if err != nil {
		return 0, err
	}
	total := 0.0
	for _, pid := range below {
		mb, err := MB(pid)
		if err != nil && !errors.Is(err, os.ErrNotExist) && !errors.Is(err, unix.ESRCH) {
			return 0, fmt.Errorf("read the memory of process %d: %w", pid, err)
		}
		total += mb
	}
	return total, nil
}
