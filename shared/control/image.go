// SPDX-License-Identifier: MPL-2.0

package control

import "github.com/botscreen/botscreen/shared/screen"

// CommandImage is the reserved command of alloc exec by which an operator asks for and
// decides about a screen's image. One word follows it; the answer is an ImageState on
// standard output. It is the driver's own: the supervisor has no way to an engine.
const CommandImage = "botscreen:image"

// ImageAction is the word behind CommandImage.
type ImageAction string

// What can be asked. Check also asks the registry; Pull brings what the reference means
// now without using it; Keep says that the difference is known; Switch pulls and lets the
// next start use it.
const (
	ImageShow   ImageAction = "show"
	ImageCheck  ImageAction = "check"
	ImagePull   ImageAction = "pull"
	ImageKeep   ImageAction = "keep"
	ImageSwitch ImageAction = "switch"
)

// ImageState is a screen's image and what its reference means besides.
type ImageState struct {
	Isolation screen.Isolation `json:"isolation"`
	Reference string           `json:"reference"` // as the job or the node names it
	// Runs is the digest of what runs, Next that of what the next start takes, and Latest
	// of what the reference means now; empty where it is not known.
	Runs   string `json:"runs,omitempty"`
	Next   string `json:"next,omitempty"`
	Latest string `json:"latest,omitempty"`
	// Kept says that somebody has decided against Latest.
	Kept bool `json:"kept,omitempty"`
}

// Due reports whether somebody has a decision to make: there is another image, and nobody
// has said what to do about it.
func (s ImageState) Due() bool {
	return s.Latest != "" && s.Latest != s.Next && !s.Kept
}
