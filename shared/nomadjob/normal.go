// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"encoding/json"
	"reflect"
	"slices"
	"strings"
)

// Normal is a record's spec in the one form that equal records have, whoever wrote them:
// defaults filled in, durations and sets in one spelling. Members that this program does
// not know stay, so that they are seen. A spec that cannot be read stays as it is.
func Normal(kind Kind, spec json.RawMessage) json.RawMessage {
	var known any
	switch kind {
	case ProfileKind:
		p := DefaultProfile()
		if json.Unmarshal(spec, &p) != nil {
			return spec
		}
		if p.StartTimeout != "" {
			p.StartTimeout = Duration(p.StartTimeout)
		}
		p.AwayLimit, p.IdleStop = Duration(p.AwayLimit), Duration(p.IdleStop)
		known = p
	case PlacementKind:
		p := DefaultPlacement()
		if json.Unmarshal(spec, &p) != nil {
			return spec
		}
		slices.Sort(p.Datacenters)
		slices.Sort(p.NodeClasses)
		known = p
	default:
		return spec
	}
	all := map[string]any{}
	if json.Unmarshal(spec, &all) != nil {
		return spec
	}
	for _, name := range members(known) {
		delete(all, name)
	}
	text, err := json.Marshal(known)
	if err != nil || json.Unmarshal(text, &all) != nil {
		return spec
	}
	out, err := Canonical(all)
	if err != nil {
		return spec
	}
	return out
}

// members are the JSON names of a struct's fields.
func members(v any) []string {
	t := reflect.TypeOf(v)
	out := make([]string, t.NumField())
	for i := range out {
		out[i], _, _ = strings.Cut(t.Field(i).Tag.Get("json"), ",")
	}
	return out
}
