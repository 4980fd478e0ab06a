// SPDX-License-Identifier: MPL-2.0

package state

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// table holds the rows of one kind, in memory and as files.
type table[T any] struct {
	name  Table
	dir   string
	codec codec[T]
	rows  map[string]T
	// index is that of the newest change of any row.
	index uint64
}

// file is the form of a row on disk. The key is inside, because file names are
// hashes: keys hold whatever a user writes.
type file struct {
	Key   string          `json:"key"`
	Value json.RawMessage `json:"value"`
}

func newTable[T any](dir string, name Table, c codec[T]) *table[T] {
	return &table[T]{name: name, dir: filepath.Join(dir, string(name)), codec: c, rows: map[string]T{}}
}

func (t *table[T]) setIndex(index uint64) { t.index = index }

func (t *table[T]) path(key string) string {
	sum := sha256.Sum256([]byte(key))
	return filepath.Join(t.dir, hex.EncodeToString(sum[:16])+".json")
}

// load reads all rows. A row that cannot be read is an error: an agent that
// forgets a job or a running desktop in silence is worse than one that does not start.
func (t *table[T]) load() error {
	if err := os.MkdirAll(t.dir, 0o700); err != nil {
		return err
	}
	entries, err := os.ReadDir(t.dir)
	if err != nil {
		return err
	}
	var faults []error
	for _, e := range entries {
		path := filepath.Join(t.dir, e.Name())
		if !strings.HasSuffix(e.Name(), ".json") {
			// The temporary file of a write that a kill interrupted.
			faults = append(faults, os.Remove(path))
			continue
		}
		if err := t.loadRow(path); err != nil {
			faults = append(faults, fmt.Errorf("read %s: %w", path, err))
		}
	}
	return errors.Join(faults...)
}

func (t *table[T]) loadRow(path string) error {
	text, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	var f file
	if err := json.Unmarshal(text, &f); err != nil {
		return err
	}
	row, err := t.codec.decode(f.Key, f.Value)
	if err != nil {
		return err
	}
	t.rows[f.Key] = row
	return nil
}

// change is one row to write, and then to show.
type change interface {
	write() error
	apply(index uint64)
}

type put[T any] struct {
	table   *table[T]
	key     string
	row     T
	durable bool
}

func (p *put[T]) write() error {
	value, err := p.table.codec.encode(p.key, p.row)
	if err != nil {
		return err
	}
	text, err := json.Marshal(file{Key: p.key, Value: value})
	if err != nil {
		return err
	}
	return writeFile(p.table.path(p.key), text, p.durable)
}

func (p *put[T]) apply(index uint64) {
	p.table.rows[p.key] = p.row
	p.table.index = index
}

type remove[T any] struct {
	table *table[T]
	key   string
}

func (r *remove[T]) write() error {
	err := os.Remove(r.table.path(r.key))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

func (r *remove[T]) apply(index uint64) {
	delete(r.table.rows, r.key)
	r.table.index = index
}

// writeFile replaces a file whole (0600). durable waits for the disk: what a user
// gave must survive a power cut, what describes processes need not, because they do
// not survive it either.
func writeFile(path string, text []byte, durable bool) (err error) {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".write-*")
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = tmp.Close()
			_ = os.Remove(tmp.Name())
		}
	}()
	if _, err = tmp.Write(text); err != nil {
		return err
	}
	if durable {
		if err = tmp.Sync(); err != nil {
			return err
		}
	}
	if err = tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), path)
}
