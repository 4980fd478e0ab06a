// SPDX-License-Identifier: MPL-2.0

package process

import (
	"errors"
	"fmt"
	"os"
	"strconv"
)

// ScoreOOM says how early the kernel takes a process' memory when there is none left, from
// -1000 (never) to 1000; see oom_score_adj in proc(5). Below what the process was given by a
// privileged one, that takes CAP_SYS_RESOURCE. What it starts from now on inherits it.
func ScoreOOM(pid, score int) error {
	f, err := os.OpenFile("/proc/"+strconv.Itoa(pid)+"/oom_score_adj", os.O_WRONLY, 0)
	if err == nil {
		_, err = f.WriteString(strconv.Itoa(score))
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		return fmt.Errorf("score pid %d: %w", pid, err)
	}
	return nil
}
