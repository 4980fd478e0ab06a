// SPDX-License-Identifier: MPL-2.0

package toolbox

import (
	"image"
	"sync"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
)

// sight is what the agent has seen of its screen.
type sight struct {
	mu     sync.Mutex // guards all below
	newest lease.Epoch
	seen   lease.Epoch // of the last look; 0: it has to look (again)
	hashes map[frame]string
	last   frame // of the last look
}

// frame is which picture of the screen was asked for.
type frame struct {
	rect  image.Rectangle
	scale float64
}

func frameOf(req control.ScreenshotRequest) frame { return frame{req.Rect, req.Scale} }

// maxFrames bounds the hashes that are remembered.
const maxFrames = 32

// epoch is what an action may be decided on; 0 when the agent has to look first.
func (s *sight) epoch() lease.Epoch {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// looked notes a picture the agent gets. One that is older than what is known already is
// no look: an answer may have been overtaken by another one.
func (s *sight) looked(f frame, shot control.Screenshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if shot.Epoch < s.newest {
		return
	}
	if s.hashes == nil || len(s.hashes) >= maxFrames || shot.Epoch != s.seen {
		s.hashes = map[frame]string{}
	}
	s.newest, s.seen, s.last = shot.Epoch, shot.Epoch, f
	s.hashes[f] = shot.Hash
}

// lost notes that the screen may have changed hands; now is the epoch that was heard of,
// if any.
func (s *sight) lost(now lease.Epoch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.newest = max(s.newest, now)
	s.seen, s.hashes, s.last = 0, nil, frame{}
}

// hash is that of the last picture of this frame, empty where there is none.
func (s *sight) hash(f frame) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.hashes[f]
}

// lastFrame is the frame of the last look, if there is one.
func (s *sight) lastFrame() (frame, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, s.seen != 0
}
