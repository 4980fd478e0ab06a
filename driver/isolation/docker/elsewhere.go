// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/mount"

	"github.com/botscreen/botscreen/driver/isolation"
)

// An engine elsewhere is one whose processes or files this node does not see: on another
// kernel, behind a forwarded socket, or in a namespace of its own. Nothing of the node can
// be bound there and no descriptor passed, so a container gets copies, its home is a volume
// of the engine's, and the session's wire goes through an exec of the engine's (package
// pipe).

// errElsewhere says that an engine turned out to be elsewhere.
var errElsewhere = errors.New("the engine is not on this node: its processes or its files are others")

const (
	// binaryElsewhere is where the driver's binary is in a container elsewhere.
	binaryElsewhere = "/.botscreen/nomad-driver-botscreen"
	// pipeUID is who the pipe's half inside runs as: neither root nor the desktop's user,
	// so that no program of the desktop can take its place. pipeUIDElse is for a screen
	// whose own uid that is.
	pipeUID, pipeUIDElse = 65532, 65531
	// runBytes are the sizes of the run's own directories in a container elsewhere.
	runBytes = 16 << 20
)

func pipeUser(account isolation.Account) uint32 {
	if account.UID == pipeUID || account.GID == pipeUID {
		return pipeUIDElse
	}
	return pipeUID
}

// launchElsewhere is launch where the engine does not see this node.
func (b *Boundary) launchElsewhere(ctx context.Context, order isolation.Order, img Image) (*sandbox, error) {
	if len(order.Volumes) > 0 {
		return nil, &RefusedError{Reason: "`volumes` cannot be bound: the docker engine is not on this node. Leave them out, or use an engine of this node"}
	}
	if err := unusedHere(order.Home); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startLimit)
	defer cancel()
	id, err := b.createElsewhere(ctx, order, img)
	if err != nil {
		return nil, errors.Join(err, b.discard(ctx, containerName(order)))
	}
	s, err := b.startElsewhere(ctx, id, order)
	if err != nil {
		return nil, errors.Join(err, b.discard(ctx, id))
	}
	return s, nil
}

// unusedHere refuses a profile whose home is on this node: its logins would seem lost in
// the empty one on the engine (P5). That happens where an engine that saw this node's
// files does so no more, or the driver has a mount table of its own.
func unusedHere(home string) error {
	entries, err := os.ReadDir(home)
	if err != nil {
		return fmt.Errorf("look at the home: %w", err)
	}
	if len(entries) == 0 {
		return nil
	}
	return &RefusedError{Reason: fmt.Sprintf("the docker engine does not see this node's files, and this profile's home is one of them (%s). Let the engine see them, as without PrivateMounts for the agent, or remove the profile's data", home)}
}

func (b *Boundary) createElsewhere(ctx context.Context, order isolation.Order, img Image) (id string, err error) {
	profile, err := isolation.SeccompProfile()
	if err != nil {
		return "", fmt.Errorf("seccomp profile: %w", err)
	}
	inside := order
	inside.Binary = binaryElsewhere
	host := b.hostConfig(order, img, profile)
	host.Mounts = b.mountsElsewhere(order, img)
	host.Tmpfs = map[string]string{
		order.DialDir: tmpfsOptions(pipeUser(order.Account), 0o711),
		order.XDir:    tmpfsOptions(order.Account.UID, 0o700),
	}
	made, err := b.api.ContainerCreate(ctx, containerConfig(inside, b.owner, img), host, nil, nil, containerName(order))
	if err != nil {
		return "", fmt.Errorf("create container: %w", err)
	}
	archive, err := cargo(order)
	if err != nil {
		return "", err
	}
	if err := b.api.CopyToContainer(ctx, made.ID, "/", archive, container.CopyToContainerOptions{}); err != nil {
		return "", fmt.Errorf("copy into container: %w", err)
	}
	return made.ID, nil
}

func tmpfsOptions(uid uint32, mode uint32) string {
	return fmt.Sprintf("rw,nosuid,nodev,noexec,size=%d,mode=%o,uid=%d,gid=%d", runBytes, mode, uid, uid)
}

// mountsElsewhere has nothing of this node. The home is a volume with a name, so it
// outlives the container (P5).
func (b *Boundary) mountsElsewhere(order isolation.Order, img Image) []mount.Mount {
	all := []mount.Mount{
		{Type: mount.TypeVolume, Source: b.homeVolume(order.ID), Target: order.Home, VolumeOptions: &mount.VolumeOptions{
			NoCopy: true,
			Labels: map[string]string{labelOwner: b.owner, labelPrefix + "profile": string(order.ID.Profile), labelPrefix + "namespace": order.ID.Namespace},
		}},
		tmpfs("/tmp/.X11-unix", 1<<20, 0o1777),
	}
	return withImageVolumes(all, img)
}

// cargo is what a container elsewhere gets as copies: our binary, the account files, and
// its home's owner.
func cargo(order isolation.Order) (io.Reader, error) {
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	// The directories above are the image's, or the engine's to make.
	home := &tar.Header{Typeflag: tar.TypeDir, Name: relative(order.Home) + "/", Mode: 0o700, Uid: int(order.Account.UID), Gid: int(order.Account.GID)}
	if err := w.WriteHeader(home); err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	for _, file := range isolation.AccountFiles(order) {
		if err := packFile(w, file.Target, 0o644, int64(len(file.Text)), strings.NewReader(file.Text)); err != nil {
			return nil, err
		}
	}
	binary, err := os.Open(order.Binary)
	if err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	defer binary.Close()
	info, err := binary.Stat()
	if err != nil {
		return nil, fmt.Errorf("pack: %w", err)
	}
	if err := packFile(w, binaryElsewhere, 0o755, info.Size(), binary); err != nil {
		return nil, err
	}
	return &archive, w.Close()
}

func packFile(w *tar.Writer, target string, mode, size int64, content io.Reader) error {
	err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: relative(target), Mode: mode, Size: size})
	if err == nil {
		_, err = io.Copy(w, content)
	}
	if err != nil {
		return fmt.Errorf("pack %s: %w", target, err)
	}
	return nil
}

func relative(name string) string { return strings.TrimPrefix(path.Clean(name), "/") }

// startElsewhere starts the container and joins the session to this node.
func (b *Boundary) startElsewhere(ctx context.Context, id string, order isolation.Order) (*sandbox, error) {
	began, err := b.startContainer(ctx, id)
	if err != nil {
		return nil, err
	}
	found, err := b.api.ContainerInspect(ctx, id)
	if err != nil {
		return nil, fmt.Errorf("inspect container: %w", err)
	}
	if err := asOrdered(found, order); err != nil {
		return nil, err
	}
	identity, err := b.joinElsewhere(ctx, id, order)
	if err != nil {
		return nil, err
	}
	record := b.Intent(order)
	record.Session, record.Container, record.Piped = identity, id, true
	return b.followFrom(record, order, began)
}

// asOrdered reads back what the engine made of an order: on this node the kernel is asked,
// and there only the engine can be.
func asOrdered(found container.InspectResponse, order isolation.Order) error {
	switch user := fmt.Sprintf("%d:%d", order.Account.UID, order.Account.GID); {
	case !found.State.Running:
		return endedAtOnce(found)
	case found.Config == nil || found.Config.User != user:
		return errors.New("check container: it has another user than was ordered")
	case found.HostConfig == nil || found.HostConfig.Privileged || !slices.Contains(found.HostConfig.CapDrop, "ALL") || len(found.HostConfig.CapAdd) > 0:
		return errors.New("check container: it has more privileges than were ordered")
	}
	return nil
}
