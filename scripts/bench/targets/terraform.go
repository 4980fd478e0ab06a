// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// Recorded figures of nomad_variable of terraform-provider-nomad, which is on few machines:
// milliseconds for each of 200, and MB of the provider.
const (
	nomadApplyMS   = 13.6
	nomadRefreshMS = 7.7
	nomadPeakMB    = 33
	nomadProvider  = "terraform-provider-nomad"
)

// many resources, of which one costs what many cost more than one, over their number.
const many = 200

// terraform measures target 17: what a record costs in the life of a configuration, beside
// terraform_data, which is the CLI's own cost, and beside nomad_variable.
func (b *bench) terraform(runs int) ([]row, error) {
	cli, err := findCLI()
	if err != nil {
		fmt.Fprintln(os.Stderr, "target 17 is not measured:", err)
		return nil, nil
	}
	peak, err := b.build("peak")
	if err != nil {
		return nil, err
	}
	agent, err := b.startAgent()
	if err != nil {
		return nil, err
	}
	defer agent.end()
	kinds := []*subject{
		{name: "botscreen", program: "bin/terraform-provider-botscreen", text: "resource \"botscreen_profile\" \"x\" {\n  count = %d\n  name  = \"bench-${count.index}\"\n}\n"},
		{name: "terraform", text: "resource \"terraform_data\" \"x\" {\n  count = %d\n  input = count.index\n}\n"},
	}
	if path, err := exec.LookPath(nomadProvider); err == nil {
		kinds = append(kinds, &subject{name: "nomad", program: path,
			text: "resource \"nomad_variable\" \"x\" {\n  count = %d\n  path  = \"bench/${count.index}\"\n  items = { a = \"b\" }\n}\n"})
	} else {
		fmt.Fprintln(os.Stderr, "target 17: "+nomadProvider+" is not on PATH; its figures are recorded ones")
	}
	for range min(runs, 3) {
		for _, k := range kinds { // in turns: what is busy is so for all of them
			w := workspace{bench: b, cli: cli, peak: peak, agent: agent, subject: k}
			if err := w.life(); err != nil {
				return nil, fmt.Errorf("%s: %w", k.name, err)
			}
		}
	}
	return provided(kinds), nil
}

// subject is what a configuration is made of, and what its life has cost so far.
type subject struct {
	name, program, text              string
	apply, refresh, peak             []float64 // milliseconds for each resource; MB
	applyRequests, refreshRequests   []float64
	smallApply, smallRefresh         time.Duration
	smallApplyCount, smallCheckCount int64
}

func provided(kinds []*subject) []row {
	ours, floor := kinds[0], kinds[1]
	rows := []row{
		beside(17, "provider: apply per profile, beside terraform_data", "ms", ours.apply, floor.apply),
		beside(17, "provider: refresh per profile, beside terraform_data", "ms", ours.refresh, floor.refresh),
		alone(17, "provider: requests per profile, apply", "requests", ours.applyRequests),
		alone(17, "provider: requests per profile, refresh", "requests", ours.refreshRequests),
	}
	const apply, refresh, peak = "provider: apply per profile, beside nomad_variable", "provider: refresh per profile, beside nomad_variable",
		"provider: peak memory at 200, beside nomad_variable"
	if len(kinds) > 2 {
		nomad := kinds[2]
		return append(rows, beside(17, apply, "ms", ours.apply, nomad.apply).atMost(1),
			beside(17, refresh, "ms", ours.refresh, nomad.refresh).atMost(1), beside(17, peak, "MB", ours.peak, nomad.peak).atMost(1))
	}
	return append(rows, besideRecorded(17, apply, "ms", ours.apply, nomadApplyMS).atMost(1),
		besideRecorded(17, refresh, "ms", ours.refresh, nomadRefreshMS).atMost(1), besideRecorded(17, peak, "MB", ours.peak, nomadPeakMB).atMost(1))
}

func findCLI() (string, error) {
	for _, name := range []string{"terraform", "tofu", ".botscreen/tofu/tofu"} {
		if path, err := exec.LookPath(name); err == nil {
			return filepath.Abs(path)
		}
	}
	return "", errors.New("neither terraform nor tofu is on PATH, and `make tofu` has built none")
}

// workspace is one configuration of a subject.
type workspace struct {
	*bench
	*subject
	cli, peak string
	agent     *benchAgent
	dir       string
}

// life applies one and many, plans both again, and destroys.
func (w *workspace) life() error {
	var err error
	if w.dir, err = os.MkdirTemp(w.bench.dir, "tf"); err != nil {
		return err
	}
	if err := w.install(); err != nil {
		return err
	}
	for _, n := range []int{1, many} {
		if err := w.write(n); err != nil {
			return err
		}
		_ = os.Remove(w.peakFile())
		applied, puts, err := w.timed("apply", "-auto-approve")
		if err != nil {
			return err
		}
		checked, gets, err := w.timed("plan", "-detailed-exitcode")
		if err != nil {
			return err
		}
		if n == 1 {
			w.smallApply, w.smallRefresh, w.smallApplyCount, w.smallCheckCount = applied, checked, puts, gets
			if _, _, err := w.timed("destroy", "-auto-approve"); err != nil {
				return err
			}
			continue
		}
		each := func(whole, one time.Duration) float64 {
			// What costs nothing may come out as less than that.
			return max(0.01, float64(whole-one)/float64(time.Millisecond)/(many-1))
		}
		w.apply, w.refresh = append(w.apply, each(applied, w.smallApply)), append(w.refresh, each(checked, w.smallRefresh))
		w.applyRequests = append(w.applyRequests, float64(puts-w.smallApplyCount)/(many-1))
		w.refreshRequests = append(w.refreshRequests, float64(gets-w.smallCheckCount)/(many-1))
		if err := w.readPeak(); err != nil {
			return err
		}
	}
	_, _, err = w.timed("destroy", "-auto-approve")
	return err
}

func (w *workspace) peakFile() string { return filepath.Join(w.dir, "peak") }

// install has the CLI find the measuring wrapper under the provider's name.
func (w *workspace) install() error {
	if w.program == "" {
		return os.WriteFile(filepath.Join(w.dir, "cli.rc"), nil, 0o600)
	}
	name := "terraform-provider-" + w.name
	source := map[string]string{"botscreen": "botscreen/botscreen", "nomad": "hashicorp/nomad"}[w.name]
	if err := os.Symlink(w.peak, filepath.Join(w.dir, name)); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(w.dir, "cli.rc"), fmt.Appendf(nil, `provider_installation {
  dev_overrides {
    "registry.terraform.io/%[1]s" = %[2]q
    "registry.opentofu.org/%[1]s" = %[2]q
  }
  direct {}
}
`, source, w.dir), 0o600)
}

func (w *workspace) write(n int) error {
	head := ""
	if w.name == "botscreen" {
		head = "terraform {\n  required_providers {\n    botscreen = { source = \"botscreen/botscreen\" }\n  }\n}\n"
	}
	return os.WriteFile(filepath.Join(w.dir, "main.tf"), fmt.Appendf(nil, head+w.text, n), 0o600)
}

// timed runs a command and says how long it took and how many requests the agent got.
func (w *workspace) timed(args ...string) (time.Duration, int64, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	defer cancel()
	program, err := filepath.Abs(w.program)
	if err != nil {
		return 0, 0, err
	}
	cmd := exec.CommandContext(ctx, w.cli, append(args, "-no-color")...)
	cmd.Dir = w.dir
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + w.dir, "TF_CLI_CONFIG_FILE=" + filepath.Join(w.dir, "cli.rc"), "TF_IN_AUTOMATION=1",
		"CHECKPOINT_DISABLE=1", "NOMAD_ADDR=" + w.agent.door.URL, "NOMAD_TOKEN=" + w.agent.token, "PEAK_PROGRAM=" + program, "PEAK_FILE=" + w.peakFile()}
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	before, began := w.agent.requests.Load(), time.Now()
	if err := cmd.Run(); err != nil {
		return 0, 0, fmt.Errorf("%s %s: %w\n%.2000s", filepath.Base(w.cli), strings.Join(args, " "), err, out.String())
	}
	return time.Since(began), w.agent.requests.Load() - before, nil
}

// readPeak takes the largest memory of the provider's processes since the last count.
func (w *workspace) readPeak() error {
	if w.program == "" {
		return nil
	}
	text, err := os.ReadFile(w.peakFile())
	if err != nil {
		return err
	}
	var all []float64
	for _, line := range strings.Fields(string(text)) {
		kib, err := strconv.ParseFloat(line, 64)
		if err != nil {
			return err
		}
		all = append(all, kib*1024/1e6)
	}
	w.subject.peak = append(w.subject.peak, slices.Max(all))
	return nil
}

// benchAgent is an embedded agent behind a door that counts.
type benchAgent struct {
	cmd      *exec.Cmd
	door     *httptest.Server
	token    string
	requests atomic.Int64
}

func (b *bench) startAgent() (*benchAgent, error) {
	dir, err := os.MkdirTemp(b.dir, "agent")
	if err != nil {
		return nil, err
	}
	config := filepath.Join(dir, "plugin.hcl")
	if err := os.WriteFile(config, fmt.Appendf(nil, "plugin \"nomad-driver-botscreen\" {\n  config {\n    state_dir = %q\n    run_dir = %q\n  }\n}\n",
		filepath.Join(dir, "state"), filepath.Join(dir, "run")), 0o600); err != nil {
		return nil, err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	address := free.Addr().String()
	if err := free.Close(); err != nil {
		return nil, err
	}
	a := &benchAgent{cmd: exec.Command("bin/botscreen", "agent", "-dev", "-config", config, "-data-dir", filepath.Join(dir, "data"), "-bind", address)}
	var said bytes.Buffer
	a.cmd.Stdout, a.cmd.Stderr = &said, &said
	a.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := a.cmd.Start(); err != nil {
		return nil, fmt.Errorf("agent: %w", err)
	}
	target := &url.URL{Scheme: "http", Host: address}
	back := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }}
	a.door = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.requests.Add(1)
		back.ServeHTTP(w, r)
	}))
	for deadline := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		token, err := os.ReadFile(filepath.Join(dir, "data", "token"))
		conn, dialErr := net.Dial("tcp", address)
		if dialErr == nil {
			_ = conn.Close()
		}
		if err == nil && dialErr == nil {
			a.token = strings.TrimSpace(string(token))
			return a, nil
		}
		if time.Now().After(deadline) {
			a.end()
			return nil, fmt.Errorf("the embedded agent does not answer: %w\n%s", errors.Join(err, dialErr), said.Bytes())
		}
	}
}

func (a *benchAgent) end() {
	a.door.Close()
	_ = a.cmd.Process.Signal(syscall.SIGTERM)
	_ = a.cmd.Wait()
}
