// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/namespace"
	"github.com/botscreen/botscreen/driver/process"
)

// startIn starts cmd inside of the groups. It is held at its first instruction until it
// is there: what it forks is in them, too (APT-03, X35). Until then it does not outlive this
// process: outside of its group nobody would find it.
func startIn(cmd *exec.Cmd, group *cgroup.Group, join []string, enter func() error) error {
	cmd.SysProcAttr.Ptrace = true
	return namespace.Start(cmd, enter, func() error {
		pid := cmd.Process.Pid
		err := awaitStop(pid)
		if err == nil {
			err = unix.PtraceSetOptions(pid, unix.PTRACE_O_EXITKILL)
		}
		if err == nil && group != nil {
			err = group.Add(pid)
		}
		isolation.ExposeToOOM(pid)
		for _, dir := range join {
			if err == nil {
				err = namespace.JoinCgroup(dir, pid)
			}
		}
		if err == nil {
			err = unix.PtraceDetach(pid)
		}
		if err != nil {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
			return fmt.Errorf("start %s: %w", cmd.Path, err)
		}
		return nil
	})
}

// awaitStop waits for the stop at exec of a traced child, see ptrace(2).
func awaitStop(pid int) error {
	for {
		var status unix.WaitStatus
		_, err := unix.Wait4(pid, &status, 0, nil)
		switch {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return err
		case !status.Stopped():
			return errors.New("it ended at once")
		}
		return nil
	}
}

// killTree kills a child of ours and all below it; what has gone by itself is as good.
func killTree(pid int) error {
	below, err := process.Descendants(pid)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, pid := range append([]int{pid}, below...) {
		id, err := process.Observe(pid)
		if err != nil {
			continue
		}
		if h, err := process.Open(id); err == nil {
			_ = h.Signal(unix.SIGKILL)
			_ = h.Close()
		}
	}
	return nil
}

// words is the file that apptainer speaks into: it goes on to the session's logs only
// what the session says, and its failures are told in its own words.
type words struct{ file *os.File }

func newWords(scratch string) (*words, error) {
	dir, err := os.OpenRoot(scratch)
	if err != nil {
		return nil, fmt.Errorf("apptainer's messages: %w", err)
	}
	defer dir.Close()
	f, err := dir.OpenFile("messages", os.O_CREATE|os.O_RDWR|os.O_APPEND|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("apptainer's messages: %w", err)
	}
	return &words{f}, nil
}

func (w *words) close() { _ = w.file.Close() }

// maxWords bounds what is read of them, and shown.
const (
	maxWords = 64 << 10
	maxShown = 400
)

// last is the last lines of it, on one line and without anything that is not text: some
// of it can come from the image.
func (w *words) last() string {
	info, err := w.file.Stat()
	if err != nil {
		return "none"
	}
	text := make([]byte, min(info.Size(), maxWords))
	n, _ := w.file.ReadAt(text, info.Size()-int64(len(text)))
	return plain(string(text[:n]))
}

// plain is one line of a text, and keeps its end.
func plain(text string) string {
	text = isolation.OneLine(text)
	if len(text) > maxShown {
		text = "…" + strings.ToValidUTF8(text[len(text)-maxShown:], "")
	}
	if text == "" {
		return "none"
	}
	return text
}
