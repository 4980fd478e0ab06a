// SPDX-License-Identifier: MPL-2.0

package structure

import (
	"bytes"
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/botscreen/botscreen/"

// allowed is the import table of the architecture: what of ours a package may import,
// besides its own sub-packages. A name ending in /... stands for everything below it.
var allowed = map[string][]string{
	"cmd/nomad-driver-botscreen": {"driver/...", "shared/nomadplugin/..."},
	"cmd/botscreen":              {"shared/..."},
	// The main of the provider serves it and does nothing else.
	"cmd/terraform-provider-botscreen": {"provider"},

	// Schema, plan logic and CRUD; what screens are and how they become jobs is in shared.
	"provider":            {"shared/nomadjob", "shared/image", "shared/control/...", "shared/lease", "shared/screen"},
	"provider/connection": {},

	"driver/plugin":       {"driver/task", "driver/fingerprint", "driver/isolation/...", "driver/cgroup", "driver/display", "driver/memory", "driver/process", "driver/requirements", "shared/nomadplugin/...", "shared/screen", "shared/control"},
	"driver/task":         {"driver/isolation", "driver/memory", "driver/display", "driver/slot", "driver/cgroup", "driver/process", "driver/session/dialhome", "shared/control", "shared/screen"},
	"driver/fingerprint":  {"driver/isolation/...", "driver/display", "driver/memory", "driver/cgroup", "driver/requirements", "shared/screen"},
	"driver/requirements": {"driver/browser", "driver/userns", "driver/display", "driver/memory", "driver/cgroup", "driver/slot", "shared/screen"},
	"driver/supervise":    {"driver/memory", "driver/cgroup", "shared/lease", "shared/audit", "shared/relay/...", "shared/control/...", "shared/rfb", "driver/session/dialhome", "driver/process", "shared/screen"},
	"driver/session":      {"shared/control", "driver/desktop", "driver/browser", "driver/display", "driver/process", "shared/cdp", "shared/screen"},
	"driver/isolation":    {"driver/userns", "driver/cgroup", "driver/process", "driver/session/dialhome", "shared/screen"},
	"driver/desktop":      {"driver/display", "driver/process", "shared/screen"},
	"driver/browser":      {"driver/userns", "shared/cdp", "shared/screen", "shared/form"},
	"driver/display":      {"driver/slot"},
	"driver/memory":       {"driver/slot", "driver/cgroup"},
	"driver/cgroup":       {"shared/form"},
	"driver/slot":         {},
	"driver/userns":       {},
	"driver/process":      {},

	// The suite is the plugin's stand-in: it runs a supervisor and asks it.
	"driver/isolation/isolationtest": {"driver/isolation", "driver/supervise", "driver/session/dialhome", "driver/display", "driver/process", "shared/control", "shared/screen", "shared/testkit/..."},

	"driver/task/tasktest": {"driver/task", "driver/process", "shared/control"}, // for tests alone

	"shared/nomadjob":    {"shared/screen", "shared/control/..."},
	"shared/control":     {"shared/crowd", "shared/lease", "shared/relay/...", "shared/screen"},
	"shared/relay":       {"shared/crowd", "shared/lease", "shared/rfb", "shared/screen"},
	"shared/cdp":         {"shared/screen", "shared/form"},
	"shared/cdp/cdptest": {"shared/testkit/..."}, // for tests alone
	"shared/crowd":       {},
	"shared/lease":       {"shared/screen"},
	"shared/audit":       {"shared/lease", "shared/screen"},
	"shared/form":        {},
	"shared/image":       {},
	"shared/rfb":         {},
	"shared/screen":      {"shared/form"},
	"shared/nomadplugin": {},
	"shared/devagent":    {"shared/nomadplugin/...", "shared/nomadjob", "shared/screen"},
	"shared/testkit":     {"shared/rfb"},

	// What the provider tells of itself, for its pages.
	"scripts/terraform-schema": {"provider"},
	// The bench measures parts by themselves, as their users call them.
	// It is a session's supervisor itself where the way out of a sandbox is measured.
	"scripts": {"driver/desktop", "driver/display", "driver/process", "driver/cgroup", "driver/isolation/...", "driver/session/dialhome", "shared/nomadplugin/...", "shared/control", "shared/lease", "shared/relay/...", "shared/rfb", "shared/screen"},
	"acctest": {"shared/..."},
}

// homes are outside libraries that shape a design, and the one place each may be used.
var homes = map[string][]string{
	"github.com/jezek/xgb":                 {"driver/desktop"},
	"github.com/hashicorp/go-plugin":       {"shared/nomadplugin"},
	"google.golang.org/grpc":               {"shared/nomadplugin"},
	"github.com/spf13/cobra":               {"cmd/botscreen"},
	"github.com/prometheus/client_golang":  {"cmd/botscreen"},
	"github.com/modelcontextprotocol":      {"cmd/botscreen"},
	"github.com/docker/docker":             {"driver/isolation/docker"},
	"filippo.io/age":                       {"cmd/botscreen"},
	"github.com/shirou/gopsutil/v3":        {"driver/memory", "driver/plugin"},
	"github.com/hashicorp/nomad/api":       {"shared/devagent", "shared/nomadjob", "cmd/botscreen", "acctest", "provider"},
	"github.com/chromedp/chromedp":         {"acctest"},
	"github.com/hashicorp/hcl/v2/hclwrite": {},

	"github.com/google/go-containerregistry": {"shared/image"},

	"github.com/hashicorp/terraform-plugin-framework":            {"provider", "cmd/terraform-provider-botscreen", "scripts/terraform-schema"},
	"github.com/hashicorp/terraform-plugin-framework-validators": {"provider"},
	"github.com/hashicorp/terraform-plugin-framework-timeouts":   {"provider"},
}

type goPackage struct {
	ImportPath   string
	Dir          string
	Name         string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
	GoFiles      []string
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Name,Imports,TestImports,XTestImports,Deps,GoFiles", "./...")
	cmd.Dir = root(t)
	out, err := cmd.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			t.Fatalf("go list: %v\n%s", err, exit.Stderr)
		}
		t.Fatal(err)
	}
	var all []goPackage
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var p goPackage
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// ruleOf finds the table's line for a package: its own, or the nearest above it.
func ruleOf(path string) (string, bool) {
	for dir := path; dir != "."; dir = filepath.Dir(dir) {
		if _, ok := allowed[dir]; ok {
			return dir, true
		}
	}
	return "", false
}

func TestImportTable(t *testing.T) {
	for _, p := range packages(t) {
		path := strings.TrimPrefix(p.ImportPath, module)
		rule, ok := ruleOf(path)
		if !ok {
			t.Errorf("%s stands in no line of the import table", path)
			continue
		}
		for _, imported := range p.Imports {
			ours, isOurs := strings.CutPrefix(imported, module)
			if isOurs && !within(ours, rule) && !permitted(ours, allowed[rule]) {
				t.Errorf("%s imports %s; the table allows %s only %v", path, ours, rule, allowed[rule])
			}
			checkHome(t, path, imported)
		}
	}
}

func permitted(path string, patterns []string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool {
		if below, ok := strings.CutSuffix(pattern, "/..."); ok {
			return within(path, below)
		}
		return path == pattern
	})
}

func within(path, dir string) bool { return path == dir || strings.HasPrefix(path, dir+"/") }

func checkHome(t *testing.T, path, imported string) {
	t.Helper()
	for library, places := range homes {
		if !within(imported, library) {
			continue
		}
		if !slices.ContainsFunc(places, func(home string) bool { return within(path, home) }) {
			t.Errorf("%s imports %s, whose home is %v", path, library, places)
		}
	}
}

// Nomad itself is under a licence this project cannot use; only its API client is not.
func TestNomadIsNoDependency(t *testing.T) {
	const nomad = "github.com/hashicorp/nomad"
	for _, p := range packages(t) {
		for _, dep := range slices.Concat(p.Deps, p.TestImports, p.XTestImports) {
			if within(dep, nomad) && !within(dep, nomad+"/api") {
				t.Errorf("%s depends on %s", p.ImportPath, dep)
			}
		}
	}
}

func TestPackageComments(t *testing.T) {
	for _, p := range packages(t) {
		var found []string
		for _, file := range p.GoFiles {
			parsed, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, file), nil, parser.ParseComments|parser.PackageClauseOnly)
			if err != nil {
				t.Fatal(err)
			}
			if parsed.Doc != nil {
				found = append(found, file)
			}
		}
		generated := strings.HasSuffix(p.Name, "pb")
		if len(found) != 1 && len(p.GoFiles) > 0 && !generated {
			t.Errorf("%s has %d package comments (%v), want one", p.ImportPath, len(found), found)
		}
	}
}

// rootCalls are path calls that follow links: as root they must not meet a path that
// somebody else can change (threats.md X6). Each place that may make them says why.
var rootCalls = map[string]string{
	"driver/desktop":             "runs as the screen's uid, never as root",
	"driver/browser":             "runs as the screen's uid, never as root",
	"driver/task/settings.go":    "parents are root's alone; ensureDir checks that",
	"driver/isolation/namespace": "the scratch directory is root's alone",
}

func TestX6PathCallsAsRoot(t *testing.T) {
	dangerous := []string{"MkdirAll", "Chown", "Lchown", "WriteFile"}
	base := root(t)
	err := filepath.WalkDir(filepath.Join(base, "driver"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		rel, _ := filepath.Rel(base, path)
		for place := range rootCalls {
			if within(rel, place) {
				return nil
			}
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, 0)
		if err != nil {
			return err
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			call, ok := n.(*ast.SelectorExpr)
			if !ok {
				return true
			}
			if name, ok := call.X.(*ast.Ident); ok && name.Name == "os" && slices.Contains(dangerous, call.Sel.Name) {
				t.Errorf("%s calls os.%s; use descriptors (os.Root, openat2) or add the file to the list with its reason", rel, call.Sel.Name)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// DSP-19: a parent-death signal is tied to the thread that forked, which Go may end at
// any time, and would end screens with the driver.
func TestDSP19NoParentDeathSignal(t *testing.T) {
	base := root(t)
	err := filepath.WalkDir(filepath.Join(base, "driver"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if bytes.Contains(text, []byte("Pdeathsig")) || bytes.Contains(text, []byte("PR_SET_PDEATHSIG")) {
			t.Errorf("%s sets a parent-death signal", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestLicenceLines(t *testing.T) {
	base := root(t)
	err := filepath.WalkDir(base, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (d.Name() == ".git" || d.Name() == "bin" || d.Name() == "node_modules") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, ".pb.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.HasPrefix(text, []byte("// SPDX-License-Identifier: MPL-2.0\n")) {
			t.Errorf("%s does not begin with its licence", path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
