// SPDX-License-Identifier: MPL-2.0

package main

import (
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

// BRW-12: a kill_timeout that loses logins is warned about when the job is submitted.
func TestBRW12ShortKillTimeout(t *testing.T) {
	second := time.Second
	enough := leastKill
	job := &api.Job{TaskGroups: []*api.TaskGroup{{Tasks: []*api.Task{
		{Name: "hasty", Driver: "botscreen", KillTimeout: &second},
		{Name: "patient", Driver: "botscreen", KillTimeout: &enough},
		{Name: "default", Driver: "botscreen"},
		{Name: "other", Driver: "docker", KillTimeout: &second},
	}}}}
	got := shortKills(job)
	if len(got) != 1 || !strings.Contains(got[0], "hasty") || !strings.Contains(got[0], `kill_timeout = "1s"`) {
		t.Errorf("warnings %q", got)
	}
}
