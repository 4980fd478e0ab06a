// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/botscreen/botscreen/shared/screen"
)

// foreign reports a request that a page of another site makes (rule R2): one whose
// Host is not ours, which is how DNS rebinding looks, or whose Origin is another.
// Clients that are no browser send no Origin; they have a ticket to show all the same.
func (o Options) foreign(r *http.Request) error {
	if !o.ourHost(r.Host) {
		return fmt.Errorf("host %q is not this relay's", screen.Distrust(r.Host))
	}
	origins := r.Header.Values("Origin")
	if len(origins) == 0 {
		return nil
	}
	u, err := url.Parse(origins[0])
	if err != nil || len(origins) > 1 || u.Scheme != "http" && u.Scheme != "https" || !strings.EqualFold(u.Host, r.Host) {
		return fmt.Errorf("origin %q is not host %q", screen.Distrust(origins[0]), screen.Distrust(r.Host))
	}
	return nil
}

// ourHost accepts addresses, which no foreign name can be turned into, and names that
// were configured.
func (o Options) ourHost(hostport string) bool {
	host := hostport
	if h, _, err := net.SplitHostPort(hostport); err == nil {
		host = h
	}
	if _, err := netip.ParseAddr(strings.Trim(host, "[]")); err == nil {
		return true
	}
	return strings.EqualFold(host, "localhost") ||
		slices.ContainsFunc(o.Hosts, func(ours string) bool { return strings.EqualFold(ours, host) })
}
