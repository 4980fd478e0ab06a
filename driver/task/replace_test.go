// SPDX-License-Identifier: MPL-2.0

package task

import (
	"strings"
	"testing"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/driver/isolation"
)

// over is a sandbox whose session has ended.
type over struct{ isolation.Sandbox }

func (over) Done() <-chan struct{} {
	done := make(chan struct{})
	close(done)
	return done
}

// S11: nobody starts a supervisor for a session that has ended: it would be left behind.
func TestS11NoSupervisorForTheDead(t *testing.T) {
	var log strings.Builder
	task := &Task{m: &Manager{log: hclog.New(&hclog.LoggerOptions{Output: &log})}, sandbox: over{}}
	for range 40 { // of what is ready, select takes either
		task.replaceSupervisor(1)
	}
	if strings.Contains(log.String(), "cannot start") || task.sup != nil {
		t.Errorf("one was started:\n%s", &log)
	}
}
