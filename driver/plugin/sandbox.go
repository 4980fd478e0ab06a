// SPDX-License-Identifier: MPL-2.0

package plugin

import (
	"path/filepath"

	"github.com/botscreen/botscreen/driver/task"
	h "github.com/botscreen/botscreen/shared/nomadplugin/hclspec"
	"github.com/botscreen/botscreen/shared/screen"
)

// defaultMaxImageMB holds any desktop with a browser many times over (X30).
const defaultMaxImageMB = 20480

type program struct {
	Path      string   `codec:"path"`
	ImageDirs []string `codec:"image_dirs"`
}

var programSpec = h.Default(
	h.Block("apptainer", h.Object(h.Fields{
		"path":       h.Default(h.Attr("path", "string"), h.String("")),
		"image_dirs": h.Default(h.Attr("image_dirs", "list(string)"), h.Strings()),
	})),
	h.Literal(`{ path = "", image_dirs = [] }`),
)

// check reports every fault of the apptainer block.
func (p program) check(faults *screen.Faults) {
	if p.Path != "" && !filepath.IsAbs(p.Path) {
		faults.Add("apptainer.path", p.Path, "must be an absolute path")
	}
	for _, dir := range p.ImageDirs {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) == "/" {
			faults.Add("apptainer.image_dirs", dir, "must be an absolute path, and not the whole node")
		}
	}
}

// volumes is what jobs may see of the node beyond their own directories (X4).
type volumes struct {
	Enabled bool     `codec:"enabled"`
	Allow   []string `codec:"allow"`
}

var volumesSpec = h.Default(
	h.Block("volumes", h.Object(h.Fields{
		"enabled": h.Default(h.Attr("enabled", "bool"), h.Bool(false)),
		"allow":   h.Default(h.Attr("allow", "list(string)"), h.Strings()),
	})),
	h.Literal(`{ enabled = false, allow = [] }`),
)

func (v volumes) settings(faults *screen.Faults) task.VolumePolicy {
	for _, dir := range v.Allow {
		if !filepath.IsAbs(dir) || filepath.Clean(dir) == "/" {
			faults.Add("volumes.allow", dir, "must be an absolute path, and not the whole node")
		}
	}
	if !v.Enabled {
		return task.VolumePolicy{}
	}
	return task.VolumePolicy{Allow: v.Allow}
}

// container is a job's `docker {}`.
type container struct {
	NetworkMode string            `codec:"network_mode"`
	ShmSizeMB   int               `codec:"shm_size_mb"`
	PidsLimit   int               `codec:"pids_limit"`
	Volumes     []string          `codec:"volumes"`
	Labels      map[string]string `codec:"labels"`
	Auth        registryAuth      `codec:"auth"`
}

// registryAuth is a job's `docker { auth {} }`.
type registryAuth struct {
	Username string `codec:"username"`
	Password string `codec:"password"`
}

var containerSpec = h.Default(
	h.Block("docker", h.Object(h.Fields{
		"network_mode": h.Default(h.Attr("network_mode", "string"), h.String(string(screen.NetworkNone))),
		"shm_size_mb":  h.Default(h.Attr("shm_size_mb", "number"), h.Int(0)),
		"pids_limit":   h.Default(h.Attr("pids_limit", "number"), h.Int(0)),
		"volumes":      h.Default(h.Attr("volumes", "list(string)"), h.Strings()),
		"labels":       h.BlockAttrs("labels", "string"),
		"auth": h.Default(h.Block("auth", h.Object(h.Fields{
			"username": h.Default(h.Attr("username", "string"), h.String("")),
			"password": h.Default(h.Attr("password", "string"), h.String("")),
		})), h.Literal(`{ username = "", password = "" }`)),
	})),
	h.Literal(`{ network_mode = "none", shm_size_mb = 0, pids_limit = 0, volumes = [], labels = {}, auth = { username = "", password = "" } }`),
)

// appBox is a job's `apptainer {}`.
type appBox struct {
	Binds    []string `codec:"binds"`
	Writable bool     `codec:"writable"`
	TmpfsMB  int      `codec:"tmpfs_mb"`
}

var appBoxSpec = h.Default(
	h.Block("apptainer", h.Object(h.Fields{
		"binds":    h.Default(h.Attr("binds", "list(string)"), h.Strings()),
		"writable": h.Default(h.Attr("writable", "bool"), h.Bool(false)),
		"tmpfs_mb": h.Default(h.Attr("tmpfs_mb", "number"), h.Int(0)),
	})),
	h.Literal(`{ binds = [], writable = false, tmpfs_mb = 0 }`),
)
