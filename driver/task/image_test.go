// SPDX-License-Identifier: MPL-2.0

package task

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// shelf is an engine as far as its images go: what is on the node by exact name, and what
// each reference means here and at its registry.
type shelf struct {
	isolation.Boundary
	here     map[string]string // exact name to digest
	means    map[string]string // reference to exact name
	registry map[string]string // reference to exact name
}

func (s *shelf) Find(_ context.Context, reference string) (isolation.Image, error) {
	for _, name := range []string{reference, s.means[reference]} {
		if digest, ok := s.here[name]; ok {
			return isolation.Image{Reference: name, Digest: digest}, nil
		}
	}
	return isolation.Image{}, fmt.Errorf("%s: %w", reference, isolation.ErrNoImage)
}

func (s *shelf) Fetch(ctx context.Context, wanted isolation.ImageOrder) (isolation.Image, error) {
	name, ok := s.registry[wanted.Reference]
	if !ok {
		return isolation.Image{}, errors.New("the registry is away")
	}
	s.means[wanted.Reference], s.here[name] = name, "digest of "+name
	return s.Find(ctx, name)
}

func (s *shelf) Resolve(ctx context.Context, wanted isolation.ImageOrder, pulling func()) (isolation.Image, error) {
	found, err := s.Find(ctx, wanted.Reference)
	if errors.Is(err, isolation.ErrNoImage) {
		pulling()
		return s.Fetch(ctx, wanted)
	}
	return found, err
}

func (s *shelf) Latest(context.Context, isolation.ImageOrder) (string, error) { return "", nil }

var _ isolation.Imager = (*shelf)(nil)

// P5: a reference is resolved once for a profile; what it means later, here or at its
// registry, changes nothing, and one that cannot be had any more is refused, not replaced.
func TestP5ResolvedOnce(t *testing.T) {
	engine := &shelf{here: map[string]string{"one": "digest of one"}, means: map[string]string{"desk:1": "one"}, registry: map[string]string{"desk:1": "two"}}
	s := &start{
		m: &Manager{events: newEvents()}, boundary: engine, record: runRecord{Isolation: screen.Docker},
		request: Request{Spec: screen.Spec{Image: "desk:1"}},
	}
	resolve := func() error {
		err := s.resolveImage(t.Context())
		if err == nil {
			s.profile.Image = s.decided // as a screen that became ready does
		}
		return err
	}
	if err := resolve(); err != nil || s.record.Image != "one" || s.record.ImageReference != "desk:1" {
		t.Fatalf("%+v %v", s.record, err)
	}
	engine.here["two"], engine.means["desk:1"] = "digest of two", "two" // somebody pulled
	s.profile.Image.Kept = "digest of two"
	if err := resolve(); err != nil || s.record.Image != "one" || s.profile.Image.Kept != "digest of two" {
		t.Errorf("after the tag moved: %+v, %+v, %v", s.record.Image, s.profile.Image, err)
	}
	delete(engine.here, "one") // pruned
	err := resolve()
	var refused *RefusedError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "digest of one") || !strings.Contains(err.Error(), "digest of two") {
		t.Errorf("after the image went: %v", err)
	}
	engine.here["uno"], engine.means["desk:1"] = "digest of one", "uno" // the same, brought back under another name
	if err := resolve(); err != nil || s.record.Image != "uno" {
		t.Errorf("after it came back: %+v %v", s.record.Image, err)
	}
	s.request.Spec.Image, engine.registry["desk:2"] = "desk:2", "three"
	if err := resolve(); err != nil || s.record.Image != "three" || s.profile.Image.Kept != "" {
		t.Errorf("another reference in the job: %+v %+v %v", s.record.Image, s.profile.Image, err)
	}
}

// P5: only a decision changes what the next start takes.
func TestP5Decisions(t *testing.T) {
	fetched := isolation.Image{Reference: "two", Digest: "d2"}
	for action, want := range map[control.ImageAction]imageRecord{
		control.ImageShow:   {Image: "one", Digest: "d1"},
		control.ImageCheck:  {Image: "one", Digest: "d1"},
		control.ImagePull:   {Image: "one", Digest: "d1"},
		control.ImageKeep:   {Image: "one", Digest: "d1", Kept: "d2"},
		control.ImageSwitch: {Image: "two", Digest: "d2"},
	} {
		got := imageRecord{Image: "one", Digest: "d1"}
		changed := decide(&got, action, fetched, "d2")
		if got != want || changed != (want != imageRecord{Image: "one", Digest: "d1"}) {
			t.Errorf("%s: %+v, changed %v", action, got, changed)
		}
	}
	same := imageRecord{Image: "one", Digest: "d1"}
	if decide(&same, control.ImageKeep, isolation.Image{}, "d1") || same.Kept != "" {
		t.Errorf("there is nothing to keep: %+v", same)
	}
	for _, tc := range []struct {
		state control.ImageState
		due   bool
	}{
		{control.ImageState{Next: "a", Latest: "a"}, false}, {control.ImageState{Next: "a", Latest: "b"}, true},
		{control.ImageState{Next: "a", Latest: "b", Kept: true}, false}, {control.ImageState{Next: "a"}, false},
	} {
		if tc.state.Due() != tc.due {
			t.Errorf("%+v: due %v", tc.state, !tc.due)
		}
	}
}
