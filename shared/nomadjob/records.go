// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// DefaultPrefix is the first part of records' paths.
const DefaultPrefix = "botscreen"

// Records are the records of a cluster: variables below a prefix.
type Records struct {
	Client *api.Client
	// Prefix is the first part of every path, DefaultPrefix unless told otherwise.
	Prefix string
}

// ErrNoRecord says that there is no such record.
var ErrNoRecord = errors.New("no such record")

// ConflictError says that a record is not as the writer last saw it.
type ConflictError struct {
	Path    string
	Planned uint64 // the index the writer knew; 0: it expected none
	Found   uint64
	// Current is the record that is there; nil where the token may not read it.
	Current *Record
}

func (e *ConflictError) Error() string {
	return fmt.Sprintf("write %s: index %d, planned against %d", e.Path, e.Found, e.Planned)
}

// Path is where a record is kept.
func (r Records) Path(kind Kind, name string) string {
	return r.Prefix + "/" + string(kind) + "/" + name
}

// Read gives a record, or ErrNoRecord.
func (r Records) Read(ctx context.Context, kind Kind, namespace, name string) (Record, error) {
	v, _, err := r.Client.Variables().Peek(r.Path(kind, name), (&api.QueryOptions{Namespace: namespace}).WithContext(ctx))
	if err != nil {
		return Record{}, fmt.Errorf("read %s: %w", r.Path(kind, name), err)
	}
	if v == nil {
		return Record{}, fmt.Errorf("read %s: %w", r.Path(kind, name), ErrNoRecord)
	}
	return fromVariable(kind, name, v)
}

// Write puts a record in the place of the one with the index; 0 means that there must be
// none. It gives the record as written. The error is a *ConflictError where another one
// is there. A lost answer is found out: a record with exactly our items is ours.
func (r Records) Write(ctx context.Context, rec Record, index uint64) (Record, error) {
	items, err := rec.items()
	if err != nil {
		return Record{}, err
	}
	path := r.Path(rec.Kind, rec.Name)
	v := &api.Variable{Namespace: rec.Namespace, Path: path, Items: items, ModifyIndex: index}
	write := r.Client.Variables().CheckedUpdate
	if index == 0 {
		write = r.Client.Variables().CheckedCreate
	}
	out, _, err := write(v, (&api.WriteOptions{Namespace: rec.Namespace}).WithContext(ctx))
	if err == nil {
		rec.Index = out.ModifyIndex
		return rec, nil
	}
	var lost api.ErrCASConflict
	if !errors.As(err, &lost) || lost.Conflict == nil {
		return Record{}, fmt.Errorf("write %s: %w", path, err)
	}
	if maps.Equal(lost.Conflict.Items, items) {
		rec.Index = lost.Conflict.ModifyIndex
		return rec, nil
	}
	return Record{}, conflict(path, rec.Kind, rec.Name, index, lost.Conflict)
}

// Delete removes a record that has the index. One that is gone already is no error.
func (r Records) Delete(ctx context.Context, kind Kind, namespace, name string, index uint64) error {
	path := r.Path(kind, name)
	_, err := r.Client.Variables().CheckedDelete(path, index, (&api.WriteOptions{Namespace: namespace}).WithContext(ctx))
	var lost api.ErrCASConflict
	switch {
	case err == nil:
		return nil
	case errors.As(err, &lost) && lost.Conflict != nil:
		if lost.Conflict.ModifyIndex == 0 {
			return nil // there is none
		}
		return conflict(path, kind, name, index, lost.Conflict)
	}
	return fmt.Errorf("delete %s: %w", path, err)
}

// Names lists the records of a kind in a namespace.
func (r Records) Names(ctx context.Context, kind Kind, namespace string) ([]string, error) {
	prefix := r.Path(kind, "")
	list, _, err := r.Client.Variables().PrefixList(prefix, (&api.QueryOptions{Namespace: namespace}).WithContext(ctx))
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", prefix, err)
	}
	var names []string
	for _, one := range list {
		names = append(names, strings.TrimPrefix(one.Path, prefix))
	}
	return names, nil
}

func conflict(path string, kind Kind, name string, planned uint64, found *api.Variable) error {
	out := &ConflictError{Path: path, Planned: planned, Found: found.ModifyIndex}
	if len(found.Items) > 0 { // without the right to read there are none
		if rec, err := fromVariable(kind, name, found); err == nil {
			out.Current = &rec
		}
	}
	return out
}
