// SPDX-License-Identifier: MPL-2.0

package session

import (
	"context"
	"net/url"
	"time"

	"github.com/botscreen/botscreen/driver/session/dialhome"
)

const (
	pageLimit  = 3 * time.Second // bounds the question what the browser shows
	renewLimit = 7 * time.Second // and this the wait for another page; a viewer waits a little longer
)

// handleBrowserPage says what people see of a browser that runs; it starts none.
func (s *session) handleBrowserPage(l *link, packet dialhome.Packet) {
	page, err := s.pageInFront()
	l.answer(packet.ID, page, err)
}

func (s *session) pageInFront() (dialhome.BrowserPage, error) {
	b, err := s.browsing()
	if err != nil {
		return dialhome.BrowserPage{}, err
	}
	ctx, cancel := context.WithTimeout(s.stopping, pageLimit)
	defer cancel()
	front, err := b.Front(ctx)
	return dialhome.BrowserPage{Origin: originOf(front.URL), Filled: front.Filled, Unsure: front.Unsure}, err
}

// handleBrowserRenew gives a person a page without what the agent left; it starts no
// browser.
func (s *session) handleBrowserRenew(l *link, packet dialhome.Packet) {
	var request dialhome.BrowserRenew
	err := dialhome.Decode(packet.Body, &request)
	if err == nil {
		err = s.renewPage(request.Fresh)
	}
	l.answer(packet.ID, nil, err)
}

func (s *session) renewPage(fresh bool) error {
	b, err := s.browsing()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(s.stopping, renewLimit)
	defer cancel()
	return b.Renew(ctx, fresh)
}

// originOf leaves off what may be secret in an address (X25): an http one keeps scheme and
// host, any other its scheme.
func originOf(address string) string {
	u, err := url.Parse(address)
	switch {
	case err != nil || u.Scheme == "":
		return ""
	case u.Scheme == "http" || u.Scheme == "https":
		return bounded((&url.URL{Scheme: u.Scheme, Host: u.Host}).String())
	}
	return bounded(u.Scheme + ":")
}
