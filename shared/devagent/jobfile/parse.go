// SPDX-License-Identifier: MPL-2.0

// Package jobfile reads Nomad job files (HCL2) into the job values of Nomad's
// API. It knows the part of the language that the embedded agent runs; a block,
// an argument or a function outside of it is refused by name, with file, line
// and column, and never ignored.
package jobfile

import (
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
	"github.com/hashicorp/nomad/api"
)

// MaxBytes bounds the text of one job file, as Nomad's job_max_source_size does.
const MaxBytes = 1 << 20

// Options say how a job file is read.
type Options struct {
	// Name stands in the positions of errors. Default: "input.hcl".
	Name string
	// Assignments are values of variables as a user writes them after -var: for
	// a variable of type string the text itself, else an HCL expression.
	Assignments map[string]string
	// VarContent is the text of a variable file: name = expression, one a line.
	VarContent string
}

// Error carries every fault of a job file. Each has a file, a line and a column.
type Error struct {
	Diagnostics hcl.Diagnostics
}

// Error gives one fault per line: name:line,column-column: summary; detail.
func (e *Error) Error() string {
	lines := make([]string, 0, len(e.Diagnostics))
	for _, d := range e.Diagnostics {
		lines = append(lines, d.Error())
	}
	return strings.Join(lines, "\n")
}

// Parse reads one job file. The job is as written: defaults are not filled in
// (api.Job.Canonicalize does that). References that only the client can resolve,
// such as ${NOMAD_ALLOC_ID}, ${attr.cpu.arch} or ${env["X"]}, stay in the text as
// they were written. The error is an *Error.
func Parse(src []byte, o Options) (*api.Job, error) {
	if o.Name == "" {
		o.Name = "input.hcl"
	}
	p := &parser{src: src, name: o.Name}
	job := p.parse(o)
	if p.diags.HasErrors() {
		return nil, &Error{Diagnostics: p.diags.errors()}
	}
	return job, nil
}

// parser holds what the sections of one file share.
type parser struct {
	src  []byte
	name string
	ctx  *hcl.EvalContext
	// varSrc is the text of the variable file, for positions in it.
	varSrc []byte
	diags  diagnostics
}

func (p *parser) parse(o Options) *api.Job {
	body := p.syntax(p.src, p.name)
	if body == nil {
		return nil
	}
	top := p.section(body, "a job file")
	p.ctx = p.evalContext(top, o)
	if p.ctx == nil {
		return nil
	}
	var jobs []*api.Job
	top.blocks("job", 1, func(s *section) { jobs = append(jobs, s.job()) })
	top.done()
	switch {
	case len(jobs) == 0 && !p.diags.HasErrors():
		p.fault(body.SrcRange, "Missing job block", "A job block is required")
	case len(jobs) > 1:
		p.fault(top.body.Blocks[len(top.body.Blocks)-1].TypeRange, "Duplicate job block", `Only one block of type "job" is allowed.`)
	}
	if len(jobs) == 0 {
		return nil
	}
	return jobs[0]
}

// syntax parses text into a body; faults are recorded and give nil.
func (p *parser) syntax(src []byte, name string) *hclsyntax.Body {
	if fault := Guard(src, name); fault != nil {
		p.diags = append(p.diags, fault)
		return nil
	}
	file, diags := hclsyntax.ParseConfig(src, name, hcl.InitialPos)
	p.diags = append(p.diags, diags...)
	if diags.HasErrors() {
		return nil
	}
	body, ok := file.Body.(*hclsyntax.Body)
	if !ok {
		return nil
	}
	return body
}

func (p *parser) fault(at hcl.Range, summary, detail string) {
	p.diags = append(p.diags, &hcl.Diagnostic{
		Severity: hcl.DiagError,
		Summary:  summary,
		Detail:   detail,
		Subject:  &at,
	})
}
