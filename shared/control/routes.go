// SPDX-License-Identifier: MPL-2.0

package control

import (
	"net/http"
	"slices"

	"github.com/botscreen/botscreen/shared/screen"
)

// Version is the version of this API. It stands in the path, in the status and
// in the first line of a tunnel.
const Version = 1

// UpgradeProtocol is the value of the Upgrade header that turns a call into a
// byte stream.
const UpgradeProtocol = "botscreen"

// Call names one route; the server looks its handler up by it.
type Call string

// Every call of the API.
const (
	CallStatus        Call = "status"
	CallEvents        Call = "events"
	CallLease         Call = "lease"
	CallTake          Call = "take"
	CallRelease       Call = "release"
	CallMintTicket    Call = "mint ticket"
	CallRevokeTicket  Call = "revoke ticket"
	CallScreenshot    Call = "screenshot"
	CallInput         Call = "input"
	CallAsk           Call = "ask"
	CallAwaitAsk      Call = "await ask"
	CallWindows       Call = "windows"
	CallCursor        Call = "cursor"
	CallReadClipboard Call = "read clipboard"
	CallSetClipboard  Call = "set clipboard"
	CallStop          Call = "stop"
	CallSignal        Call = "signal"
	CallSleep         Call = "sleep"
	CallWake          Call = "wake"
	CallWait          Call = "wait"
	CallAudit         Call = "audit"
	CallStats         Call = "stats"
	CallExec          Call = "exec"
	CallRFB           Call = "rfb"
	CallOpenBrowser   Call = "open browser"
	CallCloseBrowser  Call = "close browser"
	CallCDP           Call = "cdp"
	CallTunnel        Call = "tunnel"
)

// Route is one line of the table: how a call is reached and by whom.
type Route struct {
	Call   Call
	Method string
	Path   string // a pattern of net/http.ServeMux without the method
	Roles  []screen.Role
	Stream bool // the call becomes a byte stream by Upgrade: botscreen
}

// Allows reports whether a door of this role may make the call.
func (r Route) Allows(role screen.Role) bool { return slices.Contains(r.Roles, role) }

var (
	everybody = []screen.Role{screen.RoleOperator, screen.RoleAgent, screen.RoleControl, screen.RoleViewer}
	people    = []screen.Role{screen.RoleOperator, screen.RoleControl, screen.RoleViewer}
	viewers   = []screen.Role{screen.RoleControl, screen.RoleViewer}
	operators = []screen.Role{screen.RoleOperator}
	agents    = []screen.Role{screen.RoleAgent}
	actors    = []screen.Role{screen.RoleOperator, screen.RoleAgent}
)

// Routes is the whole API (wire.md section 1). What a role may further not do
// within a call, such as force, is decided where the call is handled.
var Routes = []Route{
	{CallStatus, http.MethodGet, "/v1/status", everybody, false},
	{CallEvents, http.MethodGet, "/v1/events", everybody, false},
	{CallLease, http.MethodGet, "/v1/lease", everybody, false},
	{CallTake, http.MethodPost, "/v1/lease/take", people, false},
	{CallRelease, http.MethodPost, "/v1/lease/release", people, false},
	{CallMintTicket, http.MethodPost, "/v1/tickets", operators, false},
	{CallRevokeTicket, http.MethodDelete, "/v1/tickets/{id}", operators, false},
	{CallScreenshot, http.MethodGet, "/v1/screenshot", actors, false},
	{CallInput, http.MethodPost, "/v1/input", agents, false},
	{CallAsk, http.MethodPost, "/v1/asks", actors, false},
	{CallAwaitAsk, http.MethodGet, "/v1/asks/{id}", actors, false},
	{CallWindows, http.MethodGet, "/v1/windows", agents, false},
	{CallCursor, http.MethodGet, "/v1/cursor", agents, false},
	{CallReadClipboard, http.MethodGet, "/v1/clipboard", agents, false},
	{CallSetClipboard, http.MethodPut, "/v1/clipboard", agents, false},
	{CallOpenBrowser, http.MethodPost, "/v1/browser/open", actors, false},
	{CallCloseBrowser, http.MethodPost, "/v1/browser/close", actors, false},
	{CallStop, http.MethodPost, "/v1/stop", operators, false},
	{CallSignal, http.MethodPost, "/v1/signal", operators, false},
	{CallSleep, http.MethodPost, "/v1/sleep", operators, false},
	{CallWake, http.MethodPost, "/v1/wake", operators, false},
	{CallWait, http.MethodGet, "/v1/wait", operators, false},
	{CallAudit, http.MethodGet, "/v1/audit", operators, false},
	{CallStats, http.MethodGet, "/v1/stats", operators, false},
	{CallExec, http.MethodPost, "/v1/exec", operators, true},
	{CallRFB, http.MethodGet, "/v1/rfb", viewers, true},
	{CallCDP, http.MethodGet, "/v1/cdp", agents, true},
	{CallTunnel, http.MethodGet, "/v1/tunnel", operators, true},
}

// RouteOf finds the line of a call; a call that is not in the table has none.
func RouteOf(call Call) (Route, bool) {
	i := slices.IndexFunc(Routes, func(r Route) bool { return r.Call == call })
	if i < 0 {
		return Route{}, false
	}
	return Routes[i], true
}
