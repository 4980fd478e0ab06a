// SPDX-License-Identifier: MPL-2.0

package memory

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/driver/cgroup"
)

func fixture(name string) Prober {
	dir := filepath.Join("testdata/cgroup", name)
	return Prober{Host: cgroup.Host{ProcFS: filepath.Join(dir, "proc"), SysFS: filepath.Join(dir, "sys")}}
}

// The figures are those of the EXPECT file in each folder (M1; MEM-01, MEM-02, MEM-03, MEM-07).
func TestM1Fixtures(t *testing.T) {
	for name, want := range map[string]struct {
		available  uint64
		source     string
		limit      uint64
		workingSet uint64
		unknown    string
		refused    bool // by the default floor
	}{
		"v1-limited":        {available: 936870912, source: "cgroup /docker/0123", limit: 1610612736, workingSet: 673741824, refused: true},
		"v1-sentinel":       {available: 9216000000, source: "the host"},
		"v2-ancestor":       {available: 1073741824, source: "cgroup /nomad.slice/share.slice", limit: 2147483648, workingSet: 1073741824, refused: true},
		"v2-below-usage":    {available: 0, source: "cgroup /app", limit: 1073741824, workingSet: 1288490188, refused: true},
		"v2-blank":          {available: 4096000000, source: "the host", unknown: "memory.max of cgroup /app: it is blank"},
		"v2-container-view": {available: 2147483648 - (104857600 - 4194304), source: "cgroup /", limit: 2147483648, workingSet: 104857600 - 4194304},
	} {
		t.Run(name, func(t *testing.T) {
			expect, err := os.ReadFile(filepath.Join("testdata/cgroup", name, "EXPECT"))
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("EXPECT: %s", expect)
			got := fixture(name).Read(context.Background())
			if !got.Known || got.AvailableBytes != want.available || got.Source() != want.source {
				t.Errorf("got %d bytes known %v (%s), want %d (%s)", got.AvailableBytes, got.Known, got.Source(), want.available, want.source)
			}
			if want.limit != 0 && (got.Limit == nil || got.Limit.Bytes != want.limit || got.Limit.WorkingSetBytes != want.workingSet) {
				t.Errorf("limit %+v, want %d with %d in use", got.Limit, want.limit, want.workingSet)
			}
			if said := strings.Join(got.Unknown, "; "); said != want.unknown {
				t.Errorf("unknown %q, want %q", said, want.unknown)
			}
			if _, err := CheckFloor(DefaultFloorMB, got, 0); (err != nil) != want.refused {
				t.Errorf("floor of %d MB: %v, want refused %v", DefaultFloorMB, err, want.refused)
			}
		})
	}
}

// MEM-01: with the first desktop's memory in use the second start is refused, with both figures and their source.
func TestMEM01SecondStartInAContainer(t *testing.T) {
	r := fixture("v2-container-view").Read(context.Background())
	_, err := CheckFloor(DefaultFloorMB, r, 700)
	if err == nil {
		t.Fatal("not refused")
	}
	for _, want := range []string{"floor 1536 MB", "limit: cgroup /", "1252 MB available", "1952 MB less 700 MB"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q lacks %q", err, want)
		}
	}
}

// layout makes a host out of files; names are below proc or sys.
func layout(t *testing.T, files map[string]string) Prober {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return Prober{Host: cgroup.Host{ProcFS: filepath.Join(dir, "proc"), SysFS: filepath.Join(dir, "sys")}}
}

const roomy = "MemTotal: 65831936 kB\nMemAvailable: 48000000 kB"

func TestM1Layouts(t *testing.T) {
	for name, tc := range map[string]struct {
		files   map[string]string
		within  []string
		wantMB  int
		source  string
		unknown int
	}{
		"container's part of a v1 hierarchy, limit above it": {
			files: map[string]string{
				"proc/meminfo":        roomy,
				"proc/self/cgroup":    "4:memory:/docker/01/inner",
				"proc/self/mountinfo": "36 35 0:30 /docker/01 /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory",
				"sys/fs/cgroup/memory/memory.limit_in_bytes":       "9223372036854771712",
				"sys/fs/cgroup/memory/memory.usage_in_bytes":       "1",
				"sys/fs/cgroup/memory/inner/memory.stat":           "hierarchical_memory_limit 1073741824\ntotal_inactive_file 0",
				"sys/fs/cgroup/memory/inner/memory.usage_in_bytes": "536870912",
				"sys/fs/cgroup/memory/inner/memory.limit_in_bytes": "9223372036854771712",
			},
			wantMB: 512, source: "cgroup /docker/01/inner",
		},
		"v2 with memory.high below memory.max": {
			files: map[string]string{
				"proc/meminfo":                     roomy,
				"proc/self/cgroup":                 "0::/a",
				"proc/self/mountinfo":              "36 35 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw",
				"sys/fs/cgroup/a/memory.max":       "4294967296",
				"sys/fs/cgroup/a/memory.high":      "2147483648",
				"sys/fs/cgroup/a/memory.current":   "1073741824",
				"sys/fs/cgroup/cgroup.controllers": "memory pids",
			},
			wantMB: 1024, source: "cgroup /a",
		},
		"limit of the group where screens are made": {
			files: map[string]string{
				"proc/meminfo":     roomy,
				"proc/self/cgroup": "0::/system.slice/nomad.service",
				"sys/fs/cgroup/system.slice/nomad.service/x": "",
				"sys/fs/cgroup/nomad.slice/memory.max":       "1048576000",
				"sys/fs/cgroup/nomad.slice/memory.current":   "524288000",
				"sys/fs/cgroup/nomad.slice/memory.stat":      "inactive_file 0",
			},
			within: []string{"/nomad.slice"},
			wantMB: 500, source: "cgroup /nomad.slice",
		},
		"usage unreadable: at most the limit": {
			files: map[string]string{
				"proc/meminfo":                   roomy,
				"proc/self/cgroup":               "0::/a",
				"sys/fs/cgroup/a/memory.max":     "1073741824",
				"sys/fs/cgroup/a/memory.current": "garbage",
			},
			wantMB: 1024, source: "cgroup /a", unknown: 1,
		},
		"hidden own group": {
			files:  map[string]string{"proc/meminfo": roomy, "sys/fs/cgroup/memory.max": "max"},
			wantMB: 46875, source: "the host", unknown: 1,
		},
		"no cgroups at all": {
			files:  map[string]string{"proc/meminfo": roomy, "proc/self/cgroup": ""},
			wantMB: 46875, source: "the host", unknown: 1,
		},
		"limit known, host unknown": {
			files: map[string]string{
				"proc/self/cgroup":               "0::/a",
				"sys/fs/cgroup/a/memory.max":     "1073741824",
				"sys/fs/cgroup/a/memory.current": "0",
			},
			wantMB: 1024, source: "cgroup /a", unknown: 1,
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := layout(t, tc.files)
			p.Within = tc.within
			got := p.Read(context.Background())
			if got.AvailableMB() != tc.wantMB || got.Source() != tc.source || len(got.Unknown) != tc.unknown {
				t.Errorf("got %s (%s), unknown %q, want %d MB (%s), %d unknown", got, got.Source(), got.Unknown, tc.wantMB, tc.source, tc.unknown)
			}
		})
	}
}

func TestMEM02UnknownBlocksNothing(t *testing.T) {
	got := layout(t, map[string]string{"proc/self/cgroup": ""}).Read(context.Background())
	if got.Known || got.Source() != "unknown" || len(got.Unknown) == 0 {
		t.Fatalf("got %+v, want unknown with reasons", got)
	}
	warning, err := CheckFloor(DefaultFloorMB, got, 5000)
	if err != nil || !strings.Contains(warning, "not checked") {
		t.Errorf("got %q, %v, want a warning", warning, err)
	}
}

func TestThisMachine(t *testing.T) {
	got := Prober{}.Read(context.Background())
	if !got.Known || got.AvailableBytes == 0 || got.HostBytes < got.AvailableBytes {
		t.Errorf("got %s, %+v", got, got)
	}
}

// The environment's HOST_PROC must not choose where we read.
func TestHostProcOfTheEnvironmentIsIgnored(t *testing.T) {
	t.Setenv("HOST_PROC", t.TempDir())
	if got := (Prober{}).Read(context.Background()); !got.Known {
		t.Errorf("got %+v", got)
	}
}
