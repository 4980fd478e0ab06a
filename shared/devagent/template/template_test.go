// SPDX-License-Identifier: MPL-2.0

package template

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
)

func lookup(path string) (map[string]string, bool) {
	switch path {
	case "nomad/jobs/bots":
		return map[string]string{"key": "s3cret", "other": "x"}, true
	case "empty":
		return map[string]string{}, true
	}
	return nil, false
}

func compile(data string) (*Template, error) {
	dest := "local/file"
	return Compile(&api.Template{EmbeddedTmpl: &data, DestPath: &dest})
}

func TestRender(t *testing.T) {
	for data, want := range map[string]string{
		"plain": "plain",
		"":      "",
		`{{ with nomadVar "nomad/jobs/bots" }}A={{ .key.Value | toJSON }}{{ end }}`:                                 `A="s3cret"`,
		`a{{ with nomadVar "nomad/jobs/bots" }}<{{ .key }}|{{ .key.Value }}|{{ .none }}>{{ end }}b`:                 "a<s3cret|s3cret|<no value>>b",
		`{{- with nomadVar "empty" }}x{{ else }}none{{ end -}} `:                                                    "none",
		`{{ with nomadVar "nomad/jobs/bots" }}{{ with nomadVar "empty" }}x{{ else }}{{ .other }}{{ end }}{{ end }}`: "x",
		`{{/* a comment */}}c`: "c",
	} {
		tmpl, err := compile(data)
		if err != nil {
			t.Errorf("%q: %v", data, err)
			continue
		}
		got, missing, err := tmpl.Render(lookup)
		if err != nil || len(missing) > 0 || got != want {
			t.Errorf("%q: got %q, missing %v, error %v; want %q", data, got, missing, err, want)
		}
	}
}

func TestMissingVariableIsWaitedFor(t *testing.T) {
	tmpl, err := compile(`{{ with nomadVar "a" }}{{ .k }}{{ end }}{{ with nomadVar "nomad/jobs/bots" }}{{ end }}`)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(tmpl.Paths(), []string{"a", "nomad/jobs/bots"}) {
		t.Errorf("paths %v", tmpl.Paths())
	}
	if _, missing, err := tmpl.Render(lookup); err != nil || !slices.Equal(missing, []string{"a"}) {
		t.Errorf("missing %v, error %v", missing, err)
	}
}

func TestMissingKeyAsError(t *testing.T) {
	tmpl, err := compile(`{{ with nomadVar "nomad/jobs/bots" }}{{ .none }}{{ end }}`)
	if err != nil {
		t.Fatal(err)
	}
	tmpl.ErrMissingKey = true
	if _, _, err := tmpl.Render(lookup); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("got %v", err)
	}
}

// What is not run is refused by name, never ignored.
func TestRefused(t *testing.T) {
	for data, want := range map[string]string{
		`{{ key "a" }}`:                                          `function "key" not defined`,
		`{{ env "HOME" }}`:                                       `function "env" not defined`,
		`{{ range nomadVarList }}{{ end }}`:                      `function "nomadVarList" not defined`,
		`{{ range $x := nomadVar "a" }}{{ end }}`:                "{{range $x := nomadVar \"a\"}}",
		`{{ if nomadVar "a" }}{{ end }}`:                         "{{if nomadVar",
		`{{ nomadVar "a" }}`:                                     `{{nomadVar "a"}}`,
		`{{ with nomadVar "x" }}{{ .key | toJSON }}{{ end }}`:    `{{.key | toJSON}}`,
		`{{ .key }}`:                                             `{{.key}}`,
		`{{ with nomadVar "a" }}{{ .k | printf "%s" }}{{ end }}`: `printf`,
		`{{ with .x }}{{ end }}`:                                 "with .x",
		`{{ define "x" }}{{ end }}`:                              `define "x"`,
		`{{ template "x" }}`:                                     `{{template "x"}}`,
		`{{ with nomadVar "a"`:                                   "unclosed action",
	} {
		if _, err := compile(data); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: got %v, want %s", data, err, want)
		}
	}
}

func TestPlaceAndChange(t *testing.T) {
	for _, c := range []struct{ dest, perms, mode, want string }{
		{"", "", "", "needs a destination"},
		{"/etc/passwd", "", "", "below the task's directory"},
		{"local/../../x", "", "", "below the task's directory"},
		{"local/x", "0999", "", "octal mode"},
		{"local/x", "", "script", `change_mode "script"`},
		{"local/x", "", "signal", "must specify signal value"},
		{"local/x", "0600", "noop", ""},
	} {
		data := "x"
		_, err := Compile(&api.Template{EmbeddedTmpl: &data, DestPath: &c.dest, Perms: &c.perms, ChangeMode: &c.mode})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: got %v", c, err)
		}
	}
}

func TestEnvVars(t *testing.T) {
	got, err := EnvVars("# c\n\nA=1\nexport B = \"x\\ty\"\nC='$x'\nD=a=b\n")
	want := map[string]string{"A": "1", "B": "x\ty", "C": "$x", "D": "a=b"}
	if err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v", got, err)
	}
	if _, err := EnvVars("A=1\nS3CRET\n"); err == nil || strings.Contains(err.Error(), "S3CRET") {
		t.Errorf("got %v", err)
	}
}

func FuzzCompile(f *testing.F) {
	f.Add(`{{ with nomadVar "a" }}{{ .k }}{{ else }}{{ end }}`, "{{", "}}")
	f.Add("[[ with nomadVar `a` ]][[ end ]]", "[[", "]]")
	f.Fuzz(func(t *testing.T, data, left, right string) {
		dest := "local/x"
		tmpl, err := Compile(&api.Template{EmbeddedTmpl: &data, DestPath: &dest, LeftDelim: &left, RightDelim: &right})
		if err != nil {
			return
		}
		_, _, _ = tmpl.Render(lookup)
	})
}
