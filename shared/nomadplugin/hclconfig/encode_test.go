// SPDX-License-Identifier: MPL-2.0

package hclconfig

import (
	"encoding/hex"
	"encoding/json"
	"math/big"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/shared/nomadplugin/hclspec"
)

type fields = hclspec.Fields

// encoded is the MessagePack in hex of a configuration written as JSON.
func encoded(t *testing.T, spec *hclspec.Spec, config string, vars Variables) (string, error) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(config))
	decoder.UseNumber()
	var values map[string]any
	if err := decoder.Decode(&values); err != nil {
		t.Fatalf("test configuration %s: %v", config, err)
	}
	out, err := Encode(spec, values, vars)
	return hex.EncodeToString(out), err
}

func TestC06_golden_msgpack(t *testing.T) {
	attr := func(name, typ string) *hclspec.Spec {
		return hclspec.Object(fields{name: hclspec.Attr(name, typ)})
	}
	long := func(n int) string { return `{"s":"` + strings.Repeat("x", n) + `"}` }
	for _, c := range []struct {
		name   string
		spec   *hclspec.Spec
		config string
		want   string
	}{
		{"string", attr("s", "string"), `{"s":"hi"}`, "81a173a26869"},
		{"absent", attr("s", "string"), `{}`, "81a173c0"},
		{"null", attr("s", "string"), `{"s":null}`, "81a173c0"},
		{"fixint", attr("n", "number"), `{"n":5}`, "81a16e05"},
		{"C10_uint16", attr("n", "number"), `{"n":300}`, "81a16ecd012c"},
		{"C10_negative", attr("n", "number"), `{"n":-1}`, "81a16eff"},
		{"int16", attr("n", "number"), `{"n":-200}`, "81a16ed1ff38"},
		{"uint64", attr("n", "number"), `{"n":1099511627776}`, "81a16ecf0000010000000000"},
		{"C10_float", attr("n", "number"), `{"n":1.5}`, "81a16ecb3ff8000000000000"},
		{"C10_fraction_is_text", attr("n", "number"), `{"n":0.1}`, "81a16ea3302e31"},
		{"C10_big_is_text", attr("n", "number"), `{"n":1180591620717411303424}`,
			"81a16eb6" + hex.EncodeToString([]byte(new(big.Int).Lsh(big.NewInt(1), 70).String()))},
		{"number_from_text", attr("n", "number"), `{"n":"42"}`, "81a16e2a"},
		{"text_from_number", attr("s", "string"), `{"s":42}`, "81a173a23432"},
		{"bool", attr("b", "bool"), `{"b":true}`, "81a162c3"},
		{"bool_from_text", attr("b", "bool"), `{"b":"true"}`, "81a162c3"},
		{"map_from_json_object", attr("ms", "map(string)"), `{"ms":{"a":"b"}}`, "81a26d7381a161a162"},
		{"list_of_maps", attr("lms", "list(map(string))"), `{"lms":[{"a":"b"},{"c":"d"}]}`, "81a36c6d739281a161a16281a163a164"},
		{"any", attr("any", "any"), `{"any":{"a":1,"b":["x",true]}}`, "81a3616e7982a16101a16292a178c3"},
		{"C11_fixstr", attr("s", "string"), long(31), "81a173bf" + strings.Repeat("78", 31)},
		{"C11_str8", attr("s", "string"), long(32), "81a173d920" + strings.Repeat("78", 32)},
		{"C11_str8_255", attr("s", "string"), long(255), "81a173d9ff" + strings.Repeat("78", 255)},
		{"C11_str16", attr("s", "string"), long(256), "81a173da0100" + strings.Repeat("78", 256)},
		{"C11_str32", attr("s", "string"), long(65536), "81a173db00010000" + strings.Repeat("78", 65536)},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := encoded(t, c.spec, c.config, Variables{})
			if err != nil || got != c.want {
				t.Errorf("got %.80s, %v: want %.80s", got, err, c.want)
			}
		})
	}
}

// everything has every kind of node.
func everything() *hclspec.Spec {
	x := hclspec.Object(fields{"x": hclspec.Attr("x", "string")})
	return hclspec.Object(fields{
		"any": hclspec.Attr("any", "any"),
		"b":   hclspec.Attr("b", "bool"),
		"ba":  hclspec.BlockAttrs("ba", "string"),
		"bl":  hclspec.BlockList("bl", 0, 0, x),
		"blk": hclspec.Block("blk", hclspec.Object(fields{
			"x": hclspec.Attr("x", "string"),
			"y": hclspec.Default(hclspec.Attr("y", "number"), hclspec.Int(7))})),
		"bm":   hclspec.BlockMap("bm", []string{"name"}, x),
		"bset": hclspec.BlockSet("bset", 0, 0, x),
		"dfl":  hclspec.Default(hclspec.Attr("dfl", "list(string)"), hclspec.Strings("x")),
		"dflt": hclspec.Default(hclspec.Attr("dflt", "bool"), hclspec.Bool(true)),
		"dfn":  hclspec.Default(hclspec.Attr("dfn", "number"), hclspec.Int(5901)),
		"dfs":  hclspec.Default(hclspec.Attr("dfs", "string"), hclspec.String("abc")),
		"lms":  hclspec.Attr("lms", "list(map(string))"),
		"ls":   hclspec.Attr("ls", "list(string)"),
		"ms":   hclspec.Attr("ms", "map(string)"),
		"n":    hclspec.Attr("n", "number"),
		"s":    hclspec.Attr("s", "string"),
	})
}

func TestC08_absent_values(t *testing.T) {
	const golden = "de0010" + "a3616e79c0" + "a162c0" + "a26261c0" + "a2626c90" + "a3626c6bc0" + "a2626d80" + "a46273657490" +
		"a364666c91a178" + "a464666c74c3" + "a364666ecd170d" + "a3646673a3616263" + "a36c6d73c0" + "a26c73c0" + "a26d73c0" + "a16ec0" + "a173c0"
	got, err := encoded(t, everything(), `{}`, Variables{})
	if err != nil || got != golden {
		t.Errorf("got  %s, %v\nwant %s", got, err, golden)
	}
	got, err = encoded(t, everything(), `{"blk":[{}]}`, Variables{})
	want := strings.Replace(golden, "a3626c6bc0", "a3626c6b82a178c0a17907", 1)
	if err != nil || got != want {
		t.Errorf("with blk {}: got  %s, %v\nwant %s", got, err, want)
	}
}

func TestC06_plugin_configuration_as_an_agent_sends_it(t *testing.T) {
	spec := hclspec.Object(fields{
		"big":     hclspec.Attr("big", "number"),
		"blk":     hclspec.Block("blk", hclspec.Object(fields{"x": hclspec.Attr("x", "string")})),
		"enabled": hclspec.Default(hclspec.Attr("enabled", "bool"), hclspec.Bool(true)),
		"frac":    hclspec.Attr("frac", "number"),
		"labels":  hclspec.Attr("labels", "list(map(string))"),
	})
	config, err := ParseHCL(`
		labels { a = "b" }
		blk { x = "y" }
		frac = 0.1
		big = 12345678901
	`)
	if err != nil {
		t.Fatal(err)
	}
	out, err := Encode(spec, config, Variables{})
	const golden = "85" + "a3626967cf00000002dfdc1c35" + "a3626c6b81a178a179" + "a7656e61626c6564c3" + "a466726163a3302e31" + "a66c6162656c739181a161a162"
	if err != nil || hex.EncodeToString(out) != golden {
		t.Errorf("got %x, %v\nwant %s", out, err, golden)
	}
}

func TestC07_maps(t *testing.T) {
	for _, c := range []struct {
		name, typ string
		ok        bool
		spec      *hclspec.Spec
	}{
		{"map_attr", "map", false, hclspec.Attr("x", "map(string)")},
		{"block_attrs", "block_attrs", true, hclspec.BlockAttrs("x", "string")},
		{"list_of_maps", "list", true, hclspec.Attr("x", "list(map(string))")},
	} {
		for _, text := range []string{`x { k = "v" }`, `x = { k = "v" }`} {
			config, err := ParseHCL(text)
			if err != nil {
				t.Fatal(err)
			}
			_, err = Encode(hclspec.Object(fields{"x": c.spec}), config, Variables{})
			if (err == nil) != c.ok {
				t.Errorf("%s given %s: error %v", c.name, text, err)
			}
		}
	}
}

func TestC09_default_without_a_name(t *testing.T) {
	spec := hclspec.Object(fields{"geometry": hclspec.Default(hclspec.Attr("", "string"), hclspec.String("x"))})
	_, err := NewSchema(spec)
	if err == nil || !strings.Contains(err.Error(), "geometry") || !strings.Contains(err.Error(), "missing name in attribute spec") {
		t.Errorf("got %v", err)
	}
	if _, err := NewSchema(hclspec.Object(fields{"geometry": hclspec.Attr("", "string")})); err != nil {
		t.Errorf("an object gives its fields a name: %v", err)
	}
}

func TestC13_errors(t *testing.T) {
	spec := hclspec.Object(fields{
		"need": hclspec.RequiredAttr("need", "string"),
		"n":    hclspec.Attr("n", "number"),
		"l":    hclspec.Attr("l", "list(string)"),
	})
	for config, want := range map[string]string{
		`{"need":"x","zz":1}`:                     `"zz"`,
		`{}`:                                      `"need" is required`,
		`{"need":"${nobody}"}`:                    "Variables not allowed",
		`{"need":"x","n":"abc"}`:                  "a number is required",
		`{"need":"x","l":"scalar"}`:               "list of string required",
		`{"need":"x","n":"many","l":{"k":"v"}}`:   "a number is required",
		`{"need":"x","n":"${nofunction(1)}"}`:     "no function named",
		`{"need":"x ${ unclosed"}`:                "",
		`{"need":["${[for x in [1] : x if x]}"]}`: "",
	} {
		_, err := encoded(t, spec, config, Variables{})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v: want %q", config, err, want)
		}
	}
	_, err := encoded(t, spec, `{"n":"abc","zz":1}`, Variables{})
	for _, part := range []string{"zz", "need", "a number is required"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("all faults at once: %v lacks %q", err, part)
		}
	}
}

func TestSchemaErrors(t *testing.T) {
	deep := hclspec.Attr("x", "string")
	for range maxSpecDepth + 1 {
		deep = hclspec.Block("b", deep)
	}
	for name, spec := range map[string]*hclspec.Spec{
		"nil":            nil,
		"empty":          {},
		"type":           hclspec.Object(fields{"x": hclspec.Attr("x", "strin")}),
		"type syntax":    hclspec.Object(fields{"x": hclspec.Attr("x", "list(")}),
		"literal":        hclspec.Default(hclspec.Attr("x", "string"), hclspec.Literal("nobody")),
		"literal syntax": hclspec.Literal(`"`),
		"labels":         hclspec.BlockMap("x", nil, hclspec.Attr("y", "string")),
		"limits":         hclspec.BlockList("x", 3, 2, hclspec.Attr("y", "string")),
		"huge limit":     hclspec.BlockSet("x", 0, 1<<63, hclspec.Attr("y", "string")),
		"nested":         hclspec.Block("x", nil),
		"block name":     hclspec.Array(hclspec.Block("", hclspec.Attr("y", "string"))),
		"attrs name":     hclspec.Array(hclspec.BlockAttrs("", "string")),
		"deep":           deep,
	} {
		if _, err := NewSchema(spec); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if _, err := encoded(t, hclspec.BlockMap("x", []string{"l"}, hclspec.Attr("y", "any")), `{"x":{"a":{"y":1}}}`, Variables{}); err == nil {
		t.Error("any inside a block map: accepted")
	}
}

func TestC14_variables_and_escapes(t *testing.T) {
	vars := Variables{
		Env: map[string]string{"HOME": "/root", "A.B": "dotted", "odd.": "trailing", "a..b": "gap", "deep": "plain", "deep.er": "1", "env": "shadowed"},
		Node: map[string]string{"attr.cpu.arch": "amd64", "node.unique.name": "n1", "meta.rack": "r7",
			"node.datacenter": "dc1"},
	}
	spec := hclspec.Object(fields{"s": hclspec.Attr("s", "string")})
	for text, want := range map[string]string{
		`${HOME}`:                       "/root",
		`${env[\"A.B\"]}`:               "dotted",
		`${A.B}`:                        "dotted",
		`${env[\"odd.\"]}`:              "trailing",
		`${env[\"a..b\"]}`:              "gap",
		`${env[\"env\"]}`:               "shadowed",
		`${deep.er}`:                    "1",
		`${env.deep}`:                   "plain",
		`${attr.cpu.arch}`:              "amd64",
		`${node.attr.cpu.arch}`:         "amd64",
		`${node.unique.name}`:           "n1",
		`${meta.rack}`:                  "r7",
		`${node.meta.rack}`:             "r7",
		`$${HOME} %%{if}`:               "${HOME} %{if}",
		`${upper(HOME)}`:                "/ROOT",
		`%{if HOME != \"\"}yes%{endif}`: "yes",
	} {
		got, err := encoded(t, spec, `{"s":"`+text+`"}`, vars)
		want, wantErr := encoded(t, spec, `{"s":"`+strings.NewReplacer("${", "$${", "%{", "%%{").Replace(want)+`"}`, Variables{})
		if err != nil || wantErr != nil || got != want {
			t.Errorf("%s: got %s, %v: want %s, %v", text, got, err, want, wantErr)
		}
	}
	if _, err := encoded(t, spec, `{"s":"${nobody}"}`, vars); err == nil || !strings.Contains(err.Error(), "nobody") {
		t.Errorf("C13: an unknown variable: got %v", err)
	}
	if _, err := encoded(t, spec, `{"s":"${HOME}"}`, Variables{}); err == nil {
		t.Error("a plugin's own configuration has no variables")
	}
}

func TestFunctions(t *testing.T) {
	spec := hclspec.Object(fields{"s": hclspec.Attr("s", "string")})
	for call, want := range map[string]string{
		`abs(-2)`: "2", `coalesce(\"\", \"b\")`: "", `length(concat([1],[2]))`: "2", `hasindex([1],3)`: "false", `int(2.7)`: "2",
		`jsondecode(\"[7]\")[0]`: "7", `jsonencode([1])`: "[1]", `lower(\"A\")`: "a", `max(1,3)`: "3", `min(1,3)`: "1",
		`reverse(\"ab\")`: "ba", `strlen(\"abc\")`: "3", `substr(\"abc\",1,1)`: "b", `upper(\"a\")`: "A",
	} {
		got, err := encoded(t, spec, `{"s":"${`+call+`}"}`, Variables{})
		want, _ := encoded(t, spec, `{"s":"`+want+`"}`, Variables{})
		if err != nil || got != want {
			t.Errorf("%s: got %s, %v: want %s", call, got, err, want)
		}
	}
	if len(functions()) != 15 {
		t.Errorf("%d functions: want 15", len(functions()))
	}
}

func TestStringLiterals(t *testing.T) {
	for _, text := range []string{"", "abc", `"quoted"`, "a\nb\tc", "${HOME}", "%{if}", `back\slash`, `C:\x41\a`, "ünïcode 😀", "\x01\x7f\a\b\f\v", "$", "$${x}", "%%{x}"} {
		spec := hclspec.Object(fields{"s": hclspec.Default(hclspec.Attr("s", "string"), hclspec.String(text))})
		schema, err := NewSchema(spec)
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		got, err := schema.Encode(nil, Variables{})
		if err != nil {
			t.Errorf("%q: %v", text, err)
			continue
		}
		quoted, _ := json.Marshal(strings.NewReplacer("${", "$${", "%{", "%%{").Replace(text))
		want, err := encoded(t, hclspec.Object(fields{"s": hclspec.Attr("s", "string")}), `{"s":`+string(quoted)+`}`, Variables{})
		if err != nil || hex.EncodeToString(got) != want {
			t.Errorf("%q: got %x: want %s, %v", text, got, want, err)
		}
	}
}
