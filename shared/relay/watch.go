// SPDX-License-Identifier: MPL-2.0

package relay

import "github.com/botscreen/botscreen/shared/lease"

// Watch says who sees the screen while a human holds.
type Watch string

// The policies. Holder and Blank are the same here: the streams of all others end
// and begin again; nothing is painted into a stream. They differ in what is shown
// elsewhere, such as thumbnails.
const (
	WatchAll    Watch = "all"
	WatchHolder Watch = "holder"
	WatchBlank  Watch = "blank"
)

// allows reports whether a viewer may see the screen under a lease.
func (w Watch) allows(v lease.ViewerID, l lease.Lease) bool {
	return w == WatchAll || w == "" || !l.Held() || l.HeldBy(v)
}
