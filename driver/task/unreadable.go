// SPDX-License-Identifier: MPL-2.0

package task

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/process"
)

// clearUnreadable ends what a run left of which the record is damaged, so that the screen can
// start again: sessions that dial into its run directory, which is root's, with the groups
// they are in, and the directory. Containers are found by their labels, later (see sweep).
// It needs the screen's lock.
func (m *Manager) clearUnreadable(ctx context.Context, p places, hash string) error {
	m.log.Error("the record of a run is damaged; ending what is left of the run", "record", hash)
	for _, id := range sessionsDialling(filepath.Join(p.dial, "s")) {
		if err := endSession(ctx, id, hash); err != nil {
			return err
		}
	}
	return errors.Join(p.removeRun(), m.runs.remove(hash))
}

// sessionsDialling finds processes by their words: who lies about them is ended too.
func sessionsDialling(socket string) (found []process.Identity) {
	entries, _ := os.ReadDir("/proc")
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		words, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if err != nil || !bytes.HasSuffix(words, []byte("\x00session\x00--dial\x00"+socket+"\x00")) {
			continue
		}
		if id, err := process.Observe(pid); err == nil {
			found = append(found, id)
		}
	}
	return found
}

// endSession ends a session and all that is in its group, or below it where it has none.
func endSession(ctx context.Context, id process.Identity, hash string) error {
	ctx, cancel := context.WithTimeout(ctx, killLimit)
	defer cancel()
	group, err := isolation.GroupOf(isolation.Record{Session: id, Cgroup: hash + "-"})
	if err == nil {
		return errors.Join(group.Kill(ctx), group.Remove())
	}
	below, _ := process.Descendants(id.PID)
	for _, pid := range append([]int{id.PID}, below...) {
		target, err := process.Observe(pid)
		if err != nil {
			continue
		}
		handle, err := process.Open(target)
		if err != nil {
			continue
		}
		_ = handle.Signal(unix.SIGKILL)
		select {
		case <-handle.Done():
		case <-ctx.Done():
			err = fmt.Errorf("end session: pid %d still runs: %w", pid, ctx.Err())
		}
		if closed := handle.Close(); err != nil || closed != nil {
			return errors.Join(err, closed)
		}
	}
	return nil
}
