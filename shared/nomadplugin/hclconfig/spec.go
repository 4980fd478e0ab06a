// SPDX-License-Identifier: MPL-2.0

package hclconfig

import (
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hcldec"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"

	"github.com/botscreen/botscreen/shared/nomadplugin/proto/hclspecpb"
)

// maxSpecDepth bounds schemas that a faulty plugin nests without end.
const maxSpecDepth = 64

// Schema is a plugin's description of its configuration, ready to decode with.
type Schema struct {
	spec hcldec.Spec
}

// NewSchema checks and translates a schema.
func NewSchema(spec *hclspecpb.Spec) (*Schema, error) {
	converted, err := convert(spec, "", 0)
	if err != nil {
		return nil, fmt.Errorf("read configuration schema: %w", err)
	}
	return &Schema{spec: converted}, nil
}

// convert translates one node. implied is the name that an enclosing object gives to a node without
// one of its own; nothing else passes a name down.
func convert(spec *hclspecpb.Spec, implied string, depth int) (hcldec.Spec, error) {
	if depth > maxSpecDepth {
		return nil, fmt.Errorf("more than %d levels deep", maxSpecDepth)
	}
	switch b := spec.GetBlock().(type) {
	case *hclspecpb.Spec_Object:
		return convertObject(b.Object, depth)
	case *hclspecpb.Spec_Array:
		return convertArray(b.Array, depth)
	case *hclspecpb.Spec_Attr:
		return convertAttr(b.Attr, implied)
	case *hclspecpb.Spec_BlockAttrs:
		return convertBlockAttrs(b.BlockAttrs, implied)
	case *hclspecpb.Spec_Default:
		return convertDefault(b.Default, depth)
	case *hclspecpb.Spec_Literal:
		return convertLiteral(b.Literal)
	case nil:
		return nil, fmt.Errorf("%sempty node", at(implied))
	default:
		return convertBlock(spec, implied, depth)
	}
}

func convertObject(object *hclspecpb.Object, depth int) (hcldec.Spec, error) {
	out := hcldec.ObjectSpec{}
	for key, field := range object.GetAttributes() {
		converted, err := convert(field, key, depth+1)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", key, err)
		}
		out[key] = converted
	}
	return out, nil
}

func convertArray(array *hclspecpb.Array, depth int) (hcldec.Spec, error) {
	out := hcldec.TupleSpec{}
	for i, value := range array.GetValues() {
		converted, err := convert(value, "", depth+1)
		if err != nil {
			return nil, fmt.Errorf("[%d]: %w", i, err)
		}
		out = append(out, converted)
	}
	return out, nil
}

func convertAttr(attr *hclspecpb.Attr, implied string) (hcldec.Spec, error) {
	name, err := named(attr.GetName(), implied, "attribute")
	if err != nil {
		return nil, err
	}
	typ, err := parseType(attr.GetType())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &hcldec.AttrSpec{Name: name, Type: typ, Required: attr.GetRequired()}, nil
}

func convertBlockAttrs(block *hclspecpb.BlockAttrs, implied string) (hcldec.Spec, error) {
	name, err := named(block.GetName(), implied, "block_attrs")
	if err != nil {
		return nil, err
	}
	typ, err := parseType(block.GetType())
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return &hcldec.BlockAttrsSpec{TypeName: name, ElementType: typ, Required: block.GetRequired()}, nil
}

func convertDefault(def *hclspecpb.Default, depth int) (hcldec.Spec, error) {
	primary, err := convert(def.GetPrimary(), "", depth+1)
	if err != nil {
		return nil, err
	}
	fallback, err := convert(def.GetDefault(), "", depth+1)
	if err != nil {
		return nil, err
	}
	return &hcldec.DefaultSpec{Primary: primary, Default: fallback}, nil
}

func convertLiteral(literal *hclspecpb.Literal) (hcldec.Spec, error) {
	expr, diags := hclsyntax.ParseExpression([]byte(literal.GetValue()), "literal", hcl.InitialPos)
	if diags.HasErrors() {
		return nil, fmt.Errorf("literal %q: %w", literal.GetValue(), diags)
	}
	value, diags := expr.Value(&hcl.EvalContext{Functions: functions()})
	if diags.HasErrors() {
		return nil, fmt.Errorf("literal %q: %w", literal.GetValue(), diags)
	}
	return &hcldec.LiteralSpec{Value: value}, nil
}

// nestedBlock is what the four kinds of blocks have in common.
type nestedBlock interface {
	GetName() string
	GetNested() *hclspecpb.Spec
}

func convertBlock(spec *hclspecpb.Spec, implied string, depth int) (hcldec.Spec, error) {
	block, kind := blockOf(spec)
	name, err := named(block.GetName(), implied, kind)
	if err != nil {
		return nil, err
	}
	nested, err := convert(block.GetNested(), "", depth+1)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	switch b := block.(type) {
	case *hclspecpb.BlockList:
		low, high, err := limits(b.GetMinItems(), b.GetMaxItems())
		return &hcldec.BlockListSpec{TypeName: name, Nested: nested, MinItems: low, MaxItems: high}, err
	case *hclspecpb.BlockSet:
		low, high, err := limits(b.GetMinItems(), b.GetMaxItems())
		return &hcldec.BlockSetSpec{TypeName: name, Nested: nested, MinItems: low, MaxItems: high}, err
	case *hclspecpb.BlockMap:
		if len(b.GetLabels()) == 0 {
			return nil, fmt.Errorf("%s: a block_map needs a label", name)
		}
		return &hcldec.BlockMapSpec{TypeName: name, LabelNames: b.GetLabels(), Nested: nested}, nil
	default:
		return &hcldec.BlockSpec{TypeName: name, Nested: nested, Required: spec.GetBlockValue().GetRequired()}, nil
	}
}

func blockOf(spec *hclspecpb.Spec) (nestedBlock, string) {
	switch b := spec.GetBlock().(type) {
	case *hclspecpb.Spec_BlockList:
		return b.BlockList, "block_list"
	case *hclspecpb.Spec_BlockSet:
		return b.BlockSet, "block_set"
	case *hclspecpb.Spec_BlockMap:
		return b.BlockMap, "block_map"
	default:
		return spec.GetBlockValue(), "block"
	}
}

// maxItems is a limit on limits: they are counted in an int.
const maxItems = 1 << 30

func limits(low, high uint64) (int, int, error) {
	if low > maxItems || high > maxItems || (high != 0 && low > high) {
		return 0, 0, fmt.Errorf("item limits %d to %d: want at most %d and in order", low, high, maxItems)
	}
	return int(low), int(high), nil
}

func named(name, implied, kind string) (string, error) {
	switch {
	case name != "":
		return name, nil
	case implied != "":
		return implied, nil
	default:
		return "", fmt.Errorf("missing name in %s spec", kind)
	}
}

func parseType(text string) (cty.Type, error) {
	expr, diags := hclsyntax.ParseExpression([]byte(text), "type", hcl.InitialPos)
	if diags.HasErrors() {
		return cty.NilType, fmt.Errorf("type %q: %w", text, diags)
	}
	typ, diags := typeexpr.TypeConstraint(expr)
	if diags.HasErrors() {
		return cty.NilType, fmt.Errorf("type %q: %w", strings.TrimSpace(text), diags)
	}
	return typ, nil
}

func at(name string) string {
	if name == "" {
		return ""
	}
	return name + ": "
}
