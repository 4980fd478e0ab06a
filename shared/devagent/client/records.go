// SPDX-License-Identifier: MPL-2.0

package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/botscreen/botscreen/shared/devagent/logmon"
	"github.com/botscreen/botscreen/shared/nomadplugin/host"
)

// record is what is kept of a task to find it again. It holds the environment of the
// task, and with it secrets: 0600.
type record struct {
	// Running is the handle of the run that was started, nil between runs.
	Running *host.Record    `json:"running,omitempty"`
	Driver  string          `json:"driver,omitempty"`
	Logmon  *logmon.Process `json:"logmon,omitempty"`
}

// records are the files of one allocation's tasks.
type records struct {
	path string
	// mu guards tasks; a write is whole before the next begins.
	mu    sync.Mutex
	tasks map[string]record
}

// openRecords reads the records of an allocation; none is none. Those that cannot be read
// can still be removed.
func openRecords(dir, allocID string) (*records, error) {
	r := &records{path: filepath.Join(dir, allocID+".json"), tasks: map[string]record{}}
	text, err := os.ReadFile(r.path)
	if errors.Is(err, fs.ErrNotExist) {
		return r, nil
	}
	if err == nil {
		err = json.Unmarshal(text, &r.tasks)
	}
	if err != nil {
		return r, fmt.Errorf("read task records %s: %w", r.path, err)
	}
	return r, nil
}

func (r *records) get(task string) record {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.tasks[task]
}

// update changes the record of a task, in memory and on disk.
func (r *records) update(task string, f func(*record)) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	one := r.tasks[task]
	f(&one)
	r.tasks[task] = one
	text, err := json.Marshal(r.tasks)
	if err != nil {
		return fmt.Errorf("write task records: %w", err)
	}
	tmp := r.path + ".new"
	if err := os.WriteFile(tmp, text, 0o600); err != nil {
		return fmt.Errorf("write task records: %w", err)
	}
	if err := os.Rename(tmp, r.path); err != nil {
		return fmt.Errorf("write task records: %w", err)
	}
	return nil
}

func (r *records) remove() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := os.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove task records: %w", err)
	}
	return nil
}
