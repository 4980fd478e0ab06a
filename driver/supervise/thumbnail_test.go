// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"bytes"
	"image/jpeg"
	"testing"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// R11: a thumbnail is a small JPEG for people; while one of them has control it follows
// the watch policy. The agent gets none then, whatever the policy, and none at all where
// the job says off. It never touches the lease.
func TestR11ThumbnailPolicy(t *testing.T) {
	const all, holder, blank = screen.WatchAll, screen.WatchHolder, screen.WatchBlank
	const follow, off = screen.ThumbnailsWatch, screen.ThumbnailsOff
	for _, tc := range []struct {
		watch                 screen.Watch
		thumbnails            screen.Thumbnails
		people, agent         control.Kind // while the agent has the screen; empty: they get it
		duringHold, heldAgent control.Kind // while a person has it
	}{
		{all, follow, "", "", "", control.HumanHasControl},
		{holder, follow, "", "", control.HumanHasControl, control.HumanHasControl},
		{blank, follow, "", "", control.HumanHasControl, control.HumanHasControl},
		{all, off, control.Forbidden, control.Forbidden, control.Forbidden, control.Forbidden},
	} {
		r, _ := newViewableWith(t, func(c *Config) { c.Takeover.Watch, c.Takeover.Thumbnails = tc.watch, tc.thumbnails })
		agent := r.agent()
		check := func(who string, client *control.Client, want control.Kind) {
			t.Helper()
			held := r.leaseNow()
			shot, err := client.Screenshot(t.Context(), control.ScreenshotRequest{Thumbnail: true})
			if want != "" {
				if !isKind(err, want) || len(shot.Data) > 0 {
					t.Errorf("watch %s, thumbnails %s: the %s gets %d bytes, %v, want %s", tc.watch, tc.thumbnails, who, len(shot.Data), err, want)
				}
				return
			}
			picture, decoded := jpeg.Decode(bytes.NewReader(shot.Data))
			if err != nil || decoded != nil || picture.Bounds().Dx() != 8 || shot.Format != control.JPEG || shot.Epoch != held.Epoch {
				t.Errorf("watch %s, thumbnails %s: the %s gets %+v, %v", tc.watch, tc.thumbnails, who, shot, err)
			}
			if now := r.leaseNow(); now != held {
				t.Errorf("it changed %+v to %+v", held, now)
			}
		}
		check("operator", r.client, tc.people)
		check("agent", agent, tc.agent)
		r.take("ann")
		check("operator during a hold", r.client, tc.duringHold)
		check("agent during a hold", agent, tc.heldAgent)
	}
}
