// SPDX-License-Identifier: MPL-2.0

// Package agentconfig reads the configuration file of the embedded agent: the part
// of Nomad's agent configuration that it knows, in Nomad's own grammar. Everything
// else is refused by name, with file, line and column.
package agentconfig

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/zclconf/go-cty/cty"
	"github.com/zclconf/go-cty/cty/convert"

	"github.com/botscreen/botscreen/shared/devagent/drivers"
	"github.com/botscreen/botscreen/shared/devagent/jobfile"
	"github.com/botscreen/botscreen/shared/nomadplugin/hclconfig"
)

// Config is what a file may say. What it does not say is empty.
type Config struct {
	DataDir, PluginDir, BindAddr, Name, Datacenter, LogLevel string
	HTTPPort                                                 int
	NodeClass                                                string
	Meta                                                     map[string]string
	// DeniedDrivers is the client option driver.denylist.
	DeniedDrivers    []string
	ReservedMemoryMB int
	Plugins          []drivers.Block
}

// Load reads a file.
func Load(path string) (*Config, error) {
	src, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read agent configuration: %w", err)
	}
	return Parse(path, src)
}

// Parse reads the text of a file; name stands in errors.
func Parse(name string, src []byte) (*Config, error) {
	if fault := jobfile.Guard(src, name); fault != nil {
		return nil, faults(hcl.Diagnostics{fault})
	}
	file, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	if diags.HasErrors() {
		return nil, faults(diags)
	}
	r := &reader{src: src, out: &Config{}}
	if body, ok := file.Body.(*hclsyntax.Body); ok {
		r.top(body)
	}
	if r.diags.HasErrors() {
		return nil, faults(r.diags)
	}
	return r.out, nil
}

func faults(diags hcl.Diagnostics) error {
	var lines []string
	for _, d := range diags {
		if d.Severity == hcl.DiagError {
			lines = append(lines, d.Error())
		}
	}
	return fmt.Errorf("%s", strings.Join(lines, "\n"))
}

type reader struct {
	src   []byte
	out   *Config
	diags hcl.Diagnostics
}

func (r *reader) fault(at hcl.Range, format string, args ...any) {
	r.diags = append(r.diags, &hcl.Diagnostic{
		Severity: hcl.DiagError, Summary: "Unsupported agent configuration", Detail: fmt.Sprintf(format, args...), Subject: &at,
	})
}

// known are the readers of one kind of body, by name.
type known struct {
	attributes map[string]func(*hclsyntax.Attribute)
	blocks     map[string]func(*hclsyntax.Block)
}

// body gives each argument and block to its reader and refuses the others.
func (r *reader) body(where string, b *hclsyntax.Body, k known) {
	for _, name := range slices.Sorted(maps.Keys(b.Attributes)) {
		attr := b.Attributes[name]
		if read := k.attributes[name]; read != nil {
			read(attr)
			continue
		}
		r.fault(attr.NameRange, "The embedded agent does not know %q in %s.", name, where)
	}
	for _, block := range b.Blocks {
		if read := k.blocks[block.Type]; read != nil {
			read(block)
			continue
		}
		r.fault(block.TypeRange, "The embedded agent does not know the block %q in %s.", block.Type, where)
	}
}

func (r *reader) top(b *hclsyntax.Body) {
	r.body("the agent configuration", b, known{
		attributes: map[string]func(*hclsyntax.Attribute){
			"data_dir": r.text(&r.out.DataDir), "plugin_dir": r.text(&r.out.PluginDir), "bind_addr": r.text(&r.out.BindAddr),
			"name": r.text(&r.out.Name), "datacenter": r.text(&r.out.Datacenter), "log_level": r.text(&r.out.LogLevel),
			"region": r.only("global"),
		},
		blocks: map[string]func(*hclsyntax.Block){
			"ports": func(b *hclsyntax.Block) {
				r.body("ports", b.Body, known{attributes: map[string]func(*hclsyntax.Attribute){"http": r.number(&r.out.HTTPPort)}})
			},
			"client": r.client,
			"plugin": r.plugin,
			"server": func(b *hclsyntax.Block) {
				r.body("server", b.Body, known{attributes: map[string]func(*hclsyntax.Attribute){"enabled": r.only("true"), "bootstrap_expect": r.only("1")}})
			},
		},
	})
}

func (r *reader) client(b *hclsyntax.Block) {
	options := map[string]string{}
	r.body("client", b.Body, known{
		attributes: map[string]func(*hclsyntax.Attribute){
			"enabled": r.only("true"), "node_class": r.text(&r.out.NodeClass),
			"meta": r.texts(&r.out.Meta), "options": r.texts(&options),
		},
		blocks: map[string]func(*hclsyntax.Block){
			"meta":    r.textBlock("meta", &r.out.Meta),
			"options": r.textBlock("options", &options),
			"reserved": func(b *hclsyntax.Block) {
				r.body("reserved", b.Body, known{attributes: map[string]func(*hclsyntax.Attribute){"memory": r.number(&r.out.ReservedMemoryMB)}})
			},
		},
	})
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if name != "driver.denylist" {
			r.fault(b.TypeRange, "The embedded agent does not know the client option %q.", name)
			continue
		}
		for _, driver := range strings.Split(options[name], ",") {
			r.out.DeniedDrivers = append(r.out.DeniedDrivers, strings.TrimSpace(driver))
		}
	}
}

func (r *reader) plugin(b *hclsyntax.Block) {
	if len(b.Labels) != 1 {
		r.fault(b.TypeRange, "A plugin block has one label, the name of the plugin's file.")
		return
	}
	out := drivers.Block{Name: b.Labels[0]}
	r.body(fmt.Sprintf("plugin %q", b.Labels[0]), b.Body, known{
		attributes: map[string]func(*hclsyntax.Attribute){"args": func(a *hclsyntax.Attribute) {
			v, ok := r.value(a, cty.List(cty.String))
			for it := v.ElementIterator(); ok && it.Next(); {
				_, e := it.Element()
				out.Args = append(out.Args, e.AsString())
			}
		}},
		blocks: map[string]func(*hclsyntax.Block){"config": func(c *hclsyntax.Block) {
			inside := string(r.src[c.OpenBraceRange.End.Byte:c.CloseBraceRange.Start.Byte])
			config, err := hclconfig.ParseHCL(inside)
			if err != nil {
				r.fault(c.TypeRange, "The configuration of plugin %q: %v.", b.Labels[0], err)
				return
			}
			out.Config = config
		}},
	})
	if slices.ContainsFunc(r.out.Plugins, func(p drivers.Block) bool { return p.Name == out.Name }) {
		r.fault(b.TypeRange, "Plugin %q is already configured.", out.Name)
		return
	}
	r.out.Plugins = append(r.out.Plugins, out)
}

// value evaluates an argument that is there; null is refused.
func (r *reader) value(a *hclsyntax.Attribute, want cty.Type) (cty.Value, bool) {
	v, diags := a.Expr.Value(nil)
	r.diags = append(r.diags, diags...)
	if diags.HasErrors() {
		return cty.NilVal, false
	}
	v, err := convert.Convert(v, want)
	if err == nil && (v.IsNull() || !v.IsWhollyKnown() || hasNull(v)) {
		err = fmt.Errorf("a value is null")
	}
	if err != nil {
		r.fault(a.Expr.Range(), "%s: %v.", a.Name, err)
		return cty.NilVal, false
	}
	return v, true
}

func hasNull(v cty.Value) bool {
	if !v.CanIterateElements() {
		return false
	}
	for it := v.ElementIterator(); it.Next(); {
		if _, e := it.Element(); e.IsNull() {
			return true
		}
	}
	return false
}

func (r *reader) text(into *string) func(*hclsyntax.Attribute) {
	return func(a *hclsyntax.Attribute) {
		if v, ok := r.value(a, cty.String); ok {
			*into = v.AsString()
		}
	}
}

func (r *reader) number(into *int) func(*hclsyntax.Attribute) {
	return func(a *hclsyntax.Attribute) {
		if v, ok := r.value(a, cty.Number); ok {
			n, _ := v.AsBigFloat().Int64()
			*into = int(n)
		}
	}
}

// only takes an argument that has one possible value here.
func (r *reader) only(want string) func(*hclsyntax.Attribute) {
	return func(a *hclsyntax.Attribute) {
		if v, ok := r.value(a, cty.String); ok && v.AsString() != want {
			r.fault(a.Expr.Range(), "%s can only be %s for the embedded agent.", a.Name, want)
		}
	}
}

func (r *reader) texts(into *map[string]string) func(*hclsyntax.Attribute) {
	return func(a *hclsyntax.Attribute) {
		v, ok := r.value(a, cty.Map(cty.String))
		if !ok {
			return
		}
		if *into == nil {
			*into = map[string]string{}
		}
		for it := v.ElementIterator(); it.Next(); {
			k, e := it.Element()
			(*into)[k.AsString()] = e.AsString()
		}
	}
}

func (r *reader) textBlock(name string, into *map[string]string) func(*hclsyntax.Block) {
	return func(b *hclsyntax.Block) {
		if *into == nil {
			*into = map[string]string{}
		}
		for _, key := range slices.Sorted(maps.Keys(b.Body.Attributes)) {
			if v, ok := r.value(b.Body.Attributes[key], cty.String); ok {
				(*into)[key] = v.AsString()
			}
		}
		for _, inner := range b.Body.Blocks {
			r.fault(inner.TypeRange, "The embedded agent does not know the block %q in %s.", inner.Type, name)
		}
	}
}
