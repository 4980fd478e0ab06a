// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// allows reports whether a viewer may see the screen under a lease. Holder and blank are
// the same here: the streams of all others end and begin again; nothing is painted into a
// stream. They differ in what is shown elsewhere, such as thumbnails.
func allows(w screen.Watch, v lease.ViewerID, l lease.Lease) bool {
	return w == screen.WatchAll || w == "" || !l.Held() || l.HeldBy(v)
}
