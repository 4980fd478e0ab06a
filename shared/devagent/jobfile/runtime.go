// SPDX-License-Identifier: MPL-2.0

package jobfile

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
)

// defer references: a job file may name things that only the client that runs the
// task knows (${NOMAD_PORT_vnc}, ${attr.kernel.name}, ${env["X"]}). HCL would refuse
// them as unknown variables, so they are replaced in the syntax tree by a literal
// with their own text before anything is evaluated.

// keepRuntime replaces every reference to something that this file does not
// define by its text. inTemplate says that e stands inside ${ }, where any name may
// be a variable of the task; outside of it only names that belong to the client are
// taken, so that a forgotten quote stays an error.
func (p *parser) keepRuntime(e hclsyntax.Expression, inTemplate bool) hclsyntax.Expression {
	switch e := e.(type) {
	case *hclsyntax.ScopeTraversalExpr:
		return p.keepReference(e, inTemplate)
	case *hclsyntax.TemplateExpr:
		for i := range e.Parts {
			e.Parts[i] = p.keepRuntime(e.Parts[i], true)
		}
	case *hclsyntax.TemplateWrapExpr:
		e.Wrapped = p.keepRuntime(e.Wrapped, true)
	case *hclsyntax.TemplateJoinExpr:
		e.Tuple = p.keepRuntime(e.Tuple, true)
	case *hclsyntax.ParenthesesExpr:
		e.Expression = p.keepRuntime(e.Expression, inTemplate)
	case *hclsyntax.FunctionCallExpr:
		for i := range e.Args {
			e.Args[i] = p.keepRuntime(e.Args[i], inTemplate)
		}
	case *hclsyntax.TupleConsExpr:
		for i := range e.Exprs {
			e.Exprs[i] = p.keepRuntime(e.Exprs[i], inTemplate)
		}
	case *hclsyntax.ObjectConsExpr:
		for i, item := range e.Items {
			e.Items[i].KeyExpr = p.keepKey(item.KeyExpr)
			e.Items[i].ValueExpr = p.keepRuntime(item.ValueExpr, inTemplate)
		}
	default:
		p.keepInOperators(e, inTemplate)
	}
	return e
}

// keepInOperators is keepRuntime for the expressions that compute.
func (p *parser) keepInOperators(e hclsyntax.Expression, inTemplate bool) {
	switch e := e.(type) {
	case *hclsyntax.ConditionalExpr:
		e.Condition = p.keepRuntime(e.Condition, inTemplate)
		e.TrueResult = p.keepRuntime(e.TrueResult, inTemplate)
		e.FalseResult = p.keepRuntime(e.FalseResult, inTemplate)
	case *hclsyntax.BinaryOpExpr:
		e.LHS = p.keepRuntime(e.LHS, inTemplate)
		e.RHS = p.keepRuntime(e.RHS, inTemplate)
	case *hclsyntax.UnaryOpExpr:
		e.Val = p.keepRuntime(e.Val, inTemplate)
	case *hclsyntax.IndexExpr:
		e.Collection = p.keepRuntime(e.Collection, inTemplate)
		e.Key = p.keepRuntime(e.Key, inTemplate)
	case *hclsyntax.RelativeTraversalExpr:
		e.Source = p.keepRuntime(e.Source, inTemplate)
	case *hclsyntax.SplatExpr:
		e.Source = p.keepRuntime(e.Source, inTemplate)
	}
	// A for expression is left alone: its own names would be taken for the task's.
}

// keepKey leaves a bare key (it is a name, not a reference) and looks into a
// computed one.
func (p *parser) keepKey(e hclsyntax.Expression) hclsyntax.Expression {
	key, ok := e.(*hclsyntax.ObjectConsKeyExpr)
	if !ok {
		return e
	}
	if _, name := key.Wrapped.(*hclsyntax.ScopeTraversalExpr); name && !key.ForceNonLiteral {
		return key
	}
	key.Wrapped = p.keepRuntime(key.Wrapped, false)
	return key
}

func (p *parser) keepReference(e *hclsyntax.ScopeTraversalExpr, inTemplate bool) hclsyntax.Expression {
	root := e.Traversal.RootName()
	if root == "var" || root == "local" || (!inTemplate && !clientName(root)) {
		return e
	}
	return &hclsyntax.LiteralValueExpr{
		Val:      cty.StringVal("${" + string(e.SrcRange.SliceBytes(p.source(e.SrcRange))) + "}"),
		SrcRange: e.SrcRange,
	}
}

// clientName says whether a bare name belongs to the client that runs the task.
func clientName(root string) bool {
	switch root {
	case "env", "node", "attr", "meta", "unique", "device":
		return true
	}
	return strings.HasPrefix(root, "NOMAD_")
}

// source gives the text that a range is in: the job file or the variable file.
func (p *parser) source(r hcl.Range) []byte {
	if r.Filename == p.name {
		return p.src
	}
	return p.varSrc
}
