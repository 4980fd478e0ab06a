// SPDX-License-Identifier: MPL-2.0

package cdp

import "strings"

// shared is why what would end the browser for everybody is refused.
const shared = "is refused: this browser is shared with a person and with other clients, and stays. Disconnect instead; to end a page use Target.closeTarget."

// beyond is why what would outlive the client's session is refused: a takeover could not
// end it (threats.md, X18).
const beyond = "is refused: what it sets up would go on after this client was cut off, when a person takes the screen."

// refusedMethods are those that hurt others than their caller, or get around its session.
var refusedMethods = map[string]string{
	"Browser.close":           shared,
	"Browser.crash":           shared,
	"Browser.crashGpuProcess": shared,
	// A page that was given the protocol keeps it for as long as it lives.
	"Target.exposeDevToolsProtocol": beyond,
	// The pages of other browsers, at addresses of the caller's choice.
	"Target.setRemoteLocations": "is refused: this is the screen's browser alone.",
	// A session that is not flat hides methods and sessions in strings.
	"Target.sendMessageToTarget": "is refused: attach with flatten: true and send the message with the sessionId.",
	// It listens on a port of the node, which anybody there may use.
	"Tethering.bind": "is refused: it would open a port.",
}

// refusedDomains are refused whole.
var refusedDomains = map[string]string{
	"Extensions": beyond,
}

// refused says why a command may not pass, empty where it may.
func refused(e envelope) string {
	why, ok := refusedMethods[e.method]
	if !ok {
		domain, _, _ := strings.Cut(e.method, ".")
		why, ok = refusedDomains[domain]
	}
	if !ok {
		return ""
	}
	return e.method + " " + why
}
