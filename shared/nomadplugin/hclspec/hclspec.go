// SPDX-License-Identifier: MPL-2.0

// Package hclspec builds the schemas by which a Nomad agent decodes configuration for a plugin.
//
//	hclspec.Object(hclspec.Fields{
//		"geometry": hclspec.Default(hclspec.Attr("geometry", "string"), hclspec.String("1440x900")),
//		"labels":   hclspec.BlockAttrs("labels", "string"),
//		"docker":   hclspec.Block("docker", hclspec.Object(hclspec.Fields{…})),
//	})
//
// What a schema must respect, because of how agents read HCL:
//
//   - a map or an object is never an Attr: it arrives as a list of maps and does not convert. Use
//     BlockAttrs, or "list(map(string))" and merge
//   - defaults stand in the schema: what is absent arrives as an explicit nil, which overwrites
//     values set before decoding
//   - fractions such as 0.1 arrive as text; durations are strings
package hclspec

import (
	"strconv"
	"strings"

	"github.com/botscreen/botscreen/shared/nomadplugin/proto/hclspecpb"
)

// Spec is one node of a schema.
type Spec = hclspecpb.Spec

// Fields are the entries of an Object by their name in the result.
type Fields map[string]*Spec

// Object is a set of named nodes.
func Object(fields Fields) *Spec {
	return &Spec{Block: &hclspecpb.Spec_Object{Object: &hclspecpb.Object{Attributes: fields}}}
}

// Array is a fixed sequence of nodes.
func Array(values ...*Spec) *Spec {
	return &Spec{Block: &hclspecpb.Spec_Array{Array: &hclspecpb.Array{Values: values}}}
}

// Attr is an optional value; absent it is nil. The type is written as in HCL: string, number, bool,
// any, list(T), set(T), tuple([T, …]).
func Attr(name, typ string) *Spec { return attr(name, typ, false) }

// RequiredAttr is a value that must be given.
func RequiredAttr(name, typ string) *Spec { return attr(name, typ, true) }

func attr(name, typ string, required bool) *Spec {
	return &Spec{Block: &hclspecpb.Spec_Attr{Attr: &hclspecpb.Attr{Name: name, Type: typ, Required: required}}}
}

// Block is a nested block that may occur once; absent it is nil.
func Block(name string, nested *Spec) *Spec { return block(name, nested, false) }

// RequiredBlock is a nested block that must occur once.
func RequiredBlock(name string, nested *Spec) *Spec { return block(name, nested, true) }

func block(name string, nested *Spec, required bool) *Spec {
	return &Spec{Block: &hclspecpb.Spec_BlockValue{
		BlockValue: &hclspecpb.Block{Name: name, Required: required, Nested: nested},
	}}
}

// BlockAttrs is a block whose attributes form a map with values of one type; absent it is nil. It
// accepts `x { k = "v" }` and `x = { k = "v" }`.
func BlockAttrs(name, typ string) *Spec {
	return &Spec{Block: &hclspecpb.Spec_BlockAttrs{BlockAttrs: &hclspecpb.BlockAttrs{Name: name, Type: typ}}}
}

// BlockList is a repeated block in order; absent it is empty. A limit of 0 is none.
func BlockList(name string, minItems, maxItems uint64, nested *Spec) *Spec {
	return &Spec{Block: &hclspecpb.Spec_BlockList{
		BlockList: &hclspecpb.BlockList{Name: name, MinItems: minItems, MaxItems: maxItems, Nested: nested},
	}}
}

// BlockSet is a repeated block without order and duplicates; absent it is empty.
func BlockSet(name string, minItems, maxItems uint64, nested *Spec) *Spec {
	return &Spec{Block: &hclspecpb.Spec_BlockSet{
		BlockSet: &hclspecpb.BlockSet{Name: name, MinItems: minItems, MaxItems: maxItems, Nested: nested},
	}}
}

// BlockMap is a repeated block keyed by at least one label; absent it is empty.
func BlockMap(name string, labels []string, nested *Spec) *Spec {
	return &Spec{Block: &hclspecpb.Spec_BlockMap{
		BlockMap: &hclspecpb.BlockMap{Name: name, Labels: labels, Nested: nested},
	}}
}

// Default is primary, or fallback where primary is absent. The primary must carry its own name.
func Default(primary, fallback *Spec) *Spec {
	return &Spec{Block: &hclspecpb.Spec_Default{Default: &hclspecpb.Default{Primary: primary, Default: fallback}}}
}

// Literal is an HCL expression, such as `["a", "b"]`.
func Literal(expression string) *Spec {
	return &Spec{Block: &hclspecpb.Spec_Literal{Literal: &hclspecpb.Literal{Value: expression}}}
}

// String is the literal of a string, whatever it contains.
func String(value string) *Spec {
	// HCL's quoted strings share Go's escapes for control characters and \u; the template
	// introducers are doubled.
	quoted := strconv.QuoteToASCII(value)
	quoted = strings.NewReplacer("${", "$${", "%{", "%%{", `\a`, `\u0007`, `\b`, `\u0008`,
		`\f`, `\u000c`, `\v`, `\u000b`, `\\`, `\\`).Replace(quoted)
	return Literal(hexEscapes(quoted))
}

// hexEscapes rewrites Go's \xNN, which HCL does not know, as \u00NN.
func hexEscapes(quoted string) string {
	var b strings.Builder
	for i := 0; i < len(quoted); i++ {
		b.WriteByte(quoted[i])
		if quoted[i] != '\\' || i+1 == len(quoted) {
			continue
		}
		i++
		if quoted[i] == 'x' {
			b.WriteString("u00")
			continue
		}
		b.WriteByte(quoted[i])
	}
	return b.String()
}

// Int is the literal of a whole number.
func Int(value int64) *Spec { return Literal(strconv.FormatInt(value, 10)) }

// Bool is the literal of a truth value.
func Bool(value bool) *Spec { return Literal(strconv.FormatBool(value)) }

// Strings is the literal of a list of strings.
func Strings(values ...string) *Spec {
	items := make([]string, len(values))
	for i, value := range values {
		items[i] = String(value).GetLiteral().GetValue()
	}
	return Literal("[" + strings.Join(items, ", ") + "]")
}
