// SPDX-License-Identifier: MPL-2.0

package jobfile

import (
	"bytes"
	"fmt"
	"unicode/utf8"

	"github.com/hashicorp/hcl/v2"
	"github.com/hashicorp/hcl/v2/hclsyntax"
)

// Bounds of what the recursive parser is given: it descends once per bracket,
// unary operator and conditional, and a stack overflow cannot be recovered from.
const (
	maxNesting = 128
	maxUnary   = 32
	maxChoices = 512
)

// Guard refuses text that the recursive HCL parser must not see: too large, no text,
// or nested so deep that the stack would overflow. It gives nil for all else.
func Guard(src []byte, name string) *hcl.Diagnostic {
	if len(src) > MaxBytes {
		return faultAt(name, src, MaxBytes, "File too large",
			fmt.Sprintf("It has %d bytes; at most %d are read.", len(src), MaxBytes))
	}
	if i := bytes.IndexByte(src, 0); i >= 0 {
		return faultAt(name, src, i, "Invalid character", "The file is text and cannot hold the character NUL.")
	}
	if !utf8.Valid(src) {
		i := firstInvalid(src)
		return faultAt(name, src, i, "Invalid character encoding", "The file is UTF-8 text; this byte is not.")
	}
	tokens, _ := hclsyntax.LexConfig(src, name, hcl.InitialPos)
	return guardDepth(tokens)
}

func guardDepth(tokens hclsyntax.Tokens) *hcl.Diagnostic {
	depth, unary, choices := 0, 0, 0
	for _, t := range tokens {
		switch t.Type {
		case hclsyntax.TokenOBrace, hclsyntax.TokenOBrack, hclsyntax.TokenOParen, hclsyntax.TokenOQuote,
			hclsyntax.TokenOHeredoc, hclsyntax.TokenTemplateInterp, hclsyntax.TokenTemplateControl:
			depth++
		case hclsyntax.TokenCBrace, hclsyntax.TokenCBrack, hclsyntax.TokenCParen, hclsyntax.TokenCQuote,
			hclsyntax.TokenCHeredoc, hclsyntax.TokenTemplateSeqEnd:
			depth--
		case hclsyntax.TokenQuestion:
			choices++
		}
		if t.Type == hclsyntax.TokenBang || t.Type == hclsyntax.TokenMinus {
			unary++
		} else {
			unary = 0
		}
		if depth > maxNesting || unary > maxUnary || choices > maxChoices {
			at := t.Range
			return &hcl.Diagnostic{
				Severity: hcl.DiagError,
				Summary:  "Too deeply nested",
				Detail:   fmt.Sprintf("At most %d levels of brackets, %d signs in a row and %d conditionals are read.", maxNesting, maxUnary, maxChoices),
				Subject:  &at,
			}
		}
	}
	return nil
}

func firstInvalid(src []byte) int {
	for i := 0; i < len(src); {
		r, size := utf8.DecodeRune(src[i:])
		if r == utf8.RuneError && size == 1 {
			return i
		}
		i += size
	}
	return len(src)
}

// faultAt makes a fault at a byte offset of src.
func faultAt(name string, src []byte, offset int, summary, detail string) *hcl.Diagnostic {
	before := src[:min(offset, len(src))]
	lineStart := bytes.LastIndexByte(before, '\n') + 1
	pos := hcl.Pos{
		Line:   1 + bytes.Count(before, []byte{'\n'}),
		Column: 1 + utf8.RuneCount(before[lineStart:]),
		Byte:   len(before),
	}
	return &hcl.Diagnostic{
		Severity: hcl.DiagError,
		Summary:  summary,
		Detail:   detail,
		Subject:  &hcl.Range{Filename: name, Start: pos, End: pos},
	}
}

// diagnostics is hcl.Diagnostics that gives its errors apart from its warnings.
type diagnostics hcl.Diagnostics

func (d diagnostics) HasErrors() bool { return hcl.Diagnostics(d).HasErrors() }

func (d diagnostics) errors() hcl.Diagnostics {
	var errs hcl.Diagnostics
	for _, one := range d {
		if one.Severity == hcl.DiagError {
			errs = append(errs, one)
		}
	}
	return errs
}
