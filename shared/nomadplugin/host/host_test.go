// SPDX-License-Identifier: MPL-2.0

package host

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/shared/nomadplugin"
)

func TestDiscover(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"driver": 0o755, "other.exe": 0o700, "notes.txt": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Mkdir(filepath.Join(dir, "sub"), 0o755), os.Symlink("driver", filepath.Join(dir, "link"))); err != nil {
		t.Fatal(err)
	}
	found, skipped, err := Discover(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, binary := range found {
		names = append(names, binary.Name)
	}
	if want := []string{"driver", "link", "other"}; !slices.Equal(names, want) {
		t.Errorf("found %q: want %q", names, want)
	}
	if len(skipped) != 2 || !strings.Contains(skipped[0].Reason+skipped[1].Reason, "not executable") {
		t.Errorf("skipped %v", skipped)
	}
	if err := os.Symlink("nowhere", filepath.Join(dir, "broken")); err != nil {
		t.Fatal(err)
	}
	if _, _, err := Discover(dir); err == nil {
		t.Error("an entry that cannot be examined is no error")
	}
	if found, skipped, err := Discover(filepath.Join(dir, "missing")); err != nil || found != nil || skipped != nil {
		t.Errorf("a missing directory: %v, %v, %v", found, skipped, err)
	}
}

func TestC20_order_of_calls(t *testing.T) {
	p := script(t, "")
	h := p.load()
	if _, err := h.Instance(p.context()); err != nil {
		t.Fatal(err)
	}
	if err := h.Close(p.context()); err != nil {
		t.Fatal(err)
	}
	const config = "api=v0.1.0 config=81a16e05"
	want := []string{
		"p1 PluginInfo", "p1 ConfigSchema",
		"p2 SetConfig node=false " + config, "p2 SetConfig node=false " + config,
		"p3 SetConfig node=true " + config, "p3 Init", "p3 Shutdown",
	}
	if got := p.calls(); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	if _, err := h.Instance(p.context()); !errors.Is(err, ErrClosed) {
		t.Errorf("after Close: %v", err)
	}
}

func TestLoadErrors(t *testing.T) {
	for text, want := range map[string]string{
		"no_type":       "want DRIVER",
		"api=v9":        ErrNoCommonVersion.Error(),
		"version=new":   "version",
		"no_name":       "no name",
		"no_info":       "no info today",
		"bad_config":    "config refused",
		"no_schema":     "configuration not allowed but config passed",
		"netrpc":        "", // C17
		"die_at_launch": "",
	} {
		t.Run(text, func(t *testing.T) {
			p := script(t, text)
			_, err := Load(p.context(), p.options)
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v: want %q", err, want)
			}
			if (text == "api=v9") != errors.Is(err, ErrNoCommonVersion) {
				t.Errorf("no common version: %v", err)
			}
		})
	}
	p := script(t, "")
	p.options.Config = map[string]any{"n": "many"}
	if _, err := Load(p.context(), p.options); err == nil || !strings.Contains(err.Error(), "a number is required") {
		t.Errorf("a configuration that does not fit: %v", err)
	}
	p.options.Path = filepath.Join(t.TempDir(), "missing")
	if _, err := Load(p.context(), p.options); err == nil {
		t.Error("a missing binary: accepted")
	}
	p.options.Path, p.options.Args = "/bin/sleep", []string{"60"}
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer cancel()
	start := time.Now()
	if _, err := Load(ctx, p.options); !errors.Is(err, context.DeadlineExceeded) || time.Since(start) > 5*time.Second {
		t.Errorf("a program that is no plugin: %v after %v", err, time.Since(start))
	}
}

func TestNoSchemaAndNoConfiguration(t *testing.T) {
	p := script(t, "no_schema")
	p.options.Config = nil
	h := p.load()
	if _, err := h.Instance(p.context()); err != nil {
		t.Fatal(err)
	}
	if calls := p.calls(); slices.ContainsFunc(calls, func(c string) bool { return strings.Contains(c, "node=false") }) {
		t.Errorf("the configuration was validated without a schema: %q", calls)
	}
}

func TestC30_old_and_failing_init(t *testing.T) {
	p := script(t, "old")
	h := p.load()
	if _, err := h.Instance(p.context()); err != nil {
		t.Errorf("a plugin without Init: %v", err)
	}
	if err := h.Close(p.context()); err != nil {
		t.Errorf("a plugin without Shutdown: %v", err)
	}
	p = script(t, "bad_init")
	_, err := p.load().Instance(p.context())
	if err == nil || !strings.Contains(err.Error(), "init of plugin scripted failed") {
		t.Errorf("got %v", err)
	}
}

// lines collects log output by level.
type lines struct{ entries chan string }

func (l lines) Write(data []byte) (int, error) {
	select {
	case l.entries <- string(data):
	default:
	}
	return len(data), nil
}

func TestC25_log_levels_are_kept(t *testing.T) {
	p := script(t, "")
	out := lines{make(chan string, 1000)}
	p.options.Logger = hclog.New(&hclog.LoggerOptions{Level: hclog.Info, Output: out})
	p.load()
	timeout := time.After(10 * time.Second)
	for {
		select {
		case line := <-out.entries:
			if strings.Contains(line, "an information of the plugin") && strings.Contains(line, "[INFO]") {
				return
			}
		case <-timeout:
			t.Fatal("the line after one of 100 KiB does not arrive")
		}
	}
}

func TestC38_streams_are_opened_again(t *testing.T) {
	p := script(t, "fingerprint=err,ends,fails,dies events_end")
	h := p.load()
	ctx, cancel := context.WithCancel(p.context())
	defer cancel()
	prints := make(chan *nomadplugin.Fingerprint, 100)
	ended := make(chan error, 2)
	go func() { ended <- h.Fingerprint(ctx, func(f *nomadplugin.Fingerprint) { prints <- f }) }()
	var story []string
	for len(story) < 6 {
		f := <-prints
		story = append(story, f.GetHealth().String()+" "+f.GetHealthDescription())
	}
	want := []string{
		"UNDETECTED failed to fingerprint driver: probe broke", "HEALTHY Healthy",
		"HEALTHY Healthy", "UNDETECTED failed to fingerprint driver: Fingerprint: probe failed",
		"UNDETECTED failed to fingerprint driver: plugin is shut down", "HEALTHY Healthy",
	}
	if !slices.Equal(story, want) {
		t.Errorf("got  %q\nwant %q", story, want)
	}
	events := make(chan *nomadplugin.TaskEvent, 100)
	go func() { ended <- h.TaskEvents(ctx, func(e *nomadplugin.TaskEvent) { events <- e }) }()
	<-events
	<-events
	cancel()
	for range 2 {
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("got %v", err)
		}
	}
}

func TestC38_launches_are_backed_off(t *testing.T) {
	p := script(t, "")
	h := p.load()
	path := h.options.Path
	h.options.Path = filepath.Join(t.TempDir(), "missing")
	ctx, cancel := context.WithCancel(p.context())
	defer cancel()
	var times []time.Time
	got := make(chan struct{})
	go func() {
		_ = h.Fingerprint(ctx, func(f *nomadplugin.Fingerprint) {
			times = append(times, time.Now())
			if f.GetHealth() == nomadplugin.Healthy {
				close(got)
			}
			if len(times) == 4 {
				h.options.Path = path
			}
		})
	}()
	<-got
	cancel()
	// 20, 40, 50 (the maximum) and 50 ms.
	if len(times) != 5 || times[2].Sub(times[1]) < 40*time.Millisecond || times[3].Sub(times[2]) < 50*time.Millisecond {
		t.Errorf("fingerprints at %v", times)
	}
}

func TestC81_reattach(t *testing.T) {
	p := script(t, "")
	var stored []*Reattach
	p.options.StoreReattach = func(r *Reattach) { stored = append(stored, r) }
	first := p.load()
	i, err := first.Instance(p.context())
	if err != nil {
		t.Fatal(err)
	}
	record, err := first.Detach(p.context())
	if err != nil || record.PID != i.PID() || len(stored) != 1 || *stored[0] != *record {
		t.Fatalf("record %+v, stored %+v, %v", record, stored, err)
	}
	encoded, err := json.Marshal(record)
	if err != nil {
		t.Fatal(err)
	}
	p.options.Reattach = &Reattach{}
	if err := json.Unmarshal(encoded, p.options.Reattach); err != nil {
		t.Fatal(err)
	}
	second := p.load()
	again, err := second.Instance(p.context())
	if err != nil || !again.Reattached() || again.PID() != i.PID() {
		t.Fatalf("%+v, %v", again, err)
	}
	calls := p.calls()
	// p3 is the process that stayed; p4 and p5 were thrown away.
	if got := calls[len(calls)-2:]; !slices.Equal(got, []string{"p3 PluginInfo", "p3 Init"}) {
		t.Errorf("got %q: want no SetConfig", got)
	}
	if err := second.Close(p.context()); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(record.PID, 0); !errors.Is(err, syscall.ESRCH) {
		t.Errorf("the process is still there: %v", err)
	}
	if stored[len(stored)-1] != nil {
		t.Error("the record was not cleared")
	}
}

func TestReattachRecordOfAnotherProcess(t *testing.T) {
	p := script(t, "")
	self, err := startTime(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for name, record := range map[string]*Reattach{
		"recycled pid": {Protocol: "grpc", Network: "unix", Address: "/nowhere", PID: os.Getpid(), StartTime: self + 1},
		"no socket":    {Protocol: "grpc", Network: "unix", Address: "/nowhere", PID: os.Getpid(), StartTime: self},
		"dead":         {Protocol: "grpc", Network: "unix", Address: "/nowhere", PID: 1 << 22, StartTime: 1},
		"other kind":   {Protocol: "netrpc", Network: "tcp", Address: "127.0.0.1:1", PID: os.Getpid(), StartTime: self},
	} {
		p.options.Reattach = record
		h := p.load()
		i, err := h.Instance(p.context())
		if err != nil || i.Reattached() || i.PID() == os.Getpid() {
			t.Errorf("%s: %+v, %v: want another process", name, i, err)
		}
		if err := h.Close(p.context()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestCloseKillsAStuckPlugin(t *testing.T) {
	p := script(t, "")
	h := p.load()
	i, err := h.Instance(p.context())
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(i.PID(), syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	start := time.Now()
	_ = h.Close(ctx)
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
	select {
	case <-i.Exited():
	default:
		t.Error("the process is still there")
	}
}
