// SPDX-License-Identifier: MPL-2.0

package requirements

import (
	"errors"
	"sync"
	"time"

	"github.com/botscreen/botscreen/driver/browser"
	"github.com/botscreen/botscreen/shared/screen"
)

// Memory keeps what executables of this node said when they were asked for their version:
// the answer costs a tenth of a second of processor time, and each fingerprint and each
// start wants it. The zero value is ready; nil remembers nothing.
type Memory struct {
	mu    sync.Mutex // guards known
	known map[string]screen.KnownVersion
}

// Ask is what the executable said, or asks it and keeps the answer, unless the file has
// changed meanwhile. What it said long ago counts where the node is too busy for an answer:
// it would look as if there were no browser.
func (m *Memory) Ask(path string, ask func() (string, error)) (string, error) {
	if m == nil {
		return ask()
	}
	before, err := browser.Identify(path)
	if err != nil {
		return ask() // which says what is wrong with it
	}
	m.mu.Lock()
	known, ok := m.known[path]
	m.mu.Unlock()
	if ok && known.File == before && time.Since(known.Asked) < browser.RememberFor {
		return known.Says, nil
	}
	asked := time.Now()
	says, err := ask()
	if ok && known.File == before && errors.Is(err, errNoAnswer) {
		return known.Says, nil
	}
	if err != nil {
		return says, err
	}
	if after, err := browser.Identify(path); err == nil && after == before {
		m.mu.Lock()
		defer m.mu.Unlock()
		if m.known == nil {
			m.known = map[string]screen.KnownVersion{}
		}
		m.known[path] = screen.KnownVersion{Path: path, Says: says, File: after, Asked: asked}
	}
	return says, nil
}

// All is everything that is known, for a screen that runs on the node itself.
func (m *Memory) All() (all []screen.KnownVersion) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, known := range m.known {
		all = append(all, known)
	}
	return all
}
