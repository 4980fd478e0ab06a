// SPDX-License-Identifier: MPL-2.0

// Package hclconfig is the agent's half of plugin configuration: it turns the configuration maps of
// an agent or a job into the MessagePack that a plugin receives, byte for byte as Nomad does.
//
// The map is written as JSON, read as HCL's JSON syntax (so strings are templates: "${…}" is
// evaluated and "$${" is literal), decoded by the plugin's schema and encoded with the types that
// result. Package hclspec builds schemas.
package hclconfig

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hcldec"
	hcljson "github.com/hashicorp/hcl/v2/json"
	"github.com/zclconf/go-cty/cty/function"
	"github.com/zclconf/go-cty/cty/function/stdlib"
	"github.com/zclconf/go-cty/cty/msgpack"

	"github.com/botscreen/botscreen/shared/nomadplugin/proto/hclspecpb"
)

// Encode is NewSchema and [Schema.Encode] in one.
func Encode(spec *hclspecpb.Spec, config map[string]any, vars Variables) ([]byte, error) {
	schema, err := NewSchema(spec)
	if err != nil {
		return nil, err
	}
	return schema.Encode(config, vars)
}

// Encode decodes a configuration by the schema, with the zero Variables for a plugin's own, and
// returns it as MessagePack with every field of the schema present. The error lists all faults.
func (s *Schema) Encode(config map[string]any, vars Variables) (encoded []byte, err error) {
	// Some combinations that a schema may express, such as "any" inside a block map, are panics in
	// hcldec.
	defer func() {
		if cause := recover(); cause != nil {
			encoded, err = nil, fmt.Errorf("decode configuration: the schema does not fit it: %v", cause)
		}
	}()
	if config == nil {
		config = map[string]any{}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(config); err != nil {
		return nil, fmt.Errorf("decode configuration: %w", err)
	}
	file, diags := hcljson.Parse(text.Bytes(), "config")
	if diags.HasErrors() {
		return nil, faults(diags)
	}
	value, diags := hcldec.Decode(file.Body, s.spec, &hcl.EvalContext{
		Functions: functions(),
		Variables: vars.values(),
	})
	if diags.HasErrors() {
		return nil, faults(diags)
	}
	encoded, err = msgpack.Marshal(value, value.Type())
	if err != nil {
		return nil, fmt.Errorf("encode configuration: %w", err)
	}
	return encoded, nil
}

// faults is every error among the diagnostics, each with its summary and detail. Positions are left
// out: they refer to JSON that nobody wrote.
func faults(diags hcl.Diagnostics) error {
	var all []error
	for _, diag := range diags {
		if diag.Severity == hcl.DiagError {
			all = append(all, errors.New(strings.TrimSuffix(diag.Summary, ".")+": "+diag.Detail))
		}
	}
	return fmt.Errorf("decode configuration: %w", errors.Join(all...))
}

// functions are those that templates and literals may call.
func functions() map[string]function.Function {
	return map[string]function.Function{
		"abs":        stdlib.AbsoluteFunc,
		"coalesce":   stdlib.CoalesceFunc,
		"concat":     stdlib.ConcatFunc,
		"hasindex":   stdlib.HasIndexFunc,
		"int":        stdlib.IntFunc,
		"jsondecode": stdlib.JSONDecodeFunc,
		"jsonencode": stdlib.JSONEncodeFunc,
		"length":     stdlib.LengthFunc,
		"lower":      stdlib.LowerFunc,
		"max":        stdlib.MaxFunc,
		"min":        stdlib.MinFunc,
		"reverse":    stdlib.ReverseFunc,
		"strlen":     stdlib.StrlenFunc,
		"substr":     stdlib.SubstrFunc,
		"upper":      stdlib.UpperFunc,
	}
}
