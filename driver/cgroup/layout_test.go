// SPDX-License-Identifier: MPL-2.0

package cgroup

import (
	"errors"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestParseMountinfo(t *testing.T) {
	got := parseMountinfo([]byte(strings.Join([]string{
		`25 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw`,
		`30 25 0:26 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory`,
		`31 25 0:27 /docker/01 /sys/fs/cgroup/cpu,cpuacct ro shared:9 master:3 - cgroup cgroup rw,cpu,cpuacct`,
		`32 25 0:28 / /sys/fs/cgroup/systemd rw - cgroup cgroup rw,xattr,name=systemd`,
		`33 25 0:29 / /sys/fs/cgroup/with\040space rw - cgroup2 cgroup2 rw,nsdelegate`,
		`34 25 0:29 broken`,
		``,
	}, "\n")))
	want := []Mount{
		{Dir: "/sys/fs/cgroup/memory", Root: "/", Controllers: []string{"memory"}},
		{Dir: "/sys/fs/cgroup/cpu,cpuacct", Root: "/docker/01", Controllers: []string{"cpu", "cpuacct"}},
		{Dir: "/sys/fs/cgroup/systemd", Root: "/"},
		{Dir: "/sys/fs/cgroup/with space", Root: "/", V2: true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestDirAndGroupOfAMount(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "inner/deep"), 0o755); err != nil {
		t.Fatal(err)
	}
	m := Mount{Dir: dir, Root: "/docker/01"}
	for group, want := range map[string]string{
		"/docker/01/inner/deep": dir + "/inner/deep",
		"/docker/01":            dir,
		"/docker/012/inner":     dir,
		"/other":                dir,
		"/docker/01/gone":       dir,
		"/docker/01/../../..":   dir,
		"":                      dir,
	} {
		if got := m.DirOf(group); got != want {
			t.Errorf("DirOf(%q) = %s, want %s", group, got, want)
		}
	}
	if got := m.GroupOf(dir + "/inner"); got != "/docker/01/inner" {
		t.Errorf("GroupOf = %s", got)
	}
}

func TestParseMembership(t *testing.T) {
	got := parseMembership([]byte("9:name=systemd:/\n8:pids:/a\n4:cpu,cpuacct:/b:c\n3::/x\n2:memory:relative\n0::/u (deleted)\nnonsense\n"))
	want := Membership{"name=systemd": "/", "pids": "/a", "cpu": "/b:c", "cpuacct": "/b:c", "": "/u"}
	if !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// fileGroup makes a group of plain files with the figures of a real one; no machine of ours that runs the tests has
// controllers on its unified hierarchy.
func fileGroup(t *testing.T, files map[string]string) *Group {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	m := Mount{Dir: dir, Root: "/", V2: true, Controllers: []string{"cpu", "memory", "pids"}}
	return &Group{name: "bot-1", dirs: []placed{{Mount: m, dir: dir}}}
}

func TestV2Stats(t *testing.T) {
	g := fileGroup(t, map[string]string{
		"cpu.stat":            "usage_usec 3000\nuser_usec 2000\nsystem_usec 1000\nnr_periods 7\nnr_throttled 3\nthrottled_usec 500\n",
		"memory.current":      "104857600\n",
		"memory.peak":         "209715200\n",
		"memory.max":          "max\n",
		"memory.swap.current": "4096\n",
		"memory.stat":         "anon 50000000\nfile 40000000\nkernel 1000000\nfile_mapped 2000000\ninactive_file 4857600\n",
		"memory.events":       "low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 0\n",
		"pids.current":        "44\n",
		"pids.max":            "2048\n",
	})
	got, err := g.Stats()
	if err != nil {
		t.Fatal(err)
	}
	want := Stats{
		CPU: &CPUStats{
			Total: 3 * time.Millisecond, User: 2 * time.Millisecond, System: time.Millisecond,
			Periods: 7, ThrottledPeriods: 3, Throttled: 500 * time.Microsecond,
		},
		Memory: &MemoryStats{
			Usage: 104857600, MaxUsage: 209715200, RSS: 50000000, Cache: 40000000, Swap: 4096, Mapped: 2000000,
			WorkingSet: 100000000, Kernel: 1000000,
		},
		Pids: &PidsStats{Current: 44, Max: 2048},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v %+v %+v, want %+v %+v %+v", got.CPU, got.Memory, got.Pids, want.CPU, want.Memory, want.Pids)
	}
	if kills, err := g.OOMKills(); err != nil || kills != 2 {
		t.Errorf("OOMKills = %d, %v, want 2", kills, err)
	}
}

func TestV1Stats(t *testing.T) {
	g := fileGroup(t, map[string]string{
		"cpuacct.usage": "3000\n", "cpuacct.usage_user": "2000\n", "cpuacct.usage_sys": "1000\n",
		"cpu.stat":                   "nr_periods 7\nnr_throttled 3\nthrottled_time 500\n",
		"memory.usage_in_bytes":      "104857600\n",
		"memory.max_usage_in_bytes":  "209715200\n",
		"memory.limit_in_bytes":      "9223372036854771712\n",
		"memory.kmem.usage_in_bytes": "1000000\n",
		"memory.stat":                "cache 1\nrss 2\ntotal_cache 40000000\ntotal_rss 50000000\ntotal_swap 4096\ntotal_mapped_file 2000000\ntotal_inactive_file 4857600\n",
	})
	g.dirs[0].V2, g.dirs[0].Controllers = false, []string{"cpu", "cpuacct", "memory"}
	got, err := g.Stats()
	if err != nil {
		t.Fatal(err)
	}
	want := Stats{
		CPU: &CPUStats{Total: 3000, User: 2000, System: 1000, Periods: 7, ThrottledPeriods: 3, Throttled: 500},
		Memory: &MemoryStats{
			Usage: 104857600, MaxUsage: 209715200, RSS: 50000000, Cache: 40000000, Swap: 4096, Mapped: 2000000,
			WorkingSet: 100000000, Kernel: 1000000,
		},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v %+v, want %+v %+v", got.CPU, got.Memory, want.CPU, want.Memory)
	}
}

func TestV2StatsWithoutControllersOrWithGarbage(t *testing.T) {
	got, err := fileGroup(t, map[string]string{"cpu.stat": "usage_usec 1\n"}).Stats()
	if err != nil || got.Memory != nil || got.Pids != nil || got.CPU == nil {
		t.Errorf("got %+v, %v, want CPU alone", got, err)
	}
	if _, err := fileGroup(t, map[string]string{"cpu.stat": "", "pids.current": "many", "pids.max": "max"}).Stats(); err == nil {
		t.Error("garbage in pids.current was taken for a number")
	}
}

func TestV2Limits(t *testing.T) {
	g := fileGroup(t, map[string]string{"memory.max": "", "pids.max": "", "cpu.weight": ""})
	g.limit(Limits{MemoryBytes: 1 << 30, PidsMax: DefaultPidsMax, CPUShares: 1024})
	for file, want := range map[string]string{"memory.max": "1073741824", "pids.max": "2048", "cpu.weight": "39"} {
		if got, err := os.ReadFile(filepath.Join(g.Dirs()[0], file)); err != nil || string(got) != want {
			t.Errorf("%s = %q, %v, want %s", file, got, err, want)
		}
	}
	if len(g.Weaker()) > 0 {
		t.Errorf("weaker %v", g.Weaker())
	}
	refused := fileGroup(t, map[string]string{"memory.max": ""})
	busy := &fs.PathError{Op: "write", Path: "/sys/fs/cgroup/cgroup.subtree_control", Err: syscall.EBUSY}
	refused.refuse(map[string]error{"memory": errors.Join(busy, nil)})
	refused.limit(Limits{MemoryBytes: 1 << 30, PidsMax: 10})
	if weaker := refused.Weaker(); len(weaker) != 2 || !strings.HasPrefix(weaker[0], "no limit on memory: /sys/fs/cgroup has processes of its own") {
		t.Errorf("weaker %v, want memory (not passed down) and pids (no file)", weaker)
	}
	if weight(2) != 1 || weight(262144) != 10000 {
		t.Errorf("weights %d, %d", weight(2), weight(262144))
	}
}

func TestV2ControllersArePassedDown(t *testing.T) {
	dir := t.TempDir()
	control := filepath.Join(dir, "cgroup.subtree_control")
	if err := os.WriteFile(control, []byte("cpu memory\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := Mount{Dir: dir, Root: "/", V2: true, Controllers: []string{"cpu", "memory", "pids", "io"}}
	if refused := passDown(m, dir); len(refused) > 0 {
		t.Errorf("refused %v", refused)
	}
	// The file of a plain file system keeps what was written last: the one that was missing.
	if got, _ := os.ReadFile(control); !strings.HasPrefix(string(got), "+pids") {
		t.Errorf("written %q, want +pids alone", got)
	}
	if refused := passDown(m, filepath.Join(dir, "missing")); len(refused) != 3 {
		t.Errorf("refused %v, want all", refused)
	}
}

func TestOpenPrefersV1AndSharesHierarchies(t *testing.T) {
	sys := t.TempDir()
	for _, d := range []string{"memory", "cpu,cpuacct", "pids", "freezer", "net_cls", "systemd", "unified"} {
		if err := os.MkdirAll(filepath.Join(sys, "fs/cgroup", d), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	tree, err := Open(Host{ProcFS: t.TempDir(), SysFS: sys}, "nomad")
	if err != nil {
		t.Fatal(err)
	}
	var dirs []string
	for _, m := range tree.mounts {
		dirs = append(dirs, filepath.Base(m.Dir))
	}
	if want := []string{"pids", "memory", "cpu,cpuacct", "freezer"}; !slices.Equal(dirs, want) || tree.V2() {
		t.Errorf("hierarchies %v, v2 %v, want %v", dirs, tree.V2(), want)
	}
	if got := tree.Path("bot-1"); got != "/nomad/botscreen/bot-1" {
		t.Errorf("Path = %s", got)
	}
}

func FuzzParseMountinfo(f *testing.F) {
	f.Add([]byte("30 25 0:26 / /sys/fs/cgroup/memory rw,nosuid - cgroup cgroup rw,memory\n"))
	f.Add([]byte(`1 2 3 \0 \04 \777 - cgroup2 a b`))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, m := range parseMountinfo(data) {
			m.GroupOf(m.Dir)
			for _, c := range m.Controllers {
				if !slices.Contains(v1Controllers, c) {
					t.Fatalf("controller %q", c)
				}
			}
		}
	})
}

func FuzzParseMembership(f *testing.F) {
	f.Add([]byte("4:memory:/process_api/6d\n0::/\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for controller, group := range parseMembership(data) {
			if !strings.HasPrefix(group, "/") {
				t.Fatalf("%q: %q", controller, group)
			}
		}
	})
}

func FuzzParseProcs(f *testing.F) {
	f.Add([]byte("1\n2\n"))
	f.Add([]byte("0\n-5\nx\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for _, pid := range parseProcs(data) {
			if pid <= 0 {
				t.Fatalf("%q gave %d", data, pid)
			}
		}
	})
}

func FuzzParseFlat(f *testing.F) {
	f.Add([]byte("anon 5\nfile 6\n"))
	f.Add([]byte("a\nb 1 2\nc -1\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for key := range ParseFlat(data) {
			if !strings.Contains(string(data), key) {
				t.Fatalf("%q gave %q", data, key)
			}
		}
	})
}
