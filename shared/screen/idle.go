// SPDX-License-Identifier: MPL-2.0

package screen

import "time"

// IdleAction is what becomes of a desktop that nobody uses.
type IdleAction string

// Sleep ends the desktop's processes and starts them again at the next use, while the
// task runs on. Freeze stops them where they stand and lets them go on at the next use.
// Exit ends the task with code 0.
const (
	IdleSleep  IdleAction = "sleep"
	IdleFreeze IdleAction = "freeze"
	IdleExit   IdleAction = "exit"
)

// IdlePolicy says when a desktop counts as unused and what happens then (rule I1).
type IdlePolicy struct {
	After  time.Duration `json:"after_ns"` // 0: never
	Action IdleAction    `json:"action"`
}

// Bounds of idle_stop: below a second a desktop would be put to sleep between two clicks.
const (
	minIdle = time.Second
	maxIdle = 30 * 24 * time.Hour
)

func (c Config) validateIdle(faults *Faults) IdlePolicy {
	p := IdlePolicy{Action: oneOf(faults, "idle_action", c.IdleAction, IdleSleep, IdleFreeze, IdleExit)}
	if c.IdleStop == "0s" || c.IdleStop == "0" || c.IdleStop == "" {
		return p
	}
	p.After = parseDuration(faults, "idle_stop", c.IdleStop, minIdle, maxIdle)
	return p
}
