// SPDX-License-Identifier: MPL-2.0

package hclconfig

import (
	"encoding/json"
	"strings"
	"testing"
)

func TestParseHCL(t *testing.T) {
	for text, want := range map[string]string{
		``:                                     `{}`,
		`a = "x"`:                              `{"a":"x"}`,
		`n = 5`:                                `{"n":5}`,
		`n = 12345678901`:                      `{"n":12345678901}`,
		`n = -0.5`:                             `{"n":-0.5}`,
		`n = 2 * 3`:                            `{"n":6}`,
		`b = true`:                             `{"b":true}`,
		`z = null`:                             `{"z":null}`,
		`l = ["a", "${NAME}", 1]`:              `{"l":["a","${NAME}",1]}`,
		`s = "${NAME}"`:                        `{"s":"${NAME}"}`,
		`s = "x-${attr.cpu.arch}-y"`:           `{"s":"x-${attr.cpu.arch}-y"}`,
		`s = "$${literal} %%{too}"`:            `{"s":"$${literal} %%{too}"}`,
		`s = upper("a")`:                       `{"s":"A"}`,
		"s = <<EOT\nline\nEOT\n":               `{"s":"line\n"}`,
		`m { k = "v" }`:                        `{"m":[{"k":"v"}]}`,
		`m = { k = "v" }`:                      `{"m":[{"k":"v"}]}`,
		`m = { "k" = { inner = 1 } }`:          `{"m":[{"k":[{"inner":1}]}]}`,
		`m = [{ k = "v" }, { k = "w" }]`:       `{"m":[{"k":"v"},{"k":"w"}]}`,
		"m { k = 1 }\nm { k = 2 }":             `{"m":[{"k":1},{"k":2}]}`,
		`bm "foo" { x = 1 }`:                   `{"bm":[{"foo":[{"x":1}]}]}`,
		"bm \"foo\" \"bar\" {}\nbm \"foo\" {}": `{"bm":[{"foo":[{"bar":[{}]}]},{"foo":[{}]}]}`,
		"outer {\n inner { x = 1 }\n}":         `{"outer":[{"inner":[{"x":1}]}]}`,
	} {
		got, err := ParseHCL(text)
		if err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		var out strings.Builder
		encoder := json.NewEncoder(&out)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(got); err != nil {
			t.Fatal(err)
		}
		if strings.TrimSpace(out.String()) != want {
			t.Errorf("%s: got %s: want %s", text, out.String(), want)
		}
	}
}

func TestParseHCLErrors(t *testing.T) {
	for _, text := range []string{`a = `, `a = nobody`, `a = { (nobody) = 1 }`, `a = { 1 = 2 }`, "a = 1\na {}", `a = nofunction()`, `a { b = nobody }`, `a = [nobody]`, `a = { b = nobody }`} {
		if got, err := ParseHCL(text); err == nil && text != `a = { 1 = 2 }` {
			t.Errorf("%s: accepted as %v", text, got)
		}
	}
}
