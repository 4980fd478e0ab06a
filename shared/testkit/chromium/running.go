// SPDX-License-Identifier: MPL-2.0

package chromium

import (
	"bytes"
	"os"
	"slices"
	"strconv"
)

// Running are those of these processes that are browsers. Their helpers are left out, and what
// a browser has forked and is not yet a program of its own: that still has the browser's words.
func Running(pids []int) (found []int) {
	for _, pid := range pids {
		line := CommandLine(pid)
		if bytes.Contains(line, []byte("--user-data-dir=")) && !bytes.Contains(line, []byte("--type=")) && !bytes.Equal(line, CommandLine(parent(pid))) {
			found = append(found, pid)
		}
	}
	return found
}

// CommandLine is a process' words with a zero byte after each, empty of one that is gone; see
// proc_pid_cmdline(5).
func CommandLine(pid int) []byte {
	line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline") // nothing of one that is gone
	return line
}

// parent is 0 of one that is gone.
func parent(pid int) int {
	status, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	fields := bytes.Fields(status)
	if i := slices.IndexFunc(fields, func(f []byte) bool { return bytes.Equal(f, []byte("PPid:")) }); i >= 0 && i+1 < len(fields) {
		ppid, _ := strconv.Atoi(string(fields[i+1]))
		return ppid
	}
	return 0
}
