// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/shared/audit"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
)

const recordName = "screen.json"

// record is what the next supervisor of the same run must know. It lies in the control
// directory, which only this uid can enter.
type record struct {
	V        int              `json:"v"`
	Instance string           `json:"instance"`
	XServer  process.Identity `json:"xserver"`
	Display  int              `json:"display"`
	Ready    bool             `json:"ready"`
	// Asleep says that the session was told to end its desktop, and may have.
	Asleep bool `json:"asleep,omitempty"`
	// Frozen says that the desktop was frozen, or is about to be.
	Frozen bool `json:"frozen,omitempty"`
	// Events is where the numbers of the last supervisor's events started.
	Events uint64        `json:"events"`
	Exit   *control.Exit `json:"exit,omitempty"`
	// Epoch is the newest of the lease. Unlike the rest it is the profile's and counts
	// for its next run too (X26).
	Epoch lease.Epoch `json:"epoch,omitempty"`
	// Audit is the newest line of the profile's audit file: one that ends before it was
	// cut (X39).
	Audit audit.Head `json:"audit,omitzero"`
}

const (
	recordVersion = 1
	maxRecord     = 64 << 10
)

// loadRecord returns the record of this run, and whether there is any. One of another
// run says nothing about this one but its epoch.
func loadRecord(dir *os.Root, instance string) (r record, exists bool, err error) {
	empty := record{V: recordVersion, Instance: instance}
	f, err := dir.Open(recordName)
	if os.IsNotExist(err) {
		return empty, false, nil
	}
	if err != nil {
		return empty, true, fmt.Errorf("load screen record: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxRecord))
	if err != nil {
		return empty, true, fmt.Errorf("load screen record: %w", err)
	}
	if err := json.Unmarshal(text, &r); err != nil {
		return empty, true, fmt.Errorf("load screen record: %w", err)
	}
	if r.V != recordVersion || r.Instance != instance {
		empty.Epoch, empty.Audit = r.Epoch, r.Audit
		return empty, true, nil
	}
	return r, true, nil
}

// save replaces the record whole: a reader sees the old one or the new one.
func (r record) save(dir *os.Root) error {
	text, err := json.Marshal(r)
	if err != nil {
		return fmt.Errorf("save screen record: %w", err)
	}
	if err := replaceFile(dir, recordName, text); err != nil {
		return fmt.Errorf("save screen record: %w", err)
	}
	return nil
}

// replaceFile replaces a file whole: a reader sees the old one or the new one.
func replaceFile(dir *os.Root, name string, text []byte) error {
	temporary := name + ".new"
	if err := dir.WriteFile(temporary, text, 0o600); err != nil {
		return err
	}
	return dir.Rename(temporary, name)
}
