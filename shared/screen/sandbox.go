// SPDX-License-Identifier: MPL-2.0

package screen

import (
	"cmp"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/botscreen/botscreen/shared/form"
)

// NetworkMode is the network of a container.
type NetworkMode string

// A container has no network, or one of its own behind a bridge on which containers do
// not reach each other (threats.md X37).
const (
	NetworkNone   NetworkMode = "none"
	NetworkBridge NetworkMode = "bridge"
)

// DockerOptions are what a job decides about its container. There is no option for
// capabilities, devices, the node's namespaces or a privileged container (X4).
type DockerOptions struct {
	NetworkMode NetworkMode
	ShmSizeMB   int // /dev/shm; 0 is 1024
	PidsLimit   int // processes and threads; 0 is 2048
	Volumes     []Volume
	Labels      map[string]string // for people; nothing relies on them
	Auth        RegistryAuth
}

// ApptainerOptions are what a job decides about its apptainer container.
type ApptainerOptions struct {
	Binds    []Volume
	Writable bool // changes to the image are kept in memory until the screen ends
	TmpfsMB  int  // /tmp; 0 is 1024
}

// Volume is a directory or file of the task that is seen inside.
type Volume struct {
	// Source is below the task's `local` or `tmp`, or the alloc's shared `alloc`
	// directory: relative, as in "local/data", or absolute. Whether an absolute one may
	// be had is the node's word.
	Source   string
	Target   string // absolute
	ReadOnly bool
}

// Bounds of the sizes a job may ask for.
const (
	minShmMB, maxShmMB         = 64, 65536
	minPids, maxPids           = 512, 65536
	minTmpfsMB, maxTmpfsMB     = 16, 65536
	maxVolumes, maxVolumeBytes = 32, 1024
	maxLabels, maxLabelBytes   = 32, 256
)

var labelName = form.Of(`^[a-zA-Z0-9]([a-zA-Z0-9._/-]{0,126}[a-zA-Z0-9])?$`)

// reservedLabels would take the container for somebody else's: ours, or Nomad's (DOC-07).
var reservedLabels = []string{"botscreen.", "com.hashicorp.nomad."}

// reservedTargets are ours, or the kernel's.
var reservedTargets = []string{"/proc", "/sys", "/dev", "/tmp/.X11-unix", "/etc/passwd", "/etc/group", "/etc/machine-id"}

func (c Config) validateDocker(faults *Faults) DockerOptions {
	d := DockerOptions{
		NetworkMode: oneOf(faults, "docker.network_mode", cmp.Or(c.DockerNetworkMode, string(NetworkNone)), NetworkNone, NetworkBridge),
		ShmSizeMB:   c.DockerShmSizeMB, PidsLimit: c.DockerPidsLimit, Labels: c.DockerLabels,
		Volumes: parseVolumes(faults, "docker.volumes", c.DockerVolumes),
		Auth:    c.validateAuth(faults),
	}
	zeroOrBetween(faults, "docker.shm_size_mb", c.DockerShmSizeMB, minShmMB, maxShmMB)
	zeroOrBetween(faults, "docker.pids_limit", c.DockerPidsLimit, minPids, maxPids)
	if len(c.DockerLabels) > maxLabels {
		faults.Add("docker.labels", "", "has too many entries; at most 32")
	}
	for _, name := range slices.Sorted(maps.Keys(c.DockerLabels)) {
		reserved := slices.ContainsFunc(reservedLabels, func(prefix string) bool { return strings.HasPrefix(strings.ToLower(name), prefix) })
		if reserved || !labelName().MatchString(name) || len(c.DockerLabels[name]) > maxLabelBytes || strings.ContainsRune(c.DockerLabels[name], 0) {
			faults.Add("docker.labels", name, "must be a name such as \"team.example/owner\" with a value of at most 256 bytes, and not begin with botscreen. or com.hashicorp.nomad.")
		}
	}
	return d
}

func (c Config) validateApptainer(faults *Faults) ApptainerOptions {
	zeroOrBetween(faults, "apptainer.tmpfs_mb", c.ApptainerTmpfsMB, minTmpfsMB, maxTmpfsMB)
	return ApptainerOptions{
		Binds:    parseVolumes(faults, "apptainer.binds", c.ApptainerBinds),
		Writable: c.ApptainerWritable, TmpfsMB: c.ApptainerTmpfsMB,
	}
}

// zeroOrBetween takes 0 for the default.
func zeroOrBetween(faults *Faults, field string, value, least, most int) {
	if value != 0 {
		between(faults, field, value, least, most)
	}
}

// parseVolumes reads "source:target" and "source:target:ro".
func parseVolumes(faults *Faults, field string, texts []string) []Volume {
	if len(texts) > maxVolumes {
		faults.Add(field, "", "has too many entries; at most 32")
		return nil
	}
	var volumes []Volume
	for _, text := range texts {
		v, want := parseVolume(text)
		if want == "" && slices.ContainsFunc(volumes, func(o Volume) bool { return o.Target == v.Target }) {
			want = "has the target of another one"
		}
		if want != "" {
			faults.Add(field, text, want)
			continue
		}
		volumes = append(volumes, v)
	}
	return volumes
}

// parseVolume returns what is wanted of text where it is no volume.
func parseVolume(text string) (v Volume, want string) {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 || len(parts) == 3 && parts[2] != "ro" && parts[2] != "rw" {
		return v, `must be "source:/target" or "source:/target:ro"`
	}
	v = Volume{Source: parts[0], Target: path.Clean(parts[1]), ReadOnly: len(parts) == 3 && parts[2] == "ro"}
	switch {
	case len(text) > maxVolumeBytes || strings.ContainsAny(text, "\x00\n"):
		return v, "must be at most 1024 bytes without NUL and line ends"
	case v.Source == "" || slices.Contains(strings.Split(v.Source, "/"), ".."):
		return v, `must have a source without "..": below the task's local or tmp, or the alloc's shared alloc directory`
	case !path.IsAbs(v.Target) || v.Target == "/" || slices.Contains(strings.Split(parts[1], "/"), ".."):
		return v, "must have an absolute target, not /"
	case slices.ContainsFunc(reservedTargets, func(r string) bool { return v.Target == r || strings.HasPrefix(v.Target, r+"/") }):
		return v, "must not hide " + v.Target + ", which the screen needs as it is"
	}
	return v, ""
}
