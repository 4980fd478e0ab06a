// SPDX-License-Identifier: MPL-2.0

package task

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"time"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/shared/screen"
)

// recordVersion is the form of all records below; a reader refuses another one.
const recordVersion = 1

// runRecord is one run of a screen as the driver must find it again. It is written
// before anything is launched and lies where only root can write: what runs is believed
// to be ours by this record alone (X38).
type runRecord struct {
	V               int                    `json:"v"`
	Namespace       string                 `json:"namespace"`
	Profile         screen.Profile         `json:"profile"`
	TaskID          ID                     `json:"task_id"`
	AllocID         string                 `json:"alloc_id"`
	TaskName        string                 `json:"task_name"`
	AllocDir        string                 `json:"alloc_dir"`
	JobID           string                 `json:"job_id"`
	Instance        string                 `json:"instance"`
	Isolation       screen.Isolation       `json:"isolation"`
	Image           string                 `json:"image,omitempty"` // exactly this one
	ImageDigest     string                 `json:"image_digest,omitempty"`
	ImageReference  string                 `json:"image_reference,omitempty"` // as the job or the node names it
	StdoutPath      string                 `json:"stdout_path,omitempty"`
	StderrPath      string                 `json:"stderr_path,omitempty"`
	Account         isolation.Account      `json:"account"`
	SupervisorUID   uint32                 `json:"supervisor_uid"`
	Display         int                    `json:"display"`
	Geometry        screen.Geometry        `json:"geometry"`
	Exec            screen.ExecPolicy      `json:"exec"`
	Takeover        screen.TakeoverPolicy  `json:"takeover"`
	KeyboardLayout  string                 `json:"keyboard_layout,omitempty"`
	AgentSocket     screen.AgentSocket     `json:"agent_socket"`
	Viewer          *screen.ViewerListener `json:"viewer,omitempty"`
	ViewerAddress   netip.AddrPort         `json:"viewer_address,omitzero"`
	Idle            screen.IdlePolicy      `json:"idle"`
	Deadline        time.Duration          `json:"deadline_ns,omitempty"`
	MinFreeMemoryMB int                    `json:"min_free_memory_mb,omitempty"`
	Warnings        []string               `json:"warnings,omitempty"`
	Sandbox         isolation.Record       `json:"sandbox"`    // zero until launched
	Supervisor      process.Identity       `json:"supervisor"` // the newest one
	Started         time.Time              `json:"started"`
	Ready           bool                   `json:"ready"`
	Exit            *Exit                  `json:"exit,omitempty"`
}

func (r *runRecord) id() screen.ID { return screen.ID{Namespace: r.Namespace, Profile: r.Profile} }

// profileRecord is what outlives a profile's runs on this node.
type profileRecord struct {
	V           int            `json:"v"`
	Namespace   string         `json:"namespace"`
	Profile     screen.Profile `json:"profile"`
	Slot        uint32         `json:"slot"` // its pair of uids is FirstUID + 2*Slot and the next
	LastDisplay int            `json:"last_display"`
	OwnerUID    uint32         `json:"owner_uid"` // of the data directory; 0 before the first start
	// Epoch is the highest of the lease that a supervisor has told of, 0 before: a lease
	// that is missing or older has been lost (X26).
	Epoch uint64 `json:"epoch,omitempty"`
	// Image is what its sandboxes run; nil before the first of them.
	Image *imageRecord `json:"image,omitempty"`
}

// recordDir holds records of one kind as JSON files in a directory that only root can
// enter.
type recordDir string

func (d recordDir) path(name string) string { return filepath.Join(string(d), name+".json") }

// load returns fs.ErrNotExist when there is none.
func (d recordDir) load(name string, v any) error {
	text, err := os.ReadFile(d.path(name))
	if err != nil {
		return fmt.Errorf("load record: %w", err)
	}
	return decodeRecord(text, v)
}

// errUnreadable says that a record is none, not even another version's.
var errUnreadable = errors.New("it is damaged")

func decodeRecord(text []byte, v any) error {
	var head struct {
		V int `json:"v"`
	}
	if err := json.Unmarshal(text, &head); err != nil {
		return fmt.Errorf("load record: %w: %w", errUnreadable, err)
	}
	if head.V != recordVersion {
		return fmt.Errorf("load record: version %d, this driver reads %d", head.V, recordVersion)
	}
	if err := json.Unmarshal(text, v); err != nil {
		return fmt.Errorf("load record: %w: %w", errUnreadable, err)
	}
	return nil
}

func (d recordDir) save(name string, v any) error {
	text, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("save record: %w", err)
	}
	if err := ensureDir(string(d), 0o700); err != nil {
		return fmt.Errorf("save record: %w", err)
	}
	if err := writeFileFrom(d.path(name), bytes.NewReader(text), 0o600); err != nil {
		return fmt.Errorf("save record: %w", err)
	}
	return nil
}

func (d recordDir) remove(name string) error {
	err := os.Remove(d.path(name))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove record: %w", err)
	}
	return nil
}

// names lists the records there are.
func (d recordDir) names() ([]string, error) {
	entries, err := os.ReadDir(string(d))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list records: %w", err)
	}
	var names []string
	for _, e := range entries {
		if name, ok := bytes.CutSuffix([]byte(e.Name()), []byte(".json")); ok {
			names = append(names, string(name))
		}
	}
	return names, nil
}
