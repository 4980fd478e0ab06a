// SPDX-License-Identifier: MPL-2.0

package task

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/screen"
)

// allocation is an alloc's directory as Nomad makes it, and a place outside of it.
func allocation(t *testing.T) (s *start, outside string) {
	t.Helper()
	dir := t.TempDir()
	alloc, outside := filepath.Join(dir, "alloc"), filepath.Join(dir, "srv")
	for _, name := range []string{"bot/local/data", "bot/tmp", "bot/secrets", "alloc/shared", "other/local"} {
		if err := os.MkdirAll(filepath.Join(alloc, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(outside, "books"), 0o755); err != nil {
		t.Fatal(err)
	}
	local := filepath.Join(alloc, "bot/local")
	for name, target := range map[string]string{"link": "/etc", "inner": "data", "up": "../secrets", "proc": "/proc/1/root"} {
		if err := os.Symlink(target, filepath.Join(local, name)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(local, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(local, "pipe"), 0o644); err != nil {
		t.Fatal(err)
	}
	m := &Manager{settings: Settings{StateDir: filepath.Join(dir, "state"), RunDir: filepath.Join(dir, "run")}}
	return &start{m: m, request: Request{AllocDir: alloc, TaskName: "bot"}}, outside
}

// X4: a job binds what is its own; everything else is refused before anything starts,
// with its field and what would allow it, whatever way the path takes.
func TestX4Volumes(t *testing.T) {
	s, outside := allocation(t)
	alloc := s.request.AllocDir
	for source, want := range map[string]string{ // what the fault says; none: bound
		"local": "", "local/data": "", "local/file": "", "tmp": "", "alloc/shared": "", "alloc": "", "local/data/": "", "./local/data": "",
		alloc + "/bot/local/data": "", alloc + "/alloc/shared": "", alloc + "/alloc//shared/": "",

		"local/none": "not there", "local/link": "link", "local/link/passwd": "link", "local/inner": "link", "local/up": "link",
		"local/proc": "link", "local/proc/etc": "link", "local/pipe": "neither a directory nor a regular file",
		"secrets": "volumes {", "secrets/nomad_token": "volumes {", "private": "volumes {", "other": "volumes {", ".": "volumes {", "data": "volumes {",
		alloc: "volumes {", alloc + "/": "volumes {", alloc + "/bot": "volumes {", alloc + "/bot/secrets": "volumes {", alloc + "/other/local": "volumes {",
		alloc + "x": "volumes {", outside: "volumes {", outside + "/books": "volumes {",
		"/": "volumes {", "//": "volumes {", "/etc": "volumes {", "/etc/shadow": "volumes {", "/proc/1/root": "volumes {", "/proc/self/cwd": "volumes {",
		"/sys": "volumes {", "/dev": "volumes {", "/dev/sda": "volumes {", "/var/run/docker.sock": "volumes {", "/run/docker.sock": "volumes {",
		s.m.settings.StateDir: "volumes {", s.m.settings.RunDir + "/x": "volumes {",
	} {
		found, err := s.volumes("docker.volumes", []screen.Volume{{Source: source, Target: "/x"}})
		var faults screen.Faults
		switch {
		case want == "":
			if err != nil || len(found) != 1 {
				t.Errorf("%s: %+v %v", source, found, err)
			}
		case !errors.As(err, &faults) || faults[0].Field != "docker.volumes" || !strings.Contains(err.Error(), want):
			t.Errorf("%s: %v, want %q", source, err, want)
		}
	}
	_, err := s.volumes("docker.volumes", []screen.Volume{{Source: "/etc", Target: "/x"}, {Source: "local", Target: "/y"}, {Source: "local/none", Target: "/z"}})
	var faults screen.Faults
	if !errors.As(err, &faults) || len(faults) != 2 {
		t.Errorf("all at once: %v", err)
	}
}

// X4: the operator's list widens it, and some things it cannot.
func TestX4VolumesAllowed(t *testing.T) {
	s, outside := allocation(t)
	s.m.settings.Volumes.Allow = []string{outside, "/", "/var"}
	for source, fine := range map[string]bool{
		outside: true, outside + "/books": true, "/usr/share": true,
		"/": false, "/proc": false, "/proc/1/root": false, "/sys": false, "/dev/shm": false, "/run": false, "/var/run/docker.sock": false,
		"/etc/shadow": false, "/etc": false, "/var": false, "/var/lib/docker/x": false,
		s.m.settings.StateDir: false, filepath.Dir(s.m.settings.StateDir): false,
	} {
		_, err := s.volumes("docker.volumes", []screen.Volume{{Source: source, Target: "/x"}})
		if (err == nil) != fine {
			t.Errorf("%s: %v", source, err)
		}
	}
}

// X41: a node may want images that only one image can be.
func TestX41RequireDigest(t *testing.T) {
	digest := "@sha256:" + strings.Repeat("0a", 32)
	for reference, fine := range map[string]bool{
		"desk" + digest: true, "registry.example/desk:1.4" + digest: true, "desk.sif" + digest: true,
		"desk": false, "desk:1.4": false, "desk@sha256:abc": false, "desk" + digest + ":1": false, "desk" + strings.ToUpper(digest): false, "": false,
	} {
		if digested.MatchString(reference) != fine {
			t.Errorf("%s: %v", reference, !fine)
		}
	}
}
