// SPDX-License-Identifier: MPL-2.0

package hclconfig

import (
	"encoding/json"
	"testing"

	"google.golang.org/protobuf/proto"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/hclspecpb"
)

// FuzzEncode feeds a plugin's schema and a job's configuration, both hostile. Whatever is encoded
// must decode again.
func FuzzEncode(f *testing.F) {
	spec, err := proto.Marshal(everything())
	if err != nil {
		f.Fatal(err)
	}
	for _, config := range []string{
		`{}`, `{"s":"${env[\"A\"]}","n":0.1,"b":"true"}`, `{"bl":[{"x":"1"},{"x":"2"}],"bm":[{"foo":[{"x":"y"}]}]}`,
		`{"any":{"a":[1,null,{"b":true}]},"ba":[{"k":"v"}],"lms":[{"a":"b"}]}`, `{"s":"%{for x in [1]}${x}%{endfor}"}`, `{"blk":{}}`,
	} {
		f.Add(spec, config)
	}
	f.Fuzz(func(t *testing.T, spec []byte, config string) {
		node := &hclspecpb.Spec{}
		var values map[string]any
		if proto.Unmarshal(spec, node) != nil || json.Unmarshal([]byte(config), &values) != nil {
			return
		}
		out, err := Encode(node, values, Variables{Env: map[string]string{"A": "b"}})
		if err != nil {
			return
		}
		var decoded any
		if err := nomadplugin.DecodeConfig(out, &decoded); err != nil {
			t.Errorf("encoded %x does not decode: %v", out, err)
		}
	})
}

func FuzzParseHCL(f *testing.F) {
	for _, text := range []string{`a = "x-${b}"`, `m "l" { k = [1, { x = 2 }] }`, "s = <<EOT\n%{if x}\nEOT", `a = { b = { c = "${d}" } }`} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		config, err := ParseHCL(text)
		if err != nil {
			return
		}
		if _, err := json.Marshal(config); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	})
}
