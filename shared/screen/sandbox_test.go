// SPDX-License-Identifier: MPL-2.0

package screen

import (
	"errors"
	"path"
	"strings"
	"testing"
)

// X4: what a job may not ask of a sandbox is refused before anything starts, each fault
// with its field and the words it is about.
func TestX4SandboxOptions(t *testing.T) {
	refused := map[string]func(*Config){
		"docker.network_mode": func(c *Config) { c.DockerNetworkMode = "host" },
		"docker.shm_size_mb":  func(c *Config) { c.DockerShmSizeMB = -1 },
		"docker.pids_limit":   func(c *Config) { c.DockerPidsLimit = 100 },
		"docker.volumes":      func(c *Config) { c.DockerVolumes = []string{"local"} },
		"docker.labels":       func(c *Config) { c.DockerLabels = map[string]string{"com.hashicorp.nomad.alloc_id": "x"} },
		"apptainer.binds":     func(c *Config) { c.ApptainerBinds = []string{"../up:/x"} },
		"apptainer.tmpfs_mb":  func(c *Config) { c.ApptainerTmpfsMB = 1 },
	}
	all := valid()
	for field, change := range refused {
		c := valid()
		change(&c)
		change(&all)
		if _, err := c.Validate(); err == nil || !strings.Contains(err.Error(), field+":") {
			t.Errorf("%s: %v", field, err)
		}
	}
	_, err := all.Validate()
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != len(refused) {
		t.Errorf("all at once: %v", err)
	}
	for _, mode := range []string{"host", "container:other", "bridge ", "default", "botscreen"} {
		c := valid()
		c.DockerNetworkMode = mode
		if _, err := c.Validate(); err == nil {
			t.Errorf("network_mode %q is accepted", mode)
		}
	}
}

func TestVolumes(t *testing.T) {
	for text, want := range map[string]Volume{
		"local/data:/data":       {Source: "local/data", Target: "/data"},
		"/alloc/alloc/x:/x/:ro":  {Source: "/alloc/alloc/x", Target: "/x", ReadOnly: true},
		"tmp:/a b/c:rw":          {Source: "tmp", Target: "/a b/c"},
		"alloc/deep/dir:/home/x": {Source: "alloc/deep/dir", Target: "/home/x"},
	} {
		got, fault := parseVolume(text)
		if fault != "" || got != want {
			t.Errorf("%q: %+v %s", text, got, fault)
		}
	}
	for _, text := range []string{
		"", ":", "a", "a:", ":/a", "a:b", "a:/", "a://", "a:/b:z", "a:/b:ro:x", "..:/x", "a/../..:/x", "a:/../x", "a:/x/..",
		"a:/proc", "a:/proc/1", "a:/sys/fs", "a:/dev/shm", "a:/etc/passwd", "a:/tmp/.X11-unix/X20", "a\n:/x", "a\x00:/x", "a:" + "/" + strings.Repeat("x", 2000),
	} {
		if got, fault := parseVolume(text); fault == "" {
			t.Errorf("%q is accepted as %+v", text, got)
		}
	}
	c := valid()
	c.DockerVolumes = []string{"local/a:/x", "local/b:/x/"}
	if _, err := c.Validate(); err == nil {
		t.Error("two volumes of one target are accepted")
	}
}

func FuzzVolume(f *testing.F) {
	for _, text := range []string{"local/data:/data:ro", "/a:/b", "a:/x/../..", "::", "a:/"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		v, fault := parseVolume(text)
		if fault != "" {
			return
		}
		if !path.IsAbs(v.Target) || v.Target == "/" || path.Clean(v.Target) != v.Target || v.Source == "" || strings.Contains("/"+v.Source+"/", "/../") {
			t.Errorf("%q became %+v", text, v)
		}
	})
}
