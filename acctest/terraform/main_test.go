// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"text/tabwriter"
)

// build makes the binaries under test once: those of BOTSCREEN_BIN, as `make test` sets
// it, or fresh ones.
var build = sync.OnceValues(func() (string, error) {
	if dir := os.Getenv("BOTSCREEN_BIN"); dir != "" {
		return filepath.Abs(dir)
	}
	dir, err := os.MkdirTemp("", "botscreen-bin")
	if err != nil {
		return "", err
	}
	cmd := exec.Command("go", "build", "-o", dir+"/", "../../cmd/...")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("go build: %w\n%s", err, out)
	}
	return dir, nil
})

func binary(t testing.TB, name string) string {
	t.Helper()
	dir, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, name)
}

func TestMain(m *testing.M) {
	code := m.Run()
	report.print()
	if os.Getenv("BOTSCREEN_BIN") == "" {
		if dir, err := build(); err == nil {
			_ = os.RemoveAll(dir)
		}
	}
	os.Exit(code)
}

// findCLIs are the CLIs of this machine: terraform on PATH, OpenTofu on PATH or where
// `make tofu` puts it. BOTSCREEN_TERRAFORM and BOTSCREEN_TOFU name other ones.
func findCLIs() []cli {
	var out []cli
	for _, name := range []string{os.Getenv("BOTSCREEN_TERRAFORM"), "terraform"} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			out = append(out, cli{"terraform", path})
			break
		}
	}
	local, _ := filepath.Abs("../../.botscreen/tofu/tofu")
	for _, name := range []string{os.Getenv("BOTSCREEN_TOFU"), "tofu", local} {
		if path, err := exec.LookPath(name); name != "" && err == nil {
			return append(out, cli{"tofu", path})
		}
	}
	return out
}

// table is which row ran where; TestMain prints it.
type table struct {
	sync.Mutex
	rows, columns []string
	cells         map[[2]string]string
	reasons       []string
}

var report table

func (r *table) note(row, column, outcome, reason string) {
	r.Lock()
	defer r.Unlock()
	if r.cells == nil {
		r.cells = map[[2]string]string{}
	}
	if !slices.Contains(r.rows, row) {
		r.rows = append(r.rows, row)
	}
	if !slices.Contains(r.columns, column) {
		r.columns = append(r.columns, column)
	}
	r.cells[[2]string{row, column}] = outcome
	if line := row + ": " + reason; reason != "" && !slices.Contains(r.reasons, line) {
		r.reasons = append(r.reasons, line)
	}
}

func (r *table) print() {
	r.Lock()
	defer r.Unlock()
	if len(r.rows) == 0 {
		return
	}
	slices.Sort(r.rows)
	slices.Sort(r.columns)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprint(w, "\nprovider test")
	for _, c := range r.columns {
		_, _ = fmt.Fprintf(w, "\t%s", c)
	}
	_, _ = fmt.Fprintln(w)
	for _, row := range r.rows {
		_, _ = fmt.Fprint(w, row)
		for _, c := range r.columns {
			outcome, ran := r.cells[[2]string{row, c}]
			if !ran {
				outcome = "-"
			}
			_, _ = fmt.Fprintf(w, "\t%s", outcome)
		}
		_, _ = fmt.Fprintln(w)
	}
	_ = w.Flush()
	slices.Sort(r.reasons)
	for _, line := range r.reasons {
		fmt.Println("skipped", line)
	}
}
