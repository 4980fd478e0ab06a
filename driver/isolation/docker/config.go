// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"cmp"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/botscreen/botscreen/driver/isolation"
)

const (
	// defaultPids holds a desktop (44 threads) and a browser with tabs (about 250 each);
	// at 256 nothing can be started any more (P6).
	defaultPids = 2048
	// defaultShm is /dev/shm, where a browser keeps what it draws (DOC-09).
	defaultShm = 1 << 30
	// oomScore lets a desktop go before the node's services when memory runs out.
	oomScore = 300
	// volumeBytes is what is there instead of a volume that an image asks for.
	volumeBytes = 64 << 20
)

// labelPrefix is our own namespace: by Nomad's labels its docker driver would take the
// containers for its own (DOC-07).
const labelPrefix = "botscreen."

const (
	labelInstance = labelPrefix + "instance"
	labelOwner    = labelPrefix + "owner"
)

// containerConfig is what runs. Of the image only PATH and LANG count (X30).
func containerConfig(order isolation.Order, owner string, img Image) *container.Config {
	return &container.Config{
		Image:      img.ID,
		Hostname:   "screen-" + order.ID.Hash(),
		User:       fmt.Sprintf("%d:%d", order.Account.UID, order.Account.GID),
		Entrypoint: []string{order.Binary},
		Cmd:        []string{"session", "--dial", order.DialDir + "/s"},
		WorkingDir: "/",
		Env:        environment(img),
		Labels:     labels(order, owner),
		StopSignal: "SIGTERM",
		// A check is an exec: it fails in a container full of processes (DOC-01).
		Healthcheck: &container.HealthConfig{Test: []string{"NONE"}},
	}
}

// environment leaves of an image's variables PATH and LANG. A name without a value
// takes a variable away (docker run -e NAME).
func environment(img Image) []string {
	var env []string
	for _, name := range img.env {
		if name != "PATH" && name != "LANG" {
			env = append(env, name)
		}
	}
	if !slices.Contains(img.env, "LANG") {
		env = append(env, "LANG=C.UTF-8")
	}
	return env
}

// labels name the run for Adopt and its screen for people.
func labels(order isolation.Order, owner string) map[string]string {
	all := map[string]string{}
	maps.Copy(all, order.OwnLabels) // ours win
	for name, value := range order.Labels {
		all[labelPrefix+name] = value
	}
	all[labelPrefix+"profile"] = string(order.ID.Profile)
	all[labelPrefix+"namespace"] = order.ID.Namespace
	all[labelInstance] = order.Instance
	all[labelOwner] = owner
	return all
}

// hostConfig is what confines it (P7, X4): no job option reaches capabilities, devices
// or the node's namespaces.
func (b *Boundary) hostConfig(order isolation.Order, img Image, profile string) *container.HostConfig {
	pids := int64(cmp.Or(order.Limits.PidsMax, defaultPids))
	memory := int64(order.Limits.MemoryBytes)
	return &container.HostConfig{
		NetworkMode:    b.networkMode(order),
		IpcMode:        "private",
		UsernsMode:     "host", // the uids are the node's: the home belongs to them
		RestartPolicy:  container.RestartPolicy{Name: container.RestartPolicyDisabled},
		CapDrop:        []string{"ALL"},
		SecurityOpt:    []string{"no-new-privileges", "seccomp=" + profile},
		GroupAdd:       groupIDs(order.Account.Groups),
		ShmSize:        int64(cmp.Or(order.ShmBytes, defaultShm)),
		OomScoreAdj:    oomScore,
		Mounts:         mounts(order, img),
		ReadonlyRootfs: false,
		// The engine keeps what nobody has read yet, and not more (S8a, X36).
		LogConfig: container.LogConfig{Type: "local", Config: map[string]string{"max-size": "2m", "max-file": "2", "compress": "false"}},
		Resources: container.Resources{
			Memory:     memory,
			MemorySwap: memory, // no swap on top
			CPUShares:  int64(order.Limits.CPUShares),
			PidsLimit:  &pids,
		},
	}
}

func groupIDs(groups []uint32) []string {
	var ids []string
	for _, g := range groups {
		ids = append(ids, strconv.FormatUint(uint64(g), 10))
	}
	return ids
}

// mounts are everything of the node that is seen inside. All sources lie below
// directories of root's, so nobody changes one between check and use (X5).
func mounts(order isolation.Order, img Image) []mount.Mount {
	all := []mount.Mount{
		bind(order.Binary, order.Binary, true),
		bind(order.DialDir, order.DialDir, true),
		bind(order.XDir, order.XDir, false),
		bind(order.Home, order.Home, false),
		// X servers want it sticky and root's, whatever the image has there.
		tmpfs("/tmp/.X11-unix", 1<<20, 0o1777),
	}
	for _, file := range isolation.AccountFiles(order) {
		all = append(all, bind(path.Join(order.Scratch, file.Name), file.Target, true))
	}
	for i, volume := range order.Volumes {
		all = append(all, bind(path.Join(order.Scratch, volumeName(i)), volume.Target, volume.ReadOnly))
	}
	return withImageVolumes(all, img)
}

// withImageVolumes adds small file systems in memory where an image asks for volumes.
func withImageVolumes(all []mount.Mount, img Image) []mount.Mount {
	for _, volume := range img.volumes {
		taken := slices.ContainsFunc(all, func(m mount.Mount) bool { return m.Target == path.Clean(volume) })
		if !taken {
			all = append(all, tmpfs(path.Clean(volume), volumeBytes, 0o1777))
		}
	}
	return all
}

func volumeName(i int) string { return "volume-" + strconv.Itoa(i) }

// bindVolumes holds what the job binds by mounts in a directory that is root's alone: an
// engine takes paths, and looks for them long after they were checked (X5).
func bindVolumes(order isolation.Order) error {
	for i, volume := range order.Volumes {
		source, err := volume.Open()
		if err != nil {
			return &RefusedError{Err: err, Reason: fmt.Sprintf("%s cannot be bound (%v). Correct `volumes` in the job", path.Join(volume.Base, volume.Path), err)}
		}
		_, err = isolation.Bind(source, order.Scratch, volumeName(i))
		_ = source.Close()
		if err != nil {
			return err
		}
	}
	return nil
}

func bind(source, target string, readOnly bool) mount.Mount {
	return mount.Mount{
		Type: mount.TypeBind, Source: source, Target: target, ReadOnly: readOnly,
		BindOptions: &mount.BindOptions{Propagation: mount.PropagationRPrivate},
	}
}

// tmpfs takes mode as in chmod(2): the engine passes the number on as it is, so Go's own
// sticky bit would be lost.
func tmpfs(target string, size int64, mode fs.FileMode) mount.Mount {
	return mount.Mount{Type: mount.TypeTmpfs, Target: target, TmpfsOptions: &mount.TmpfsOptions{SizeBytes: size, Mode: mode}}
}
