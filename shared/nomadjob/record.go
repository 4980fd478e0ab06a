// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

// Kind is what a record describes.
type Kind string

// Kinds of records. A record is one Nomad Variable: PREFIX/KIND/NAME.
const (
	ProfileKind   Kind = "profile"
	PlacementKind Kind = "placement"
	ImageKind     Kind = "image"
	CatalogKind   Kind = "catalog"
)

// RecordSchema is the form of the records that this program writes.
const RecordSchema = "1"

// Items of a record's variable.
const (
	itemSchema    = "schema"
	itemSpec      = "spec"
	itemHash      = "hash"
	itemManagedBy = "managed_by"
	itemChangedBy = "changed_by"
	itemChangedAt = "changed_at"
)

// Record is what a cluster keeps of a profile, a placement or an image.
type Record struct {
	Kind      Kind
	Namespace string
	Name      string
	// Spec is canonical JSON (Canonical).
	Spec json.RawMessage
	// ManagedBy and ChangedBy are programs' own words about themselves.
	ManagedBy string
	ChangedBy string
	ChangedAt time.Time
	// Index is the variable's modify index; 0 for a record that was never written.
	Index uint64
}

// Ref names this version of the record: NAME@HEX. What it leaves out changes no screen.
func (r Record) Ref() string { return Ref(r.Kind, r.Name, r.Spec) }

// notEssential are fields of a record that no screen depends on.
var notEssential = []string{"id", "name", "namespace", "region", "description", "labels", "force_destroy", "ref", "timeouts",
	"reference_written", "source", "on_default_change", "decided_digest", "decision", "offered_reference", "offered_digest",
	"update_available", "check_error", "recorded"}

// Ref names a version of a record by 12 hex digits of a hash over what screens depend on,
// as far as it is not as by default: an option that a later version adds changes no ref of
// a record that does not use it. The spec is a JSON object; one that is not has the hash of
// its bytes.
func Ref(kind Kind, name string, spec json.RawMessage) string {
	spec = Normal(kind, spec)
	if fields, err := object(spec); err == nil {
		for _, f := range notEssential {
			delete(fields, f)
		}
		if text, err := Canonical(without(fields, defaultsOf(kind))); err == nil {
			spec = text
		}
	}
	sum := sha256.Sum256(spec)
	return name + "@" + hex.EncodeToString(sum[:6])
}

// defaultsOf is the spec of a record that says nothing, as JSON has it.
func defaultsOf(kind Kind) map[string]any {
	var said any
	switch kind {
	case ProfileKind:
		said = DefaultProfile()
	case PlacementKind:
		said = DefaultPlacement()
	}
	text, err := json.Marshal(said)
	if err != nil {
		return nil
	}
	out, err := object(text)
	if err != nil {
		return nil
	}
	return out
}

// object is a JSON object with its numbers as they are written.
func object(text json.RawMessage) (map[string]any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var out map[string]any
	err := d.Decode(&out)
	return out, err
}

// without takes out of an object what is as in the other, in its members too.
func without(fields, other map[string]any) map[string]any {
	for key, value := range fields {
		inner, nested := value.(map[string]any)
		like, known := other[key].(map[string]any)
		switch {
		case nested && known:
			if without(inner, like); len(inner) == 0 {
				delete(fields, key)
			}
		case reflect.DeepEqual(value, other[key]):
			delete(fields, key)
		}
	}
	return fields
}

var refForm = regexp.MustCompile(`^([a-z0-9][a-z0-9-]{0,62})(?:@([0-9a-f]{12}))?$`)

// ParseRef splits NAME or NAME@HEX; hash is empty for a plain name.
func ParseRef(text string) (name, hash string, ok bool) {
	parts := refForm.FindStringSubmatch(text)
	if parts == nil {
		return "", "", false
	}
	return parts[1], parts[2], true
}

// Canonical is JSON with sorted keys, without spaces and without null or empty members,
// so that equal values are equal bytes.
func Canonical(v any) (json.RawMessage, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return nil, err
	}
	return json.Marshal(prune(tree))
}

// prune takes out members that say nothing.
func prune(v any) any {
	m, ok := v.(map[string]any)
	if !ok {
		return v
	}
	for key, value := range m {
		switch value := prune(value).(type) {
		case nil:
			delete(m, key)
		case map[string]any:
			if len(value) == 0 {
				delete(m, key)
			}
		case []any:
			if len(value) == 0 {
				delete(m, key)
			}
		}
	}
	return m
}

// NewerError says that a record was written by a newer program, in a form that this one
// does not know. Such a record is never overwritten.
type NewerError struct {
	Path   string
	Schema string
}

func (e *NewerError) Error() string {
	return fmt.Sprintf("record %s has schema %q; this program knows %s", e.Path, e.Schema, RecordSchema)
}

// DamagedError says that a variable is no record.
type DamagedError struct {
	Path   string
	Reason string
}

func (e *DamagedError) Error() string { return fmt.Sprintf("record %s: %s", e.Path, e.Reason) }

// maxRecordBytes bounds a record, below what a Nomad variable may hold.
const maxRecordBytes = 60 << 10

// items is the record as a variable keeps it.
func (r Record) items() (api.VariableItems, error) {
	items := api.VariableItems{
		itemSchema: RecordSchema, itemSpec: string(r.Spec), itemHash: strings.TrimPrefix(r.Ref(), r.Name+"@"),
		itemManagedBy: r.ManagedBy, itemChangedBy: r.ChangedBy, itemChangedAt: r.ChangedAt.UTC().Format(time.RFC3339Nano),
	}
	size := 0
	for k, v := range items {
		size += len(k) + len(v)
	}
	if size > maxRecordBytes {
		return nil, &DamagedError{Path: string(r.Kind) + "/" + r.Name, Reason: fmt.Sprintf("%d bytes; at most %d", size, maxRecordBytes)}
	}
	return items, nil
}

// fromVariable reads a record.
func fromVariable(kind Kind, name string, v *api.Variable) (Record, error) {
	if schema := v.Items[itemSchema]; schema != RecordSchema {
		if schema == "" {
			return Record{}, &DamagedError{Path: v.Path, Reason: "is no record of botscreen: it has no item \"schema\""}
		}
		return Record{}, &NewerError{Path: v.Path, Schema: schema}
	}
	spec := json.RawMessage(v.Items[itemSpec])
	if !json.Valid(spec) || !bytes.HasPrefix(bytes.TrimSpace(spec), []byte("{")) {
		return Record{}, &DamagedError{Path: v.Path, Reason: "its item \"spec\" is no JSON object"}
	}
	at, _ := time.Parse(time.RFC3339Nano, v.Items[itemChangedAt]) // written by people too: then unknown
	return Record{
		Kind: kind, Namespace: v.Namespace, Name: name, Spec: spec,
		ManagedBy: v.Items[itemManagedBy], ChangedBy: v.Items[itemChangedBy], ChangedAt: at, Index: v.ModifyIndex,
	}, nil
}
