// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"errors"
	"io/fs"
	"os/exec"
	"time"

	"github.com/botscreen/botscreen/driver/process"
)

// What memory is taken from first when there is none left, see oom_score_adj in proc(5):
// what people and agents start, with all that comes of it, then the parts of the desktop,
// which come back, and at last the X server and the session, without which the screen ends.
const (
	scorePart  = 200
	scoreGuest = 500
)

// startAs starts cmd as Start does, with another score: it has that before it can have
// started others, since it has just been executed. A score that the kernel refuses leaves it
// ours, which only makes the choice worse.
func (r *Reaper) startAs(cmd *exec.Cmd, score int) error {
	err := r.own(func() (int, error) {
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		return cmd.Process.Pid, nil
	})
	if err == nil {
		// Its pid is its own until Wait, which the caller cannot have called yet.
		scoreExecuted(func() error { return process.ScoreOOM(cmd.Process.Pid, score) })
	}
	return err
}

// scoreExecuted scores a child as soon as it may. In the kernel's exec (begin_new_exec in
// fs/exec.c) the pipe closes by which Start knows that it worked, and only then does what we
// may not trace, because we are not dumpable, become a program whose /proc is ours; nothing
// tells of that. One that never does, such as a set-user-ID program, is given up on.
func scoreExecuted(score func() error) {
	const first, last = 50 * time.Microsecond, 10 * time.Millisecond // 20 ms in all
	for pause := first; notOurs(score()) && pause <= last; pause *= 2 {
		time.Sleep(pause)
	}
}

// notOurs says that the file could not even be opened; a score that is refused is not asked for again.
func notOurs(err error) bool {
	var at *fs.PathError
	return errors.As(err, &at) && at.Op == "open" && errors.Is(err, fs.ErrPermission)
}

// scoreOf tells the desktop's own programs from the job's.
func scoreOf(p Program) int {
	switch p.Name {
	case nameBus, nameXfconf, nameSettings, nameWM, nameDesktop, namePanel, nameKeymap:
		return scorePart
	default:
		return scoreGuest
	}
}
