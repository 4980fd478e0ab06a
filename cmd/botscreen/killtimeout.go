// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/nomadjob"
)

// leastKill is what a browser may need to write its logins down, and the desktop to end
// after it; it is Nomad's own default.
const leastKill = 5 * time.Second

// shortKills warns of screens that are killed before their browser has ended well
// (BRW-12).
func shortKills(job *api.Job) []string {
	var warnings []string
	for _, group := range job.TaskGroups {
		for _, task := range group.Tasks {
			if task.Driver != nomadjob.Driver || task.KillTimeout == nil || *task.KillTimeout >= leastKill {
				continue
			}
			warnings = append(warnings, fmt.Sprintf(
				"Warning: task %s has kill_timeout = %q: a stop may kill its browser before that has written its newest logins. Set it to %s or more.",
				task.Name, *task.KillTimeout, leastKill))
		}
	}
	return warnings
}
