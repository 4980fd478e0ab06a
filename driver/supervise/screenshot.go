// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"fmt"
	"image"
	"net"
	"time"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/rfb"
	"github.com/botscreen/botscreen/shared/screen"
)

const (
	pictureTimeout = 15 * time.Second
	jpegQuality    = 80
)

// Screenshot takes a picture over a connection of its own, which sends no input. It is
// refused while a person has control, before and after: a picture that a take and a
// return fell into is thrown away (rule L6). At a change of hands it ends at once and does
// not wait for the screen, which may be busy.
func (s *supervisor) Screenshot(ctx context.Context, caller controlserver.Caller, req control.ScreenshotRequest) (control.Screenshot, error) {
	fence := s.admit
	if req.Thumbnail {
		fence = func(seen lease.Epoch) error { return s.admitThumbnail(caller, seen) }
	}
	held, _ := s.keeper.Lease()
	seen := held.Epoch
	err := fence(seen)
	if err != nil {
		return control.Screenshot{}, err
	}
	begin := s.begin
	if req.Thumbnail {
		begin = s.lookOn // who only looks in wakes nobody
	}
	end, err := begin(ctx, "take a screenshot")
	if err != nil {
		return control.Screenshot{}, err
	}
	defer end()
	looking, cancel := s.whileAdmitted(ctx, func() error { return fence(seen) })
	defer cancel()
	shot, err := s.shoot(looking, req)
	if refusal := fence(seen); refusal != nil {
		return control.Screenshot{}, refusal
	}
	shot.Epoch = seen
	return shot, err
}

// admitThumbnail says why the caller may not have one now. People get them also while
// one of them has control, where the job lets everybody watch then (rule R11); the agent
// never does (rule L6).
func (s *supervisor) admitThumbnail(caller controlserver.Caller, seen lease.Epoch) error {
	policy := s.config.Takeover
	switch {
	case policy.Thumbnails == screen.ThumbnailsOff:
		return &control.Error{Kind: control.Forbidden,
			Message: `Cannot take a thumbnail: this screen gives none (thumbnails = "off").`, Next: "Take a screenshot."}
	case policy.Watch == screen.WatchAll && caller.Role != screen.RoleAgent:
		return nil
	default:
		return s.admit(seen)
	}
}

// whileAdmitted gives a context that ends when the fence says that what began behind it
// is not admitted any more.
func (s *supervisor) whileAdmitted(ctx context.Context, fence func() error) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	go func() {
		defer cancel()
		for {
			changing := s.keeper.Changing()
			if fence() != nil {
				return
			}
			select {
			case <-changing:
			case <-ctx.Done():
				return
			}
		}
	}()
	return ctx, cancel
}

func (s *supervisor) shoot(ctx context.Context, req control.ScreenshotRequest) (control.Screenshot, error) {
	ctx, cancel := context.WithTimeout(ctx, pictureTimeout+req.Within)
	defer cancel()
	conn, err := s.dialRFB(ctx, dialhome.Dial{})
	if err != nil {
		return control.Screenshot{}, refusalOf("take a screenshot", err)
	}
	client, err := rfb.Connect(ctx, conn, rfb.Options{MaxSize: rfb.Size{WidthPx: screen.MaxWidthPx, HeightPx: screen.MaxHeightPx}})
	if err != nil {
		return control.Screenshot{}, fmt.Errorf("screenshot: %w", err)
	}
	defer client.Close()
	var shown shownPicture
	late := false
	if req.Until == "" {
		shown, err = lookAt(ctx, client, req)
	} else {
		shown, late, err = awaitScreen(ctx, client, req)
	}
	if err != nil {
		return control.Screenshot{}, err
	}
	shot, err := shown.encode(req)
	shot.Late = late
	shot.Screen = screen.Geometry(client.Size())
	return shot, err
}

// shownPicture is what a request asks for, in its size.
type shownPicture struct {
	img  *image.RGBA
	hash string
}

// lookAt takes the picture that a request asks for.
func lookAt(ctx context.Context, client *rfb.Client, req control.ScreenshotRequest) (shownPicture, error) {
	img, err := pixels(ctx, client, req)
	if err != nil {
		return shownPicture{}, err
	}
	switch {
	case req.Thumbnail:
		img = rfb.Thumbnail(img)
	case req.Scale > 0 && req.Scale < 1:
		size := rfb.Size{WidthPx: img.Rect.Dx(), HeightPx: img.Rect.Dy()}
		img = rfb.Scale(img, rfb.Shrink(size, req.Scale))
	}
	return shownPicture{img, rfb.Hash(img)}, nil
}

func pixels(ctx context.Context, client *rfb.Client, req control.ScreenshotRequest) (*image.RGBA, error) {
	if req.Rect.Empty() {
		return client.Screenshot(ctx)
	}
	whole := image.Rect(0, 0, client.Size().WidthPx, client.Size().HeightPx)
	if req.Rect.Intersect(whole).Empty() {
		return nil, &control.Error{Kind: control.BadRequest,
			Message: fmt.Sprintf("The rectangle lies outside of the screen, which is %dx%d.", whole.Dx(), whole.Dy())}
	}
	return client.ScreenshotOf(ctx, req.Rect)
}

// encode leaves the data out where the caller has an equal picture.
func (p shownPicture) encode(req control.ScreenshotRequest) (control.Screenshot, error) {
	shot := control.Screenshot{Format: control.PNG, Hash: p.hash}
	quality := jpegQuality
	switch {
	case req.Thumbnail:
		shot.Format, quality = control.JPEG, rfb.ThumbnailQuality
	case req.Format == control.JPEG:
		shot.Format = control.JPEG
	}
	if req.Unless == p.hash {
		return shot, nil
	}
	data, err := rfb.Encode(p.img, rfb.Format(shot.Format), quality)
	if err != nil {
		return control.Screenshot{}, fmt.Errorf("screenshot: %w", err)
	}
	shot.Data = data
	return shot, nil
}

// dialRFB asks the session for a connection to Xvnc and checks what it passed. A
// session that passes something else is not worth another word (X11).
func (s *supervisor) dialRFB(ctx context.Context, request dialhome.Dial) (net.Conn, error) {
	slot, err := s.passed.acquire()
	if err != nil {
		return nil, err
	}
	a, err := s.link.call(ctx, question{op: dialhome.OpDial, body: request, want: 1})
	if err != nil {
		slot.release()
		return nil, err
	}
	s.mu.Lock()
	xserver := s.record.XServer
	s.mu.Unlock()
	conn, err := acceptRFB(a.passed[0], slot, xserver)
	if err != nil && !errors.Is(err, errPeerGone) {
		s.link.accuse(a.line, err)
	}
	return conn, err
}
