// SPDX-License-Identifier: MPL-2.0

package control

import (
	"fmt"
	"image"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// ImageFormat is how a picture travels.
type ImageFormat string

// The formats a screenshot comes in.
const (
	PNG  ImageFormat = "png"
	JPEG ImageFormat = "jpeg"
)

// MediaType is the value of the Content-Type header.
func (f ImageFormat) MediaType() string { return "image/" + string(f) }

// ScreenshotRequest selects what a screenshot shows. The zero value is the whole
// screen in its own size as PNG.
type ScreenshotRequest struct {
	Rect   image.Rectangle // in pixels of the screen; empty: all of it
	Scale  float64         // above 0 and at most 1; 0: 1
	Format ImageFormat     // empty: PNG
	// Thumbnail asks for the whole screen as a small JPEG; of the other fields only
	// Unless goes with it. The job's policy decides who gets one (rule R11).
	Thumbnail bool
	// Unless is the hash of a picture that the caller has: an equal one comes without
	// data.
	Unless string
	// Until waits before the picture is taken, for at most Within.
	Until  Until
	Within time.Duration // above 0 and at most MaxWithin where Until is not empty
}

// Until is what a screenshot waits for.
type Until string

// What can be waited for. Change needs Unless: what changed before the call counts too.
const (
	Change Until = "change" // the picture's hash is no longer Unless
	Settle Until = "settle" // nothing of it has changed for half a second
)

// MaxWithin is how long a screenshot may wait for the screen.
const MaxWithin = time.Minute

// Screenshot is a picture and the lease it was taken under.
type Screenshot struct {
	Format ImageFormat
	Data   []byte          // empty where the hash is the request's Unless
	Epoch  lease.Epoch     // the epoch before the first pixel was read and after the last
	Hash   string          // equal pixels in equal requests have equal hashes
	Screen screen.Geometry // of the whole screen
	Late   bool            // what the request waited for had not come when the time was over
}

// Headers of a screenshot's answer.
const (
	HeaderEpoch  = "Botscreen-Epoch"
	HeaderHash   = "Botscreen-Hash"
	HeaderScreen = "Botscreen-Screen" // WIDTHxHEIGHT in pixels
	HeaderLate   = "Botscreen-Late"   // "true" or absent
)

// Query writes the request as ParseScreenshotRequest reads it.
func (r ScreenshotRequest) Query() url.Values {
	q := url.Values{}
	if !r.Rect.Empty() {
		q.Set("rect", fmt.Sprintf("%d,%d,%d,%d", r.Rect.Min.X, r.Rect.Min.Y, r.Rect.Dx(), r.Rect.Dy()))
	}
	if r.Scale != 0 {
		q.Set("scale", strconv.FormatFloat(r.Scale, 'g', -1, 64))
	}
	if r.Format != "" {
		q.Set("format", string(r.Format))
	}
	if r.Thumbnail {
		q.Set("thumbnail", "true")
	}
	if r.Unless != "" {
		q.Set("unless", r.Unless)
	}
	if r.Until != "" {
		q.Set("until", string(r.Until))
		q.Set("within", r.Within.String())
	}
	return q
}

// ParseScreenshotRequest reads rect=X,Y,WIDTH,HEIGHT, scale=0.5, format=png or jpeg,
// thumbnail=true, unless=HASH, until=change or settle and within=10s. All faults are
// reported at once; the error is screen.Faults.
func ParseScreenshotRequest(q url.Values) (ScreenshotRequest, error) {
	var faults screen.Faults
	r := ScreenshotRequest{Scale: 1, Format: PNG}
	if text := q.Get("rect"); text != "" {
		rect, ok := parseRect(text)
		if !ok {
			faults.Add("rect", text, "must be X,Y,WIDTH,HEIGHT in pixels")
		}
		r.Rect = rect
	}
	if text := q.Get("scale"); text != "" {
		scale, err := strconv.ParseFloat(text, 64)
		if err != nil || !(scale > 0 && scale <= 1) { // written so that NaN is refused
			faults.Add("scale", text, "must be above 0 and at most 1")
		}
		r.Scale = scale
	}
	switch text := q.Get("format"); text {
	case "", "png":
	case "jpeg", "jpg":
		r.Format = JPEG
	default:
		faults.Add("format", text, "is not one of png, jpeg")
	}
	r.parseWait(q, &faults)
	r.parseThumbnail(q, &faults)
	return r, faults.Err()
}

func (r *ScreenshotRequest) parseThumbnail(q url.Values, faults *screen.Faults) {
	text := q.Get("thumbnail")
	r.Thumbnail = text == "true"
	if text != "" && !r.Thumbnail {
		faults.Add("thumbnail", text, "must be true or left out")
	}
	for _, other := range []string{"rect", "scale", "format", "until"} {
		if r.Thumbnail && q.Get(other) != "" {
			faults.Add(other, q.Get(other), "does not go with thumbnail")
		}
	}
	if r.Thumbnail {
		r.Scale, r.Format = 0, "" // its own
	}
}

// maxHash is longer than every hash, in bytes.
const maxHash = 128

func (r *ScreenshotRequest) parseWait(q url.Values, faults *screen.Faults) {
	r.Unless = q.Get("unless")
	if len(r.Unless) > maxHash {
		faults.Add("unless", r.Unless[:maxHash], "is no hash of a screenshot")
	}
	r.Until = Until(q.Get("until"))
	within := q.Get("within")
	switch {
	case r.Until == "" && within == "":
		return
	case r.Until != Change && r.Until != Settle:
		faults.Add("until", string(r.Until), "is not one of change, settle")
	case r.Until == Change && r.Unless == "":
		faults.Add("until", string(r.Until), "needs unless, the hash of the picture that is to change")
	}
	d, err := time.ParseDuration(within)
	if err != nil || d <= 0 || d > MaxWithin {
		faults.Add("within", within, fmt.Sprintf("must be above 0s and at most %s", MaxWithin))
	}
	r.Within = d
}

func parseRect(text string) (image.Rectangle, bool) {
	parts := strings.Split(text, ",")
	if len(parts) != 4 {
		return image.Rectangle{}, false
	}
	var n [4]int
	for i, part := range parts {
		// 16 bits: what RFB can address, and no sum of two overflows.
		v, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return image.Rectangle{}, false
		}
		n[i] = int(v)
	}
	rect := image.Rect(n[0], n[1], n[0]+n[2], n[1]+n[3])
	return rect, !rect.Empty()
}

// TakeRequest gives the screen to a viewer. On a viewer's own door Viewer may be
// empty: it is the door's.
type TakeRequest struct {
	Viewer lease.ViewerID   `json:"viewer,omitempty"`
	Reason screen.Untrusted `json:"reason,omitzero"` // shown to everybody who sees the screen's status
}

// ReleaseRequest hands the screen back to the agent. Without Force only the viewer
// that holds it can; another one is refused with not_holder.
type ReleaseRequest struct {
	Viewer lease.ViewerID `json:"viewer,omitempty"`
	Force  bool           `json:"force,omitempty"` // whoever holds: the operator alone may
}

// StopRequest ends a screen. Without Force it is refused with held while a human
// has control.
type StopRequest struct {
	Force bool `json:"force,omitempty"`
	// Signal is the number of the first signal; 0 is TERM.
	Signal int `json:"signal,omitempty"`
	// Grace is what lies between the first signal and KILL; 0 is the default, 5 s,
	// and a negative one kills at once.
	Grace time.Duration `json:"grace_ns,omitempty"`
}

// SignalRequest signals every program on the desktop but the X server.
type SignalRequest struct {
	Signal int `json:"signal"` // its number on Linux, see signal(7)
}

// ExecRequest starts a program inside the session.
type ExecRequest struct {
	Argv []string          `json:"argv"`
	Env  map[string]string `json:"env,omitempty"` // added to the session's own
	Dir  string            `json:"cwd,omitempty"` // empty: the home
	TTY  bool              `json:"tty,omitempty"`
	// GUI lets it use the display as the desktop's programs do. Without, it gets an
	// untrusted cookie: it can neither watch the screen nor what is typed (X3).
	GUI  bool          `json:"gui,omitempty"`
	Size *TerminalSize `json:"size,omitempty"`
	// Force starts it although a human holds the screen.
	Force bool `json:"force,omitempty"`
}

// TerminalSize is the size of a terminal in characters.
type TerminalSize struct {
	Rows uint16 `json:"rows"`
	Cols uint16 `json:"cols"`
}
