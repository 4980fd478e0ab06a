// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
)

// cpuBelow is the processor time of a process and all below it so far, dead
// children that were waited for included, in milliseconds.
func cpuBelow(root int) float64 {
	below, err := process.Descendants(root)
	if err != nil {
		return 0
	}
	const ticksPerSecond = 100 // USER_HZ, the same on all Linux machines of today
	ticks := 0
	for _, pid := range append(below, root) {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		fields := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
		const utime, last = 11, 15 // fields 14 to 17 of proc_pid_stat(5), counted from field 3
		for i := utime; i < last && i < len(fields); i++ {
			n, _ := strconv.Atoi(fields[i])
			ticks += n
		}
	}
	return float64(ticks) * 1000 / ticksPerSecond
}

// stopTrees ends desktops: TERM to the leader of each, then KILL to all that is left.
func stopTrees(all ...*watched) error {
	for _, w := range all {
		_ = w.cmd.Process.Signal(unix.SIGTERM)
	}
	late := time.After(stopLimit)
	for _, w := range all {
		select {
		case <-w.ended:
		case <-late:
		}
	}
	deadline := time.Now().Add(stopLimit)
	for {
		left, err := process.Descendants(os.Getpid())
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("stop: processes left: %v", left)
		}
		for _, pid := range left {
			_ = unix.Kill(pid, unix.SIGKILL)
			_, _ = unix.Wait4(pid, nil, 0, nil) // ours only after its parent is gone
		}
	}
}

// copySeed keeps the settings and the wallpaper of a finished desktop.
func copySeed(home, seed string) error {
	if err := os.CopyFS(filepath.Join(seed, ".config"), os.DirFS(filepath.Join(home, ".config"))); err != nil {
		return err
	}
	err := os.CopyFS(filepath.Join(seed, ".local"), os.DirFS(filepath.Join(home, ".local")))
	if err != nil {
		return err
	}
	return filepath.Walk(seed, func(path string, info os.FileInfo, err error) error {
		if err != nil {
			return err
		}
		if info.IsDir() {
			return os.Chmod(path, 0o755)
		}
		return os.Chmod(path, 0o644)
	})
}
