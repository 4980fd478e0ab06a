// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"image"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/rfb"
)

const (
	// quietTime is how long nothing may change for a screen that has settled. A text
	// cursor blinks about as often, so a caller that waits where one is waits in vain.
	quietTime = 500 * time.Millisecond
	// lookEvery bounds the work a screen that moves all the time makes.
	lookEvery = 100 * time.Millisecond
)

// awaitScreen takes pictures until one is what the request waits for, or late. Between
// two of them it sleeps until the server tells of a change.
func awaitScreen(ctx context.Context, client *rfb.Client, req control.ScreenshotRequest) (shown shownPicture, late bool, err error) {
	deadline := time.Now().Add(req.Within)
	var quiet time.Time // when the picture will not have changed for long enough
	for {
		looked, before := time.Now(), shown.hash
		if shown, err = lookAt(ctx, client, req); err != nil {
			return shown, false, err
		}
		if shown.hash != before {
			quiet = looked.Add(quietTime)
		}
		over := deadline
		if req.Until == control.Settle && quiet.Before(deadline) {
			over = quiet
		}
		if req.Until == control.Change && shown.hash != req.Unless {
			return shown, false, nil
		}
		changed, err := awaitUpdate(ctx, client, req.Rect, over)
		if err != nil || !changed {
			return shown, over.Equal(deadline), err
		}
		if err := pauseUntil(ctx, looked.Add(lookEvery)); err != nil {
			return shown, false, err
		}
	}
}

// awaitUpdate reports whether the server told of a change of the area, with none of the
// whole screen, before the time is over. The connection cannot be read any more when it
// did not.
func awaitUpdate(ctx context.Context, client *rfb.Client, area image.Rectangle, over time.Time) (changed bool, err error) {
	if area.Empty() {
		size := client.Size()
		area = image.Rect(0, 0, size.WidthPx, size.HeightPx)
	}
	bounded, cancel := context.WithDeadline(ctx, over)
	defer cancel()
	if bounded.Err() != nil {
		return false, nil
	}
	if err := client.Send(rfb.UpdateRequest{Incremental: true, Area: area}.Append(nil)); err != nil {
		return false, err
	}
	for {
		m, err := client.Read(bounded)
		switch {
		case ctx.Err() != nil:
			return false, context.Cause(ctx)
		case bounded.Err() != nil:
			return false, nil
		case err != nil:
			return false, err
		case m.Type == rfb.TypeFramebufferUpdate:
			return true, nil
		}
	}
}

func pauseUntil(ctx context.Context, at time.Time) error {
	timer := time.NewTimer(time.Until(at))
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
