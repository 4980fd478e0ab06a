// SPDX-License-Identifier: MPL-2.0

package task

// HoldEvents lets nothing be told until it is let go of.
func (m *Manager) HoldEvents() (letGo func()) {
	m.events.mu.Lock()
	return m.events.mu.Unlock
}

// Ending says whether the end of the screen was asked for.
func (t *Task) Ending() bool { return t.ending() }
