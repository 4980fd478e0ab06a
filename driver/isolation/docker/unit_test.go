// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"github.com/docker/docker/api/types/system"
	dockerspec "github.com/moby/docker-image-spec/specs-go/v1"
)

func TestUnfitEngines(t *testing.T) {
	good := system.Info{OSType: "linux", KernelVersion: "6.1", SecurityOptions: []string{"name=seccomp,profile=default"}, PidsLimit: true, MemoryLimit: true}
	if reason := unfit(good); reason != "" {
		t.Errorf("a good engine: %s", reason)
	}
	for word, change := range map[string]func(*system.Info){
		"windows":  func(i *system.Info) { i.OSType = "windows" },
		"rootless": func(i *system.Info) { i.SecurityOptions = append(slices.Clone(i.SecurityOptions), "name=rootless") },
		"seccomp":  func(i *system.Info) { i.SecurityOptions = []string{"name=apparmor"} },
		"pids":     func(i *system.Info) { i.PidsLimit = false },
		"memory":   func(i *system.Info) { i.MemoryLimit = false },
	} {
		info := good
		change(&info)
		if reason := unfit(info); !strings.Contains(reason, word) {
			t.Errorf("want %s: %q", word, reason)
		}
	}
}

// P11: an engine that is not there is named with the step that starts it.
func TestEngineAway(t *testing.T) {
	path := filepath.Join(t.TempDir(), "docker.sock")
	b := boundaryAt(t, "unix://"+path)
	if h := b.Check(bounded(t)); h.Ready || !strings.Contains(h.Reason, path) || !strings.Contains(h.Reason, "not running") {
		t.Errorf("%+v", h)
	}
	_, err := b.Inspect(bounded(t), "any")
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.HasPrefix(refused.Sentence(), "isolation_refused: docker does not answer") ||
		!strings.Contains(refused.Sentence(), "allow_unsandboxed_host") || !refused.Temporary() {
		t.Errorf("%v", err)
	}
	must(t, os.WriteFile(path, nil, 0o600)) // a stale socket refuses
	if h := b.Check(bounded(t)); h.Ready || !strings.Contains(h.Reason, "systemctl start docker") {
		t.Errorf("%+v", h)
	}
}

func TestImages(t *testing.T) {
	good := func() image.InspectResponse {
		return image.InspectResponse{ID: "sha256:1", Os: "linux", Architecture: runtime.GOARCH, Config: &dockerspec.DockerOCIImageConfig{}}
	}
	if img, err := imageOf("x", good()); err != nil || img.ID != "sha256:1" {
		t.Errorf("%+v %v", img, err)
	}
	for word, change := range map[string]func(*image.InspectResponse){
		"windows":             func(i *image.InspectResponse) { i.Os = "windows" },
		"riscv":               func(i *image.InspectResponse) { i.Architecture = "riscv" },
		"com.hashicorp.nomad": func(i *image.InspectResponse) { i.Config.Labels = map[string]string{"com.hashicorp.nomad.x": ""} },
	} {
		found := good()
		change(&found)
		var refused *RefusedError
		if _, err := imageOf("x", found); !errors.As(err, &refused) || !strings.Contains(refused.Sentence(), word) {
			t.Errorf("want %s: %v", word, err)
		}
	}
	env := environment(Image{env: []string{"PATH", "LD_PRELOAD"}})
	if !slices.Equal(env, []string{"LD_PRELOAD", "LANG=C.UTF-8"}) {
		t.Errorf("%v", env)
	}
	if env := environment(Image{env: []string{"LANG"}}); len(env) != 0 {
		t.Errorf("%v", env)
	}
}

// P5: a failed pull is words, and what there is stays.
func TestPullFails(t *testing.T) {
	b := boundary(t)
	_, err := b.Pull(bounded(t), "127.0.0.1:1/no/image:1", "", 0)
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.Contains(refused.Sentence(), "127.0.0.1:1/no/image:1 could not be pulled") {
		t.Errorf("%v", err)
	}
	for progress, want := range map[string]string{
		"":                             "",
		`{"status":"Pulling"}` + "\n":  "",
		`{"status":"x"}{"error":"no"}`: "no",
		`{"status":"x"}{`:              "read progress: unexpected EOF",
		"<html>":                       "read progress: invalid character '<' looking for beginning of value",
	} {
		got := ""
		if err := pulled(strings.NewReader(progress), 0); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%s: %q, want %q", progress, got, want)
		}
	}
}

// Engines show the counters of cgroup v1 and v2 under other names.
func TestStats(t *testing.T) {
	v1 := container.StatsResponse{MemoryStats: container.MemoryStats{Usage: 100, MaxUsage: 120, Limit: 1 << 62, Stats: map[string]uint64{
		"total_rss": 50, "total_cache": 40, "total_inactive_file": 30, "total_mapped_file": 7, "total_swap": 3, "rss": 1, "inactive_file": 2}}}
	v2 := container.StatsResponse{MemoryStats: container.MemoryStats{Usage: 100, Limit: 500, Stats: map[string]uint64{
		"anon": 50, "file": 40, "inactive_file": 30, "file_mapped": 7}}}
	for name, sample := range map[string]container.StatsResponse{"v1": v1, "v2": v2} {
		m := statsOf(sample).Memory
		if m.Usage != 100 || m.RSS != 50 || m.Cache != 40 || m.WorkingSet != 70 || m.Mapped != 7 {
			t.Errorf("%s: %+v", name, m)
		}
	}
	if m := statsOf(v1).Memory; m.Limit != 0 || m.Swap != 3 {
		t.Errorf("v1: %+v", m)
	}
	if m := statsOf(v2).Memory; m.Limit != 500 {
		t.Errorf("v2: %+v", m)
	}
	v2.CPUStats.CPUUsage.TotalUsage, v2.PidsStats.Limit, v2.PidsStats.Current = uint64(time.Second), 1<<63, 9
	if s := statsOf(v2); s.CPU.Total != time.Second || s.Pids.Max != 0 || s.Pids.Current != 9 {
		t.Errorf("%+v %+v", s.CPU, s.Pids)
	}
}

func frame(stream byte, text string) []byte {
	header := []byte{stream, 0, 0, 0}
	return append(binary.BigEndian.AppendUint32(header, uint32(len(text))), text...)
}

func newFollower(t testing.TB, dir string) *follower {
	t.Helper()
	f := &follower{}
	for name, file := range map[string]**os.File{"out": &f.stdout, "err": &f.stderr} {
		var err error
		if *file, err = os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_RDWR|os.O_TRUNC, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return f
}

// Messages go to their log without the engine's time, each once.
func TestDemultiplex(t *testing.T) {
	f := newFollower(t, t.TempDir())
	at := func(n int) string { return fmt.Sprintf("2026-01-02T03:04:05.%09dZ ", n) }
	stream := slices.Concat(frame(1, at(1)+"one\n"), frame(2, at(2)+"two\n"), frame(1, at(3)), frame(1, at(4)+"no newline"))
	must(t, f.demultiplex(bytes.NewReader(stream)))
	again := slices.Concat(stream, frame(1, at(5)+" five\n"), []byte{1, 0, 0})
	must(t, f.demultiplex(bytes.NewReader(again)))
	out, err := os.ReadFile(f.stdout.Name())
	must(t, err)
	errs, err := os.ReadFile(f.stderr.Name())
	must(t, err)
	if string(out) != "one\nno newline five\n" || string(errs) != "two\n" {
		t.Errorf("%q %q", out, errs)
	}
	if err := f.demultiplex(bytes.NewReader([]byte{1, 0, 0, 0, 0xff, 0, 0, 0})); err == nil {
		t.Error("a message of 4 GB is taken")
	}
	_ = f.stdout.Close()
	if err := f.demultiplex(bytes.NewReader(frame(1, at(6)+"x"))); !errors.Is(err, errSink) {
		t.Errorf("%v", err)
	}
}

func FuzzDemultiplex(f *testing.F) {
	f.Add(frame(1, "2026-01-02T03:04:05.000000001Z text\n"))
	f.Add(slices.Concat(frame(2, ""), frame(0, "no time"), []byte{1, 2, 3}))
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, stream []byte) {
		follower := newFollower(t, dir)
		defer follower.stdout.Close()
		defer follower.stderr.Close()
		_ = follower.demultiplex(bytes.NewReader(stream))
		written := int64(0)
		for _, file := range []*os.File{follower.stdout, follower.stderr} {
			info, err := file.Stat()
			must(t, err)
			written += info.Size()
		}
		if written > int64(len(stream)) {
			t.Errorf("%d bytes of %d", written, len(stream))
		}
	})
}

// X30: the layers of a pull are added up while they come; what an engine unpacks, or says
// again, does not count.
func TestX30PullIsCalledOff(t *testing.T) {
	const mb = 1 << 20
	line := func(id, status string, total int) string {
		return fmt.Sprintf(`{"id":%q,"status":%q,"progressDetail":{"current":1,"total":%d}}`+"\n", id, status, total)
	}
	fits := line("a", "Downloading", 2*mb) + line("a", "Downloading", 2*mb) + line("b", "Downloading", mb) + line("a", "Extracting", 900*mb) + `{"status":"done"}`
	if err := pulled(strings.NewReader(fits), 3*mb); err != nil {
		t.Error(err)
	}
	for name, progress := range map[string]string{
		"one more":  fits + line("c", "Downloading", 1),
		"one large": line("a", "Downloading", 4*mb),
		"overflow":  line("a", "Downloading", 1<<62) + line("b", "Downloading", 1<<62) + line("c", "Downloading", 1<<62) + line("d", "Downloading", 1<<62),
	} {
		if err := pulled(strings.NewReader(progress), 3*mb); !errors.Is(err, errTooLarge) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := pulled(strings.NewReader(line("a", "Downloading", 1<<62)), 0); err != nil {
		t.Errorf("without a limit: %v", err)
	}
}
