// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"encoding/hex"
	"reflect"
	"strings"
	"testing"
)

func unhex(t *testing.T, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(strings.ReplaceAll(text, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestDecodeConfig(t *testing.T) {
	type nested struct {
		X string `codec:"x"`
	}
	type config struct {
		S    string              `codec:"s"`
		N    int                 `codec:"n"`
		B    bool                `codec:"b"`
		L    []string            `codec:"l"`
		Maps []map[string]string `codec:"lms"`
		Opt  *nested             `codec:"opt"`
		Any  any                 `codec:"any"`
		Tag  string              `json:"tag"`
	}
	got := config{S: "preset", Opt: &nested{"preset"}, L: []string{"preset"}}
	data := "87 a173 c0 a16e cd012c a162 c3 a16c 91a178 a36c6d73 9281a161a16281a163a164 a36f7074 c0 a3616e79 82a16101a16292a178c3"
	if err := DecodeConfig(unhex(t, data), &got); err != nil {
		t.Fatal(err)
	}
	want := config{N: 300, B: true, L: []string{"x"}, Maps: []map[string]string{{"a": "b"}, {"c": "d"}},
		Any: map[string]any{"a": int64(1), "b": []any{"x", true}}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("C12: nil overwrites, the rest converts: got  %+v\nwant %+v", got, want)
	}
	got = config{S: "preset"}
	if err := DecodeConfig(nil, &got); err != nil || got.S != "preset" {
		t.Errorf("no data is no configuration: %+v, %v", got, err)
	}
	if err := DecodeConfig(unhex(t, "81a27a7a01"), &got); err != nil {
		t.Errorf("unknown keys are ignored: %v", err)
	}
	if err := DecodeConfig(unhex(t, "81a3746167a178"), &got); err != nil || got.Tag != "" {
		t.Errorf("json tags do not count: %q, %v", got.Tag, err)
	}
}

func TestC11_strings_decode(t *testing.T) {
	for header, n := range map[string]int{"bf": 31, "d920": 32, "d9ff": 255, "da0100": 256, "db00010000": 65536} {
		var got struct {
			S any `codec:"s"`
		}
		err := DecodeConfig(unhex(t, "81a173"+header+strings.Repeat("78", n)), &got)
		if s, ok := got.S.(string); err != nil || !ok || len(s) != n {
			t.Errorf("%s: %T, %v", header, got.S, err)
		}
	}
}

func TestC10_fractions_decode_into_any(t *testing.T) {
	for data, want := range map[string]any{"a3302e31": "0.1", "cb3ff8000000000000": 1.5, "05": int64(5), "cc80": uint64(128)} {
		var got struct {
			N any `codec:"n"`
		}
		if err := DecodeConfig(unhex(t, "81a16e"+data), &got); err != nil || got.N != want {
			t.Errorf("%s: %v (%T), %v: want %v", data, got.N, got.N, err, want)
		}
	}
}

func TestC15_wrong_types_are_readable_errors(t *testing.T) {
	type inner struct {
		B bool `codec:"b"`
	}
	type config struct {
		N     int               `codec:"n"`
		U     uint              `codec:"u"`
		I8    int8              `codec:"i8"`
		F     float64           `codec:"f"`
		S     string            `codec:"s"`
		L     []string          `codec:"l"`
		M     map[string]string `codec:"m"`
		Block *inner            `codec:"block"`
	}
	for data, want := range map[string]string{
		"81a16ecb3ff8000000000000":     "n: 1.5 is not a whole number",
		"81a16ea3616263":               `n: "abc" is not a whole number`,
		"81a175ff":                     "u: -1 is negative",
		"81a26938cd012c":               "i8: 300 is too large",
		"81a166a3302e31":               `f: "0.1" is not a number`,
		"81a17305":                     "s: 5 is not text",
		"81a16c92a17805":               "l[1]: 5 is not text",
		"81a16ca178":                   `l: "x" is not a list`,
		"81a16d91a178":                 "m: a list is not a map",
		"81a5626c6f636b81a162a3796573": `block.b: "yes" is not true or false`,
		"82a16ea3616263a175ff":         "u: -1 is negative",
		"81a16e":                       "MessagePack ends early",
		"92":                           "MessagePack ends early",
		"dfffffffff":                   "MessagePack ends early",
		"ff":                           "-1 is not a map",
		"c1":                           "",
		"81a5626c6f636b91a162":         "block: a list is not a map",
	} {
		err := DecodeConfig(unhex(t, data), &config{})
		if err == nil || !strings.HasPrefix(err.Error(), "decode configuration: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v: want %q", data, err, want)
		}
	}
	err := DecodeConfig(unhex(t, "82a16ea3616263a175ff"), &config{})
	if err == nil || !strings.Contains(err.Error(), "n: ") || !strings.Contains(err.Error(), "u: ") {
		t.Errorf("all faults at once: got %v", err)
	}
}

func FuzzDecodeConfig(f *testing.F) {
	for _, seed := range []string{"81a173a26869", "de0010", "81a3616e7982a16101a16292a178c3", "dfffffffff", "c7ff00"} {
		data, err := hex.DecodeString(seed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var anything any
		_ = DecodeConfig(data, &anything)
		var typed struct {
			S string              `codec:"s"`
			N int                 `codec:"n"`
			L []map[string]string `codec:"l"`
			P *struct {
				X float64 `codec:"x"`
			} `codec:"p"`
		}
		_ = DecodeConfig(data, &typed)
	})
}
