// SPDX-License-Identifier: MPL-2.0

package jobfile

import (
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"
)

// section reads one block. Each method takes an argument or a block by name;
// done refuses by name what nobody took.
type section struct {
	p      *parser
	body   *hclsyntax.Body
	what   string
	at     hcl.Range
	labels []string
	taken  map[string]bool
	known  []string
}

func (p *parser) section(body *hclsyntax.Body, what string) *section {
	return &section{p: p, body: body, what: what, at: body.SrcRange, taken: map[string]bool{}}
}

// take gives the named argument, or nil where it is not written.
func (s *section) take(name string) *hclsyntax.Attribute {
	s.taken[name] = true
	s.known = append(s.known, name)
	return s.body.Attributes[name]
}

// value evaluates the named argument; ok is false where it is not written or wrong.
func (s *section) value(name string, want cty.Type) (v cty.Value, at hcl.Range, ok bool) {
	attr := s.take(name)
	if attr == nil {
		return cty.NilVal, hcl.Range{}, false
	}
	v, ok = s.p.evaluate(attr.Expr, want, "Unsuitable value for "+name)
	return v, attr.Expr.Range(), ok
}

// evaluate gives the value of an expression as the wanted type; a null is an
// argument that was not written.
func (p *parser) evaluate(e hclsyntax.Expression, want cty.Type, summary string) (cty.Value, bool) {
	kept := p.keepRuntime(e, false)
	v, diags := kept.Value(p.ctx)
	p.diags = append(p.diags, diags...)
	if diags.HasErrors() || v.IsNull() {
		return cty.NilVal, false
	}
	converted, err := convert.Convert(v, want)
	if err != nil {
		p.fault(e.Range(), summary, fmt.Sprintf("It must be %s: %s.", friendly(want), err))
		return cty.NilVal, false
	}
	if !converted.IsWhollyKnown() {
		p.fault(e.Range(), summary, "Its value is not known.")
		return cty.NilVal, false
	}
	if converted.IsNull() {
		return cty.NilVal, false
	}
	return converted, true
}

func friendly(t cty.Type) string {
	if t.IsPrimitiveType() {
		return "a " + t.FriendlyName()
	}
	return t.FriendlyName()
}

func (s *section) str(name string) *string {
	v, _, ok := s.value(name, cty.String)
	if !ok {
		return nil
	}
	text := v.AsString()
	return &text
}

func (s *section) text(name string) string {
	if p := s.str(name); p != nil {
		return *p
	}
	return ""
}

func (s *section) boolean(name string) *bool {
	v, _, ok := s.value(name, cty.Bool)
	if !ok {
		return nil
	}
	b := v.True()
	return &b
}

func (s *section) integer(name string) *int {
	v, at, ok := s.value(name, cty.Number)
	if !ok {
		return nil
	}
	n, accuracy := v.AsBigFloat().Int64()
	if accuracy != big.Exact || int64(int32(n)) != n {
		s.p.fault(at, "Unsuitable value for "+name, "It must be a whole number of at most 32 bits.")
		return nil
	}
	i := int(n)
	return &i
}

// duration takes text such as "30s", or a number of nanoseconds as Nomad does.
func (s *section) duration(name string) *time.Duration {
	v, at, ok := s.value(name, cty.String)
	if !ok {
		return nil
	}
	text := v.AsString()
	d, err := time.ParseDuration(text)
	if err != nil {
		if n, ok := new(big.Int).SetString(text, 10); ok && n.IsInt64() {
			d, err = time.Duration(n.Int64()), nil
		}
	}
	if err != nil {
		s.p.fault(at, "Unsuitable value for "+name, fmt.Sprintf("Unsuitable duration value: %q is not a duration such as \"30s\" or \"5m\".", text))
		return nil
	}
	return &d
}

func (s *section) texts(name string) []string {
	v, _, ok := s.value(name, cty.List(cty.String))
	if !ok {
		return nil
	}
	var out []string
	for it := v.ElementIterator(); it.Next(); {
		_, e := it.Element()
		if e.IsNull() {
			s.p.fault(s.body.Attributes[name].Expr.Range(), "Unsuitable value for "+name, "An element is null.")
			return nil
		}
		out = append(out, e.AsString())
	}
	return out
}

// textMap takes a map of text, written as a block or as an argument.
func (s *section) textMap(name string) map[string]string {
	var out map[string]string
	put := func(k string, v cty.Value) {
		if out == nil {
			out = map[string]string{}
		}
		out[k] = v.AsString()
	}
	if attr := s.take(name); attr != nil {
		v, ok := s.p.evaluate(attr.Expr, cty.Map(cty.String), "Unsuitable value for "+name)
		if !ok {
			return nil
		}
		for it := v.ElementIterator(); it.Next(); {
			k, e := it.Element()
			if !e.IsNull() {
				put(k.AsString(), e)
			}
		}
	}
	written := out != nil
	s.one(name, func(b *section) {
		if written {
			s.p.fault(b.at, "Duplicate "+name+" block", name+" may not be defined more than once.")
		}
		for _, key := range slices.Sorted(maps.Keys(b.body.Attributes)) {
			if v, _, ok := b.value(key, cty.String); ok {
				put(key, v)
			}
		}
		b.done()
	})
	return out
}

// one reads a block that may stand once; a second one is a fault.
func (s *section) one(name string, read func(*section)) {
	seen := false
	s.each(name, 0, func(b *section) {
		if seen {
			s.p.fault(b.at, "Duplicate "+name+" block", fmt.Sprintf("Only one %s block may stand in %s.", name, s.what))
			return
		}
		seen = true
		read(b)
	})
}

// blocks reads every block of a kind that has the given number of labels.
func (s *section) blocks(name string, labels int, read func(*section)) { s.each(name, labels, read) }

func (s *section) each(name string, labels int, read func(*section)) {
	s.taken[name+" block"] = true
	s.known = append(s.known, name)
	for _, block := range s.body.Blocks {
		if block.Type != name {
			continue
		}
		if len(block.Labels) != labels {
			s.p.fault(block.DefRange(), "Wrong number of labels", fmt.Sprintf("A %s block has %d labels; this one has %d.", name, labels, len(block.Labels)))
			continue
		}
		b := s.p.section(block.Body, what(name, block.Labels))
		b.at, b.labels = block.DefRange(), block.Labels
		read(b)
	}
}

func what(kind string, labels []string) string {
	if len(labels) == 0 {
		return "the " + kind + " block"
	}
	return fmt.Sprintf("%s %q", kind, strings.Join(labels, " "))
}

// done refuses every argument and block that nobody asked for.
func (s *section) done() {
	for _, name := range slices.Sorted(maps.Keys(s.body.Attributes)) {
		if !s.taken[name] {
			s.p.fault(s.body.Attributes[name].NameRange, "Unsupported argument",
				fmt.Sprintf("An argument named %q is not expected in %s.%s", name, s.what, s.hint(name)))
		}
	}
	for _, block := range s.body.Blocks {
		if !s.taken[block.Type+" block"] {
			s.p.fault(block.TypeRange, "Unsupported block type",
				fmt.Sprintf("Blocks of type %q are not expected in %s.%s", block.Type, s.what, s.hint(block.Type)))
		}
	}
}

// hint says why a name of Nomad's language is refused, or what was perhaps meant.
func (s *section) hint(name string) string {
	if slices.Contains(s.known, name) {
		return " Its form is wrong: a block is written name { }, an argument name = value."
	}
	if unsupported[name] {
		return " It is part of Nomad's job language that the embedded agent does not run."
	}
	for _, known := range s.known {
		if near(name, known) {
			return fmt.Sprintf(" Did you mean %q?", known)
		}
	}
	return ""
}

// near says whether two names differ by one letter more, less, other or swapped.
func near(a, b string) bool {
	if len(a) > len(b) {
		a, b = b, a
	}
	if len(b)-len(a) > 1 || len(a) < 3 {
		return false
	}
	i := 0
	for i < len(a) && a[i] == b[i] {
		i++
	}
	if len(a) < len(b) {
		return a[i:] == b[i+1:]
	}
	if i == len(a) {
		return true
	}
	swapped := i+1 < len(a) && a[i] == b[i+1] && a[i+1] == b[i] && a[i+2:] == b[i+2:]
	return swapped || a[i+1:] == b[i+1:]
}

// unsupported names what real job files hold and this agent refuses.
var unsupported = map[string]bool{
	"affinity": true, "artifact": true, "check": true, "connect": true, "consul": true, "csi_plugin": true,
	"device": true, "disconnect": true, "dispatch_payload": true, "dynamic": true, "ephemeral_disk": true,
	"identity": true, "leader": true, "lifecycle": true, "max_client_disconnect": true, "migrate": true,
	"multiregion": true, "numa": true, "parameterized": true, "periodic": true, "scaling": true, "schedule": true,
	"secret": true, "service": true, "shutdown_delay": true, "spread": true, "stop_after_client_disconnect": true,
	"ui": true, "vault": true, "volume": true, "volume_mount": true, "all_at_once": true, "vault_token": true,
	"consul_token": true, "kind": true, "action": true, "dns": true, "host_network": true, "mbits": true,
	"source": true, "vault_grace": true, "wait": true, "change_script": true, "validation": true, "once": true,
}

// quote renders text as an HCL string.
func quote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for i, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r < ' ' || r == 0x7f:
			fmt.Fprintf(&b, `\u%04x`, r)
		case (r == '$' || r == '%') && strings.HasPrefix(s[i+1:], "{"):
			b.WriteRune(r)
			b.WriteRune(r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
