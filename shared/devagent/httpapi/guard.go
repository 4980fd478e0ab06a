// SPDX-License-Identifier: MPL-2.0

package httpapi

import (
	"crypto/sha256"
	"crypto/subtle"
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// denied is what every refusal at the door says; what was wrong is not told to
// whoever asks, only why such a request is never answered.
const denied = "Permission denied"

// guard lets in requests that come to this agent under its own name, not from a page
// of another site, and with the token (threats.md X9).
func (a *API) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cache-Control", "no-store")
		switch {
		case !ownName(r):
			http.Error(w, denied+": this agent answers to loopback names only", http.StatusForbidden)
		case foreign(r):
			http.Error(w, denied+": this agent does not answer pages of other sites", http.StatusForbidden)
		case !a.authorized(token(r)) && !handshake(r):
			http.Error(w, denied, http.StatusForbidden)
		default:
			next.ServeHTTP(w, r)
		}
	})
}

// ownName says whether a Host header is a loopback name, or the address that the
// request came to where the agent was told to listen elsewhere. Any other name may be
// one that a page's owner points at us.
func ownName(r *http.Request) bool {
	name := r.Host
	if h, _, err := net.SplitHostPort(name); err == nil {
		name = h
	}
	name = strings.ToLower(strings.Trim(name, "[]"))
	if name == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(name)
	if err != nil || ip.Zone() != "" {
		return false
	}
	return ip.Unmap().IsLoopback() || ip.Unmap() == localAddr(r)
}

// localAddr is the address of ours that a request came to.
func localAddr(r *http.Request) netip.Addr {
	local, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !ok {
		return netip.Addr{}
	}
	return local.AddrPort().Addr().Unmap()
}

// foreign says whether a browser sent the request for a page that is not ours.
func foreign(r *http.Request) bool {
	if site := r.Header.Get("Sec-Fetch-Site"); site != "" && site != "none" && site != "same-origin" {
		return true
	}
	origin := r.Header.Get("Origin")
	return origin != "" && origin != "http://"+r.Host && origin != "https://"+r.Host
}

// token is what the request carries, in either of the forms that Nomad takes.
func token(r *http.Request) string {
	if t := r.Header.Get("X-Nomad-Token"); t != "" {
		return t
	}
	scheme, t, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if strings.EqualFold(scheme, "bearer") {
		return strings.TrimSpace(t)
	}
	return ""
}

// authorized compares in constant time, whatever the lengths.
func (a *API) authorized(given string) bool {
	want, got := sha256.Sum256([]byte(a.Token)), sha256.Sum256([]byte(given))
	return a.Token != "" && subtle.ConstantTimeCompare(want[:], got[:]) == 1
}

// handshake says whether a WebSocket brings its token in its first frame, as browser
// clients do.
func handshake(r *http.Request) bool {
	return r.URL.Query().Get("ws_handshake") == "true" && strings.HasSuffix(r.URL.Path, "/exec") &&
		strings.HasPrefix(r.URL.Path, "/v1/client/allocation/") && strings.EqualFold(r.Header.Get("Upgrade"), "websocket")
}
