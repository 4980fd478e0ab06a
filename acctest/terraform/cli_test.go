// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

// bench is one test's place: a CLI, an agent behind a proxy, and a directory with a
// configuration of its own.
type bench struct {
	*testing.T
	cli    cli
	agent  *agent
	proxy  *proxy
	dir    string
	prefix string // of this test's records
	token  string
	env    []string
}

// cli is a Terraform or an OpenTofu.
type cli struct{ name, path string }

func newBench(t *testing.T, c cli, a *agent) *bench {
	t.Helper()
	b := &bench{T: t, cli: c, agent: a, proxy: newProxy(t, a.addr, nil), token: a.token}
	b.dir = t.TempDir()
	b.prefix = fmt.Sprintf("tf%08x", rand.Uint32())
	write(t, filepath.Join(b.dir, "cli.rc"), fmt.Sprintf(`provider_installation {
  dev_overrides {
    "registry.terraform.io/botscreen/botscreen" = %[1]q
    "registry.opentofu.org/botscreen/botscreen" = %[1]q
  }
  direct {}
}
`, filepath.Dir(binary(t, "terraform-provider-botscreen"))))
	t.Cleanup(b.cleanUp)
	return b
}

// cleanUp removes what a test that failed has left.
func (b *bench) cleanUp() {
	b.proxy.hook(nil)
	c := b.agent.api
	b.agent.stopJobs(b.T, func(id string) bool { return strings.Contains(id, b.prefix) })
	list, _, _ := c.Variables().PrefixList(b.prefix+"/", nil)
	for _, v := range list {
		_, _ = c.Variables().Delete(v.Path, nil)
	}
}

// name is a name of this test's own.
func (b *bench) name(short string) string { return short + "-" + b.prefix }

// config writes the configuration. PREFIX stands for this test's prefix; the provider
// block gets its address from the environment.
func (b *bench) config(text string) {
	b.Helper()
	head := `terraform {
  required_providers {
    botscreen = { source = "botscreen/botscreen" }
  }
}
`
	if !strings.Contains(text, `provider "botscreen"`) {
		head += "provider \"botscreen\" {\n  variable_prefix = \"PREFIX\"\n}\n"
	}
	write(b.T, filepath.Join(b.dir, "main.tf"), strings.ReplaceAll(head+text, "PREFIX", b.prefix))
}

// outcome is how a command of the CLI ended.
type outcome struct {
	code int
	// text is what it said, as one line with single spaces: the CLI breaks lines anywhere.
	text string
	raw  string
}

var folds = regexp.MustCompile(`[\s│╷╵]+`)

func (b *bench) run(args ...string) outcome {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, b.cli.path, args...)
	cmd.Dir = b.dir
	cmd.Env = append([]string{
		"PATH=" + os.Getenv("PATH"), "HOME=" + b.dir, "TF_CLI_CONFIG_FILE=" + filepath.Join(b.dir, "cli.rc"), "TF_IN_AUTOMATION=1",
		"CHECKPOINT_DISABLE=1", "NOMAD_ADDR=" + b.proxy.URL, "NOMAD_TOKEN=" + b.token,
	}, b.env...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		b.Fatalf("%s %v: %v", b.cli.name, args, err)
	}
	return outcome{code: cmd.ProcessState.ExitCode(), text: folds.ReplaceAllString(out.String(), " "), raw: out.String()}
}

func (b *bench) must(args ...string) outcome {
	b.Helper()
	o := b.run(args...)
	if o.code != 0 {
		b.Fatalf("%s %v: code %d\n%s", b.cli.name, args, o.code, o.raw)
	}
	return o
}

// fails expects an error that says all of the words.
func (b *bench) fails(o outcome, words ...string) {
	b.Helper()
	if o.code != 1 {
		b.Fatalf("code %d, want an error:\n%s", o.code, o.raw)
	}
	b.says(o, words...)
}

func (b *bench) says(o outcome, words ...string) {
	b.Helper()
	for _, w := range words {
		if !strings.Contains(o.text, w) {
			b.Errorf("no %q in:\n%s", w, o.raw)
		}
	}
}

func (b *bench) apply(args ...string) outcome {
	b.Helper()
	return b.must(append([]string{"apply", "-no-color", "-auto-approve"}, args...)...)
}

func (b *bench) tryApply(args ...string) outcome {
	b.Helper()
	return b.run(append([]string{"apply", "-no-color", "-auto-approve"}, args...)...)
}

// settle applies and expects the next plan to be empty.
func (b *bench) settle(args ...string) {
	b.Helper()
	b.apply(args...)
	b.empty(args...)
}

// empty expects a plan without changes.
func (b *bench) empty(args ...string) {
	b.Helper()
	if o := b.run(append([]string{"plan", "-no-color", "-detailed-exitcode"}, args...)...); o.code != 0 {
		b.Fatalf("the plan is not empty: code %d\n%s", o.code, o.raw)
	}
}

func (b *bench) destroy() {
	b.Helper()
	b.must("destroy", "-no-color", "-auto-approve")
}

// change is one resource's part of a plan.
type change struct {
	Actions      []string       `json:"actions"`
	Before       map[string]any `json:"before"`
	After        map[string]any `json:"after"`
	AfterUnknown map[string]any `json:"after_unknown"`
	ReplacePaths []any          `json:"replace_paths"`
	BeforeIdentity,
	AfterIdentity map[string]any
}

// plan makes a plan file and reads it.
func (b *bench) plan(args ...string) (map[string]change, outcome) {
	b.Helper()
	o := b.must(append([]string{"plan", "-no-color", "-out=plan"}, args...)...)
	return b.planned("plan"), o
}

func (b *bench) planned(file string) map[string]change {
	b.Helper()
	var doc struct {
		Changes []struct {
			Address string `json:"address"`
			Change  change `json:"change"`
		} `json:"resource_changes"`
	}
	b.show(&doc, file)
	out := map[string]change{}
	for _, c := range doc.Changes {
		out[c.Address] = c.Change
	}
	return out
}

func (b *bench) show(into any, args ...string) {
	b.Helper()
	o := b.must(append([]string{"show", "-json"}, args...)...)
	// Warnings of development overrides are not JSON.
	text := o.raw[max(0, strings.Index(o.raw, "{")):]
	if err := json.NewDecoder(strings.NewReader(text)).Decode(into); err != nil {
		b.Fatalf("show -json: %v\n%.500s", err, o.raw)
	}
}

// state is every resource's attributes by address.
func (b *bench) state() map[string]map[string]any {
	b.Helper()
	type module struct {
		Resources []struct {
			Address string         `json:"address"`
			Values  map[string]any `json:"values"`
		} `json:"resources"`
		Children []json.RawMessage `json:"child_modules"`
	}
	var doc struct {
		Values struct {
			Root module `json:"root_module"`
		} `json:"values"`
	}
	b.show(&doc)
	out := map[string]map[string]any{}
	for _, r := range doc.Values.Root.Resources {
		out[r.Address] = r.Values
	}
	return out
}

// has expects an attribute of the state.
func (b *bench) has(address, attribute string, want any) {
	b.Helper()
	got, ok := b.state()[address][attribute]
	if !ok || !reflect.DeepEqual(plain(got), plain(want)) {
		b.Errorf("%s.%s is %v, want %v", address, attribute, got, want)
	}
}

// plain is a value as JSON has it.
func plain(v any) any {
	text, _ := json.Marshal(v)
	var out any
	_ = json.Unmarshal(text, &out)
	return out
}

// does expects what a plan does to a resource: "create", "update", "delete", "no-op", or
// "delete,create" for a replacement.
func (b *bench) does(c map[string]change, address, want string) {
	b.Helper()
	if got := strings.Join(c[address].Actions, ","); got != want {
		b.Errorf("%s: %q, want %q", address, got, want)
	}
}

// changesOnly expects the known changes of an update to be of these attributes.
func (b *bench) changesOnly(c change, attributes ...string) {
	b.Helper()
	want := map[string]bool{}
	for _, a := range attributes {
		want[a] = true
	}
	for key, after := range c.After {
		changed := !reflect.DeepEqual(c.Before[key], after)
		if changed != want[key] {
			b.Errorf("%s: %v → %v; only %v may change", key, c.Before[key], after, attributes)
		}
	}
	for key := range c.AfterUnknown {
		if c.AfterUnknown[key] == true && !want[key] {
			b.Errorf("%s becomes unknown; only %v may change", key, attributes)
		}
	}
}
