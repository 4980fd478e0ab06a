// SPDX-License-Identifier: MPL-2.0

package task

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/botscreen/botscreen/shared/screen"
)

// maxEpoch is above every epoch that can have been: a supervisor, which is not trusted
// like this process, must not spoil a profile's record with one that none can follow.
const maxEpoch = 1 << 53

// saveProfile keeps a profile's record, and with it the highest epoch that was heard
// meanwhile.
func (m *Manager) saveProfile(p profileRecord) error {
	m.profileTurn.Lock()
	defer m.profileTurn.Unlock()
	id := screen.ID{Namespace: p.Namespace, Profile: p.Profile}
	var kept profileRecord
	if err := m.profiles.load(id.Hash(), &kept); err == nil {
		p.Epoch = max(p.Epoch, kept.Epoch)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("profile %s: %w", id, err)
	}
	return m.profiles.save(id.Hash(), p)
}

// changeProfile changes a profile's record, unless change says that nothing changed.
func (m *Manager) changeProfile(id screen.ID, change func(*profileRecord) bool) error {
	m.profileTurn.Lock()
	defer m.profileTurn.Unlock()
	var p profileRecord
	if err := m.profiles.load(id.Hash(), &p); err != nil {
		return fmt.Errorf("profile %s: %w", id, err)
	}
	if !change(&p) {
		return nil
	}
	return m.profiles.save(id.Hash(), p)
}

// noteEpoch keeps what a supervisor said of its lease.
func (m *Manager) noteEpoch(id screen.ID, epoch uint64) {
	if epoch == 0 || epoch >= maxEpoch {
		return
	}
	m.profileTurn.Lock()
	defer m.profileTurn.Unlock()
	var p profileRecord
	err := m.profiles.load(id.Hash(), &p)
	if err == nil && epoch > p.Epoch {
		p.Epoch = epoch
		err = m.profiles.save(id.Hash(), p)
	}
	if err != nil {
		m.log.Error("cannot keep the lease's epoch", "profile", id, "epoch", epoch, "error", err)
	}
}

// leaseFloor is the highest epoch that is known of a profile's lease, 0 where none is. A
// record that cannot be read is an error: in doubt no supervisor may believe that there
// was no lease.
func (m *Manager) leaseFloor(id screen.ID) (uint64, error) {
	var p profileRecord
	err := m.profiles.load(id.Hash(), &p)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return 0, fmt.Errorf("profile %s: %w", id, err)
	}
	return p.Epoch, nil
}
