// SPDX-License-Identifier: MPL-2.0

package hclconfig

import (
	"maps"
	"strings"

	"github.com/zclconf/go-cty/cty"
)

// Variables is what "${…}" in a task's configuration may refer to. The zero value has none, as for a
// plugin's own configuration.
type Variables struct {
	// Env is the task's environment: `${NAME}` and `${env["NAME"]}`.
	Env map[string]string
	// Node holds dotted names of the node: "node.unique.id", "node.datacenter", "attr.cpu.arch",
	// "meta.rack". Those under attr. and meta. are reachable below node. as well.
	Node map[string]string
}

// branch is a variable with members; a leaf is a string.
type branch map[string]any

func (v Variables) values() map[string]cty.Value {
	if v.Env == nil && v.Node == nil {
		return nil
	}
	root := branch{}
	for name, value := range v.Env {
		root.put(name, value)
	}
	for name, value := range v.Node {
		root.put(name, value)
		if strings.HasPrefix(name, "attr.") || strings.HasPrefix(name, "meta.") {
			root.put("node."+name, value)
		}
	}
	values := root.members()
	env := make(map[string]cty.Value, len(v.Env))
	for name, value := range v.Env {
		env[name] = cty.StringVal(value)
	}
	values["env"] = cty.MapValEmpty(cty.String)
	if len(env) > 0 {
		values["env"] = cty.MapVal(env)
	}
	return values
}

// put files a value under its dotted name. A name that cannot nest is left out: env[…] has it. Where
// a name is both a value and the parent of others, the parent wins, whichever came first.
func (b branch) put(name, value string) {
	segments := strings.Split(name, ".")
	for _, segment := range segments {
		if segment == "" {
			return
		}
	}
	last := len(segments) - 1
	for _, segment := range segments[:last] {
		child, ok := b[segment].(branch)
		if !ok {
			child = branch{}
			b[segment] = child
		}
		b = child
	}
	if _, taken := b[segments[last]].(branch); !taken {
		b[segments[last]] = value
	}
}

func (b branch) members() map[string]cty.Value {
	values := make(map[string]cty.Value, len(b))
	for name := range maps.Keys(b) {
		switch member := b[name].(type) {
		case branch:
			values[name] = cty.ObjectVal(member.members())
		case string:
			values[name] = cty.StringVal(member)
		}
	}
	return values
}
