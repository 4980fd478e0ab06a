// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"os/exec"

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
// started others, since it has been executed just now, or stands still at that. A score that
// the kernel refuses leaves it ours, which only makes the choice worse.
func (r *Reaper) startAs(cmd *exec.Cmd, score int) error {
	return r.own(func() (int, error) {
		if err := cmd.Start(); err != nil {
			return 0, err
		}
		_ = process.ScoreOOM(cmd.Process.Pid, score)
		return cmd.Process.Pid, nil
	})
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
