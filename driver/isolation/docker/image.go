// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"slices"
	"strings"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/image"

	"github.com/botscreen/botscreen/driver/isolation"
)

// Image is a sandbox image as it lies on this node.
type Image struct {
	// ID is the digest of its configuration: exactly this image, whatever tags say.
	ID string
	// Digests are the repository digests it was pulled by, "name@sha256:…".
	Digests []string

	env     []string // names of the variables it sets
	volumes []string // directories it wants anonymous volumes at
}

// Inspect finds an image on this node. What the engine has not is a RefusedError.
func (b *Boundary) Inspect(ctx context.Context, reference string) (Image, error) {
	if reference == "" {
		return Image{}, &RefusedError{Reason: "docker isolation needs an image. Name one with `image` in the job, or `default_image` in the plugin's config"}
	}
	ctx, cancel := context.WithTimeout(ctx, callLimit)
	defer cancel()
	found, err := b.api.ImageInspect(ctx, reference)
	if errdefs.IsNotFound(err) {
		return Image{}, &RefusedError{Err: fmt.Errorf("inspect image %s: %w: %w", reference, isolation.ErrNoImage, err), Reason: fmt.Sprintf("the image %s is not on this node. Check its name, or pull it: docker pull %s", reference, reference)}
	}
	if err != nil {
		return Image{}, fmt.Errorf("inspect image %s: %w", reference, b.explain(err))
	}
	return imageOf(reference, found)
}

// imageOf keeps what matters of an image, or says why it cannot be a sandbox.
func imageOf(reference string, found image.InspectResponse) (Image, error) {
	if found.Os != "linux" || found.Architecture != runtime.GOARCH {
		return Image{}, &RefusedError{Reason: fmt.Sprintf("the image %s is for %s/%s, this node is linux/%s. Use an image for it", reference, found.Os, found.Architecture, runtime.GOARCH)}
	}
	img := Image{ID: found.ID, Digests: found.RepoDigests}
	if found.Config == nil {
		return img, nil
	}
	for label := range found.Config.Labels {
		// Nomad's own docker driver ends containers with labels like its own that it
		// does not know (DOC-07), and a container inherits its image's.
		if strings.HasPrefix(label, "com.hashicorp.nomad.") {
			return Image{}, &RefusedError{Reason: fmt.Sprintf("the image %s carries the label %s, by which Nomad's docker driver would end its screens. Build it without", reference, label)}
		}
	}
	for _, variable := range found.Config.Env {
		name, _, _ := strings.Cut(variable, "=")
		img.env = append(img.env, name)
	}
	for volume := range found.Config.Volumes {
		img.volumes = append(img.volumes, volume)
	}
	slices.Sort(img.volumes)
	return img, nil
}

// Pull fetches an image and returns what came. It ends with ctx. auth is the engine's
// encoded credentials for the registry, empty for none; it stands in no error. A pull that
// turns out to be of more than maxBytes, compressed, is called off; 0 is no limit (X30).
func (b *Boundary) Pull(ctx context.Context, reference, auth string, maxBytes uint64) (Image, error) {
	limited, cancel := context.WithCancel(ctx)
	defer cancel() // an engine ends a pull with its caller
	progress, err := b.api.ImagePull(limited, reference, image.PullOptions{RegistryAuth: auth})
	if err == nil {
		err = pulled(progress, maxBytes)
		cancel()
		_ = progress.Close()
	}
	if errors.Is(err, errTooLarge) {
		return Image{}, &RefusedError{Err: err, Reason: fmt.Sprintf("the image %s has more than %d MB to fetch, which this node does not take. Use a smaller one, or raise `max_image_mb` in the plugin's config", reference, maxBytes>>20)}
	}
	if err != nil {
		err = b.explain(err)
		var refused *RefusedError
		if errors.As(err, &refused) {
			return Image{}, fmt.Errorf("pull image %s: %w", reference, err)
		}
		return Image{}, &RefusedError{Passes: true, Err: fmt.Errorf("pull image %s: %w", reference, err), Reason: fmt.Sprintf("the image %s could not be pulled (%s). Check its name, the registry and the job's `docker { auth }`; what runs now is not touched", reference, err)}
	}
	return b.Inspect(ctx, reference)
}

// maxProgress bounds what a registry may make an engine say during one pull, in bytes.
const maxProgress = 64 << 20

// errTooLarge says that a pull was called off.
var errTooLarge = errors.New("the image is larger than this node takes")

// pulled reads an engine's progress messages to their end; a failure is one of them, and
// the sizes of the layers are in others.
func pulled(progress io.Reader, maxBytes uint64) error {
	layers := map[string]uint64{}
	for d := json.NewDecoder(io.LimitReader(progress, maxProgress)); ; {
		var message struct {
			Error  string `json:"error"`
			ID     string `json:"id"`
			Status string `json:"status"`
			Detail struct {
				Total uint64 `json:"total"`
			} `json:"progressDetail"`
		}
		if err := d.Decode(&message); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("read progress: %w", err)
		}
		if message.Error != "" {
			return errors.New(message.Error)
		}
		if message.Status != "Downloading" || maxBytes == 0 {
			continue // other totals are of what was unpacked
		}
		layers[message.ID] = max(layers[message.ID], message.Detail.Total)
		if message.Detail.Total > maxBytes || sum(layers) > maxBytes {
			return errTooLarge
		}
	}
}

func sum(layers map[string]uint64) (total uint64) {
	for _, size := range layers {
		total += size
	}
	return total
}
