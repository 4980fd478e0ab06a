// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// exact are parts of a job in which an addition is a change too: elsewhere Nomad fills in
// defaults that nobody wrote.
var exact = []string{"Config", "Env", "Meta", "Constraints", "TaskGroups", "Tasks", "Templates", "Datacenters"}

// Drift lists where a job in Nomad is not as it was rendered, each as "path: found → wanted",
// sorted. What Nomad fills in by itself is none.
func Drift(wanted, found *api.Job) ([]string, error) {
	w, err := tree(wanted)
	if err != nil {
		return nil, err
	}
	f, err := tree(found)
	if err != nil {
		return nil, err
	}
	forget(w)
	forget(f)
	var d drift
	d.compare("", w, f)
	slices.Sort(d)
	return d, nil
}

// forget takes out what a restart leaves in a job: one that somebody asked for is done, and
// nothing to put right.
func forget(job any) {
	j, _ := job.(map[string]any)
	meta, _ := j["Meta"].(map[string]any)
	delete(meta, MetaGeneration)
	delete(meta, MetaReason)
}

func tree(job *api.Job) (any, error) {
	text, err := json.Marshal(job)
	if err != nil {
		return nil, fmt.Errorf("job: %w", err)
	}
	var out any
	return out, json.Unmarshal(text, &out)
}

type drift []string

func (d *drift) compare(path string, wanted, found any) {
	switch w := wanted.(type) {
	case nil:
		d.added(path, found)
	case map[string]any:
		f, _ := found.(map[string]any)
		d.maps(path, w, f)
	case []any:
		f, _ := found.([]any)
		d.lists(path, w, f)
	default:
		if wanted != found {
			d.add(path, found, wanted)
		}
	}
}

// added notes what is there in a place that must hold nothing but ours.
func (d *drift) added(path string, found any) {
	if !isExact(path) {
		return
	}
	switch f := found.(type) {
	case map[string]any:
		d.maps(path, nil, f)
		return
	case []any:
		if len(f) == 0 {
			return
		}
	case nil:
		return
	}
	d.add(path, found, nil)
}

func (d *drift) maps(path string, wanted, found map[string]any) {
	for key, w := range wanted {
		d.compare(join(path, key), w, found[key])
	}
	if !isExact(path) {
		return
	}
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if _, ours := wanted[key]; !ours {
			d.add(join(path, key), found[key], nil)
		}
	}
}

func (d *drift) lists(path string, wanted, found []any) {
	for i := range max(len(wanted), len(found)) {
		at := fmt.Sprintf("%s[%d]", path, i)
		switch {
		case i >= len(found):
			d.add(at, nil, wanted[i])
		case i >= len(wanted):
			d.add(at, found[i], nil)
		default:
			d.compare(at, wanted[i], found[i])
		}
	}
}

func (d *drift) add(path string, found, wanted any) {
	if strings.Contains(path, ".Env.") { // what somebody put there may be a secret
		found, wanted = presence(found), presence(wanted)
		if found == wanted {
			*d = append(*d, path+": another value")
			return
		}
	}
	*d = append(*d, fmt.Sprintf("%s: %s → %s", path, brief(found), brief(wanted)))
}

func presence(v any) any {
	if v == nil {
		return nil
	}
	return "set"
}

func join(path, key string) string {
	if path == "" {
		return key
	}
	return path + "." + key
}

func isExact(path string) bool {
	last := path[strings.LastIndexByte(path, '.')+1:]
	return slices.Contains(exact, last)
}

// brief is a value in a few words: lists and blocks that were added can be large, and an
// environment may hold what nobody wants in a plan.
func brief(v any) string {
	switch v := v.(type) {
	case nil:
		return "none"
	case map[string]any:
		if name, ok := v["Name"].(string); ok {
			return "block " + name
		}
		return fmt.Sprintf("block of %d", len(v))
	case []any:
		return fmt.Sprintf("list of %d", len(v))
	}
	text, _ := json.Marshal(v)
	if len(text) > 80 {
		text = append(text[:77:77], "…"...)
	}
	return string(text)
}
