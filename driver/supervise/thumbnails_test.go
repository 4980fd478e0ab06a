// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"bytes"
	"fmt"
	"image/color"
	"image/jpeg"
	"sync"
	"testing"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// CLI-05: thumbnails of many screens at once, within one process: each shows its own
// screen, as nothing of a connection is the process'.
func TestCLI05ThumbnailsOfManyScreens(t *testing.T) {
	const screens, pictures = 8, 50
	var rigs [screens]*rig
	for i := range rigs {
		path := serverPath(t)
		server := startHelper(t, "server", "SERVER="+path, fmt.Sprintf("PICTURE=%d", greyOf(i)))
		server.says("listening")
		rigs[i] = newRig(t, nil)
		f := rigs[i].session(dialhome.Desktop{State: dialhome.Running, Display: 70 + i, XPID: server.identity.PID, XStart: server.identity.Start})
		rigs[i].awaitState(screen.Ready)
		go f.passServer(path, func(dialhome.Dial) {})
	}
	var all sync.WaitGroup
	for i, r := range rigs {
		for range 2 { // two at once of each, of which the server lets one draw at a time
			all.Go(func() {
				for n := 0; n < pictures; {
					shot, err := r.client.Screenshot(t.Context(), control.ScreenshotRequest{Thumbnail: true})
					if isKind(err, control.Busy) {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					n++
					if got := greyIn(t, shot.Data); got != i {
						t.Errorf("the picture of screen %d shows screen %d", i, got)
						return
					}
				}
			})
		}
	}
	all.Wait()
}

func greyOf(i int) int { return 16 + 32*i }

// greyIn is the screen whose grey a picture has; JPEG keeps it nearly.
func greyIn(t *testing.T, data []byte) int {
	img, err := jpeg.Decode(bytes.NewReader(data))
	if err != nil {
		t.Error(err)
		return -1
	}
	grey := color.GrayModel.Convert(img.At(img.Bounds().Dx()/2, img.Bounds().Dy()/2)).(color.Gray)
	return int(grey.Y) / 32
}
