// SPDX-License-Identifier: MPL-2.0

package task

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// imageRecord is the image that a profile's screen has been decided to run: its reference
// was resolved once, and only a decision resolves it anew (P5).
type imageRecord struct {
	Isolation screen.Isolation `json:"isolation"`
	Reference string           `json:"reference"`
	Image     string           `json:"image"` // exactly this one, on this node
	Digest    string           `json:"digest,omitempty"`
	// Kept is the digest that somebody has decided against.
	Kept string `json:"kept,omitempty"`
}

// digested is a reference that one image only can have.
var digested = regexp.MustCompile(`@sha256:[0-9a-f]{64}$`)

// resolveImage finds out exactly which image a sandbox will run, and has it here before
// anything waits for memory or a turn.
func (s *start) resolveImage(ctx context.Context) error {
	imager, ok := s.boundary.(isolation.Imager)
	if !ok {
		return nil
	}
	reference := s.request.Spec.Image
	if reference == "" {
		reference = s.m.settings.DefaultImage
	}
	if s.m.settings.RequireDigest && !digested.MatchString(reference) {
		return screen.Faults{{Field: "image", Value: reference, Want: "must name its digest, as in \"desk@sha256:…\": this node has require_digest"}}
	}
	ctx, cancel := context.WithTimeout(ctx, pullLimit)
	defer cancel()
	image, err := s.decidedImage(ctx, imager, reference)
	if err != nil {
		return err
	}
	s.record.Image, s.record.ImageDigest, s.record.ImageReference = image.Reference, image.Digest, reference
	decided := imageRecord{Isolation: s.record.Isolation, Reference: reference, Image: image.Reference, Digest: image.Digest}
	if old := s.profile.Image; old != nil && old.same(decided) {
		decided.Kept = old.Kept
	}
	s.decided = &decided
	return nil
}

func (r imageRecord) same(o imageRecord) bool {
	return r.Isolation == o.Isolation && r.Reference == o.Reference
}

// decidedImage is what the profile's record says, else what the reference means now.
func (s *start) decidedImage(ctx context.Context, imager isolation.Imager, reference string) (isolation.Image, error) {
	old := s.profile.Image
	decided := old != nil && old.same(imageRecord{Isolation: s.record.Isolation, Reference: reference})
	if decided {
		image, err := imager.Find(ctx, old.Image)
		if err == nil && image.Digest == old.Digest || err != nil && !errors.Is(err, isolation.ErrNoImage) {
			return image, err
		}
	}
	image, err := imager.Resolve(ctx, s.m.imageOrder(reference, s.record.Account, s.request.Spec.Docker.Auth), func() {
		s.say(screen.Queued, control.EventState, "Pulling the image "+reference)
	})
	if err == nil && decided && image.Digest != old.Digest {
		return image, &RefusedError{Reason: fmt.Sprintf("this profile's image is gone from this node (%s, as %s), and %s is another one by now (%s). Bring the old one back, or name the new one by its digest in `image`", reference, old.Digest, reference, image.Digest)}
	}
	return image, err
}

func (m *Manager) imageOrder(reference string, account isolation.Account, auth screen.RegistryAuth) isolation.ImageOrder {
	return isolation.ImageOrder{Reference: reference, Account: account, MaxBytes: m.settings.MaxImageBytes, Auth: auth}
}

// ErrNoImages says that a screen runs no image.
var ErrNoImages = errors.New("a screen on the raw host runs no image")

// Image answers a question about the screen's image, or carries out a decision. What
// runs is never touched: a switch is what the next start takes.
func (t *Task) Image(ctx context.Context, action control.ImageAction) (control.ImageState, error) {
	t.mu.Lock()
	r, wanted := t.record, t.m.imageOrder(t.record.ImageReference, t.record.Account, t.auth)
	t.mu.Unlock()
	imager, ok := t.m.boundaries[r.Isolation].(isolation.Imager)
	if !ok {
		return control.ImageState{}, ErrNoImages
	}
	ctx, cancel := context.WithTimeout(ctx, pullLimit)
	defer cancel()
	state := control.ImageState{Isolation: r.Isolation, Reference: r.ImageReference, Runs: r.ImageDigest}
	fetched, err := fetchImage(ctx, imager, wanted, action)
	if err != nil {
		return state, err
	}
	state.Latest = fetched.Digest
	if state.Latest == "" && action != control.ImageShow {
		if state.Latest, err = imager.Latest(ctx, wanted); err != nil {
			return state, err
		}
	}
	err = t.m.changeProfile(r.id(), func(p *profileRecord) bool {
		state.Next, state.Kept = "", false
		if p.Image == nil {
			return false
		}
		changed := decide(p.Image, action, fetched, state.Latest)
		state.Next, state.Kept = p.Image.Digest, p.Image.Kept != "" && p.Image.Kept == state.Latest
		return changed
	})
	return state, err
}

// SetRegistryAuth says who the node is to the image's registry: it is in no record, so a
// driver that takes a task over is told anew.
func (t *Task) SetRegistryAuth(auth screen.RegistryAuth) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.auth = auth
}

// fetchImage brings what the reference means now, for the actions that want it.
func fetchImage(ctx context.Context, imager isolation.Imager, wanted isolation.ImageOrder, action control.ImageAction) (isolation.Image, error) {
	if action != control.ImagePull && action != control.ImageSwitch {
		return isolation.Image{}, nil
	}
	return imager.Fetch(ctx, wanted)
}

// decide writes a decision down; it reports whether anything changed.
func decide(p *imageRecord, action control.ImageAction, fetched isolation.Image, latest string) bool {
	switch action {
	case control.ImageSwitch:
		p.Image, p.Digest, p.Kept = fetched.Reference, fetched.Digest, ""
	case control.ImageKeep:
		if latest == "" || latest == p.Digest {
			return false
		}
		p.Kept = latest
	default:
		return false
	}
	return true
}

// ExplainImage is an error of Image as a person reads it.
func ExplainImage(err error) string {
	var plain interface{ Sentence() string }
	if errors.As(err, &plain) {
		return strings.TrimSuffix(plain.Sentence(), ".") + "."
	}
	return "The image could not be looked at: " + err.Error() + "."
}
