// SPDX-License-Identifier: MPL-2.0

package jobfile

import (
	"maps"
	"math/big"
	"slices"

	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// config reads a block whose schema only the plugin knows, in the intermediate form
// that Nomad sends to plugins: a block, and an argument written as { }, is a list of
// maps; blocks of one type make one list; a label is one more level of list and
// map; whole numbers are ints. Objects further inside stay maps, as with Nomad.
func (s *section) config() map[string]any {
	return s.p.bodyMap(s.body)
}

func (p *parser) bodyMap(body *hclsyntax.Body) map[string]any {
	out := map[string]any{}
	for _, name := range slices.Sorted(maps.Keys(body.Attributes)) {
		attr := body.Attributes[name]
		v, ok := p.evaluate(attr.Expr, cty.DynamicPseudoType, "Unsuitable value for "+name)
		if !ok {
			continue
		}
		out[name] = plain(v)
		if _, literal := attr.Expr.(*hclsyntax.ObjectConsExpr); literal {
			out[name] = []map[string]any{members(v)}
		}
	}
	for _, block := range body.Blocks {
		if attr, both := body.Attributes[block.Type]; both {
			p.fault(block.TypeRange, "Duplicate "+block.Type, "It is already written as an argument at "+attr.NameRange.String()+".")
			continue
		}
		inner := p.bodyMap(block.Body)
		for _, label := range slices.Backward(block.Labels) {
			inner = map[string]any{label: []map[string]any{inner}}
		}
		list, _ := out[block.Type].([]map[string]any)
		out[block.Type] = append(list, inner)
	}
	return out
}

// plain gives a value as the maps, lists and scalars of the API.
func plain(v cty.Value) any {
	switch t := v.Type(); {
	case v.IsNull():
		return nil
	case t == cty.String:
		return v.AsString()
	case t == cty.Bool:
		return v.True()
	case t == cty.Number:
		return smallest(v.AsBigFloat())
	case t.IsObjectType(), t.IsMapType():
		return members(v)
	default:
		return list(v)
	}
}

func members(v cty.Value) map[string]any {
	out := map[string]any{}
	for it := v.ElementIterator(); it.Next(); {
		k, e := it.Element()
		out[k.AsString()] = plain(e)
	}
	return out
}

// list gives a list that holds nothing but objects as a list of maps.
func list(v cty.Value) any {
	all := []any{}
	var objects []map[string]any
	for it := v.ElementIterator(); it.Next(); {
		_, e := it.Element()
		all = append(all, plain(e))
		if object, ok := all[len(all)-1].(map[string]any); ok {
			objects = append(objects, object)
		}
	}
	if len(objects) > 0 && len(objects) == len(all) {
		return objects
	}
	return all
}

func smallest(n *big.Float) any {
	if i, accuracy := n.Int64(); accuracy == big.Exact {
		return int(i)
	}
	f, _ := n.Float64()
	return f
}
