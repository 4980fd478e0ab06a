// SPDX-License-Identifier: MPL-2.0

package hclconfig

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	ctyjson "github.com/zclconf/go-cty/cty/json"
)

// ParseHCL reads the inside of a `config` block as a person writes it into the map that a job or an
// agent carries: every object, block or attribute, becomes a list of one map, repeated blocks one
// list, labels a level each. Templates that refer to variables stay text, for the agent that runs
// the task to evaluate.
func ParseHCL(text string) (map[string]any, error) {
	file, diags := hclsyntax.ParseConfig([]byte(text), "config", hcl.InitialPos)
	if diags.HasErrors() {
		return nil, fmt.Errorf("parse configuration: %w", diags)
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return nil, fmt.Errorf("parse configuration: unexpected body %T", file.Body)
	}
	return parser{src: text}.body(body)
}

type parser struct{ src string }

func (p parser) body(body *hclsyntax.Body) (map[string]any, error) {
	out := map[string]any{}
	for name, attr := range body.Attributes {
		value, err := p.expression(attr.Expr)
		if err != nil {
			return nil, fmt.Errorf("parse configuration: %s: %w", name, err)
		}
		if object, ok := value.(map[string]any); ok {
			value = []map[string]any{object}
		}
		out[name] = value
	}
	for _, block := range body.Blocks {
		inner, err := p.body(block.Body)
		if err != nil {
			return nil, err
		}
		for i := len(block.Labels) - 1; i >= 0; i-- {
			inner = map[string]any{block.Labels[i]: []map[string]any{inner}}
		}
		list, ok := out[block.Type].([]map[string]any)
		if _, taken := out[block.Type]; taken && !ok {
			return nil, fmt.Errorf("parse configuration: %s is both an argument and a block", block.Type)
		}
		out[block.Type] = append(list, inner)
	}
	return out, nil
}

func (p parser) expression(expr hclsyntax.Expression) (any, error) {
	switch e := expr.(type) {
	case *hclsyntax.TemplateExpr:
		return p.template(e)
	case *hclsyntax.TemplateWrapExpr:
		return "${" + p.text(e.Wrapped.Range()) + "}", nil
	case *hclsyntax.TupleConsExpr:
		return p.tuple(e)
	case *hclsyntax.ObjectConsExpr:
		return p.object(e)
	}
	value, diags := expr.Value(&hcl.EvalContext{Functions: functions()})
	if diags.HasErrors() {
		return nil, diags
	}
	return plain(value)
}

func (p parser) tuple(e *hclsyntax.TupleConsExpr) (any, error) {
	list := make([]any, len(e.Exprs))
	for i, item := range e.Exprs {
		value, err := p.expression(item)
		if err != nil {
			return nil, err
		}
		list[i] = value
	}
	return list, nil
}

func (p parser) object(e *hclsyntax.ObjectConsExpr) (any, error) {
	object := make(map[string]any, len(e.Items))
	for _, item := range e.Items {
		key, diags := item.KeyExpr.Value(nil)
		if diags.HasErrors() {
			return nil, diags
		}
		if key.IsNull() || key.Type() != cty.String {
			return nil, fmt.Errorf("object key is not text: %s", p.text(item.KeyExpr.Range()))
		}
		value, err := p.expression(item.ValueExpr)
		if err != nil {
			return nil, err
		}
		if inner, ok := value.(map[string]any); ok {
			value = []map[string]any{inner}
		}
		object[key.AsString()] = value
	}
	return object, nil
}

// template keeps what only the task's agent can evaluate, and escapes what is literal, so that the
// agent's own reading gives the literal back.
func (p parser) template(e *hclsyntax.TemplateExpr) (any, error) {
	var out strings.Builder
	for _, part := range e.Parts {
		literal, ok := part.(*hclsyntax.LiteralValueExpr)
		if !ok {
			out.WriteString("${" + p.text(part.Range()) + "}")
			continue
		}
		if literal.Val.Type() != cty.String {
			return nil, fmt.Errorf("template part is not text: %s", p.text(part.Range()))
		}
		out.WriteString(strings.NewReplacer("${", "$${", "%{", "%%{").Replace(literal.Val.AsString()))
	}
	return out.String(), nil
}

func (p parser) text(r hcl.Range) string { return p.src[r.Start.Byte:r.End.Byte] }

// plain is a value as encoding/json would have read it, with whole numbers kept exact.
func plain(value cty.Value) (any, error) {
	if !value.IsWhollyKnown() {
		return nil, fmt.Errorf("value is not known")
	}
	encoded, err := ctyjson.Marshal(value, value.Type())
	if err != nil {
		return nil, err
	}
	decoder := json.NewDecoder(strings.NewReader(string(encoded)))
	decoder.UseNumber()
	var out any
	if err := decoder.Decode(&out); err != nil {
		return nil, err
	}
	return out, nil
}
