// SPDX-License-Identifier: MPL-2.0

package screen

import (
	"fmt"
	"time"
)

// Watch says who sees the screen while a person controls it.
type Watch string

// The watch policies. Under holder and blank the others' streams end at a takeover and
// begin again at the hand-back; blank hides it from thumbnails too.
const (
	WatchAll    Watch = "all"
	WatchHolder Watch = "holder"
	WatchBlank  Watch = "blank"
)

// Thumbnails says whether small pictures of the screen may be taken.
type Thumbnails string

// With watch, thumbnails follow the watch policy; off means none at all.
const (
	ThumbnailsWatch Thumbnails = "watch"
	ThumbnailsOff   Thumbnails = "off"
)

// Clipboard says which way text travels between the desktop and the person in control.
type Clipboard string

// The clipboard policies. In lets the holder paste; both also brings what is copied on
// the desktop to the holder, and to nobody else.
const (
	ClipboardOff  Clipboard = "off"
	ClipboardIn   Clipboard = "in"
	ClipboardBoth Clipboard = "both"
)

// Takeover says what happens to the desktop's programs when a person takes control.
type Takeover string

// With keep they run on. Clean first ends every process outside the desktop itself and
// the browser, and disconnects all other X clients (threats.md X3).
const (
	TakeoverKeep  Takeover = "keep"
	TakeoverClean Takeover = "clean"
)

// TakeoverPolicy is what a job decides about people on its screen.
type TakeoverPolicy struct {
	Watch      Watch      `json:"watch"`
	Thumbnails Thumbnails `json:"thumbnails"`
	Clipboard  Clipboard  `json:"clipboard"`
	Takeover   Takeover   `json:"takeover"`
	// AwayLimit is how long a vanished holder keeps the screen after the grace; 0 is
	// until somebody acts (rule L10).
	AwayLimit time.Duration `json:"away_limit_ns"`
	// Consent asks the present holder before another person gets the screen (rule L5).
	Consent bool `json:"consent"`
	// MaxGeometry is the largest the holder may make the desktop (rule R5a).
	MaxGeometry Geometry `json:"max_geometry,omitzero"`
}

// maxAwayLimit is a week: longer ago nobody remembers.
const maxAwayLimit = 7 * 24 * time.Hour

// usualMaxGeometry is the largest desktop of a job that does not say.
var usualMaxGeometry = Geometry{WidthPx: 3840, HeightPx: 2160}

// validateTakeover checks what a job says of people.
func (c Config) validateTakeover(faults *Faults, start Geometry) TakeoverPolicy {
	p := TakeoverPolicy{
		Watch:      oneOf(faults, "watch", c.Watch, WatchAll, WatchHolder, WatchBlank),
		Thumbnails: oneOf(faults, "thumbnails", c.Thumbnails, ThumbnailsWatch, ThumbnailsOff),
		Clipboard:  oneOf(faults, "clipboard", c.Clipboard, ClipboardOff, ClipboardIn, ClipboardBoth),
		Takeover:   oneOf(faults, "takeover", c.Takeover, TakeoverKeep, TakeoverClean),
		AwayLimit:  parseDuration(faults, "away_limit", c.AwayLimit, 0, maxAwayLimit),
		Consent:    c.Consent,
	}
	p.MaxGeometry = c.validateMaxGeometry(faults, start)
	return p
}

// validateMaxGeometry refuses a desktop that starts larger than it may become. Unsaid, it
// is the usual one, or what the desktop starts with where that is larger.
func (c Config) validateMaxGeometry(faults *Faults, start Geometry) Geometry {
	if c.MaxGeometry == "" {
		return Geometry{WidthPx: max(usualMaxGeometry.WidthPx, start.WidthPx), HeightPx: max(usualMaxGeometry.HeightPx, start.HeightPx)}
	}
	most, err := ParseGeometry(c.MaxGeometry)
	switch {
	case err != nil:
		faults.Add("max_geometry", c.MaxGeometry, geometryWant)
	case start.WidthPx > most.WidthPx || start.HeightPx > most.HeightPx:
		faults.Add("max_geometry", c.MaxGeometry, fmt.Sprintf("must be at least the %s of `geometry`", start))
	}
	return most
}
