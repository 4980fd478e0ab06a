// SPDX-License-Identifier: MPL-2.0

package jobfile

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/ext/typeexpr"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// variable is one declared input of a job file.
type variable struct {
	name    string
	at      hcl.Range
	typ     cty.Type
	value   cty.Value
	present bool
}

// evalContext reads the variable and locals blocks, gives the variables their
// values and returns what the rest of the file is evaluated with.
func (p *parser) evalContext(top *section, o Options) *hcl.EvalContext {
	declared := p.declarations(top)
	p.assignFile(declared, o.VarContent)
	p.assignText(declared, o.Assignments)
	values := map[string]cty.Value{}
	for _, name := range slices.Sorted(maps.Keys(declared)) {
		v := declared[name]
		if !v.present {
			p.fault(v.at, "Unset variable "+quote(name),
				"A used variable must be set or have a default value; give it with -var "+name+"=VALUE.")
			continue
		}
		values[name] = v.value
	}
	if p.diags.HasErrors() {
		return nil
	}
	ctx := &hcl.EvalContext{
		Functions: functions,
		Variables: map[string]cty.Value{"var": cty.ObjectVal(values), "local": cty.EmptyObjectVal},
	}
	p.locals(top, ctx)
	if p.diags.HasErrors() {
		return nil
	}
	return ctx
}

func (p *parser) declarations(top *section) map[string]*variable {
	declared := map[string]*variable{}
	top.blocks("variable", 1, func(s *section) {
		v := &variable{name: s.labels[0], at: s.at, typ: cty.DynamicPseudoType}
		if previous, twice := declared[v.name]; twice {
			p.fault(v.at, "Duplicate variable", fmt.Sprintf("Variable %q is already declared at %s.", v.name, previous.at))
			return
		}
		declared[v.name] = v
		p.declare(s, v)
	})
	return declared
}

func (p *parser) declare(s *section, v *variable) {
	if attr := s.take("type"); attr != nil {
		typ, diags := typeexpr.TypeConstraint(attr.Expr)
		p.diags = append(p.diags, diags...)
		if !diags.HasErrors() {
			v.typ = typ
		}
	}
	if attr := s.take("default"); attr != nil {
		value, diags := attr.Expr.Value(&hcl.EvalContext{Functions: functions})
		p.diags = append(p.diags, diags...)
		if !diags.HasErrors() {
			p.assign(v, value, attr.Expr.Range())
		}
	}
	s.take("description")
	s.take("sensitive")
	s.done()
}

// assign converts a value to the variable's type and keeps it.
func (p *parser) assign(v *variable, value cty.Value, at hcl.Range) {
	converted, err := convert.Convert(value, v.typ)
	if err != nil {
		p.fault(at, "Invalid value for variable", fmt.Sprintf("The value of variable %q is not of its type: %s.", v.name, err))
		return
	}
	v.value, v.present = converted, true
}

func (p *parser) assignFile(declared map[string]*variable, text string) {
	if text == "" {
		return
	}
	p.varSrc = []byte(text)
	body := p.syntax(p.varSrc, "variables")
	if body == nil {
		return
	}
	for _, block := range body.Blocks {
		p.fault(block.TypeRange, "Unexpected block", "A variable file holds name = value lines only.")
	}
	for _, name := range slices.Sorted(maps.Keys(body.Attributes)) {
		attr := body.Attributes[name]
		v, known := declared[name]
		if !known {
			p.undefined(name, attr.NameRange)
			continue
		}
		value, diags := attr.Expr.Value(&hcl.EvalContext{Functions: functions})
		p.diags = append(p.diags, diags...)
		if !diags.HasErrors() {
			p.assign(v, value, attr.Expr.Range())
		}
	}
}

func (p *parser) assignText(declared map[string]*variable, texts map[string]string) {
	for _, name := range slices.Sorted(maps.Keys(texts)) {
		at := hcl.Range{Filename: "-var " + name, Start: hcl.InitialPos, End: hcl.InitialPos}
		v, known := declared[name]
		if !known {
			p.undefined(name, at)
			continue
		}
		if v.typ == cty.String || v.typ == cty.DynamicPseudoType {
			p.assign(v, cty.StringVal(texts[name]), at)
			continue
		}
		if fault := Guard([]byte(texts[name]), at.Filename); fault != nil {
			p.diags = append(p.diags, fault)
			continue
		}
		expr, diags := hclsyntax.ParseExpression([]byte(texts[name]), at.Filename, hcl.InitialPos)
		if !diags.HasErrors() {
			var value cty.Value
			var more hcl.Diagnostics
			value, more = expr.Value(&hcl.EvalContext{Functions: functions})
			if diags = append(diags, more...); !diags.HasErrors() {
				p.assign(v, value, at)
			}
		}
		p.diags = append(p.diags, diags...)
	}
}

func (p *parser) undefined(name string, at hcl.Range) {
	p.fault(at, "Undefined variable", fmt.Sprintf("A value is given for variable %q, which this job file does not declare.", name))
}

// locals evaluates the locals blocks in any order in which they can be.
func (p *parser) locals(top *section, ctx *hcl.EvalContext) {
	waiting := map[string]*hclsyntax.Attribute{}
	top.blocks("locals", 0, func(s *section) {
		for name, attr := range s.body.Attributes {
			if previous, twice := waiting[name]; twice {
				p.fault(attr.NameRange, "Duplicate local", fmt.Sprintf("Local %q is already defined at %s.", name, previous.NameRange))
			}
			waiting[name] = attr
			s.take(name)
		}
		s.done()
	})
	ready := map[string]cty.Value{}
	for _, name := range slices.Sorted(maps.Keys(waiting)) {
		waiting[name].Expr = p.keepRuntime(waiting[name].Expr, false)
	}
	for len(waiting) > 0 {
		progress := false
		for _, name := range slices.Sorted(maps.Keys(waiting)) {
			if !localsReady(waiting[name].Expr, waiting) {
				continue
			}
			value, diags := waiting[name].Expr.Value(ctx)
			p.diags = append(p.diags, diags...)
			delete(waiting, name)
			progress = true
			if !diags.HasErrors() {
				ready[name] = value
				ctx.Variables["local"] = cty.ObjectVal(ready)
			}
		}
		if !progress {
			for _, name := range slices.Sorted(maps.Keys(waiting)) {
				p.fault(waiting[name].NameRange, "Circular locals", fmt.Sprintf("Local %q depends on itself.", name))
			}
			return
		}
	}
}

// localsReady says whether an expression needs none of the waiting locals.
func localsReady(e hclsyntax.Expression, waiting map[string]*hclsyntax.Attribute) bool {
	for _, t := range e.Variables() {
		if t.RootName() != "local" {
			continue
		}
		if len(t) < 2 {
			return len(waiting) == 1
		}
		if step, ok := t[1].(hcl.TraverseAttr); ok && waiting[step.Name] != nil {
			return false
		}
	}
	return true
}

// VariableFile renders assignments as the text of a variable file, for an agent
// that parses the job file itself: a variable of type string is quoted, the
// value of any other is an expression already. Variables that the job file does not
// declare are rendered as strings, so that the agent names them as undefined.
func VariableFile(src []byte, assignments map[string]string) (string, error) {
	p := &parser{src: src, name: "input.hcl"}
	var declared map[string]*variable
	if body := p.syntax(src, p.name); body != nil {
		declared = p.declarations(p.section(body, "a job file"))
	}
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(assignments)) {
		if !hclsyntax.ValidIdentifier(name) {
			return "", fmt.Errorf("variable name %q: not an identifier", name)
		}
		value := assignments[name]
		v := declared[name]
		if v == nil || v.typ == cty.String || v.typ == cty.DynamicPseudoType {
			value = quote(value)
		}
		fmt.Fprintf(&b, "%s = %s\n", name, value)
	}
	return b.String(), nil
}
