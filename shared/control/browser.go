// SPDX-License-Identifier: MPL-2.0

package control

import (
	"context"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// Browser is the one browser of a screen, as its session sees it.
type Browser struct {
	Executable screen.Untrusted `json:"executable,omitzero"` // empty: there is none, and Trouble says why
	Version    screen.Untrusted `json:"version,omitzero"`    // with its name, as in "Chromium 156.0.8078.114"
	Sandbox    BrowserSandbox   `json:"sandbox,omitempty"`
	Running    bool             `json:"running,omitempty"`
	Warning    screen.Untrusted `json:"warning,omitzero"`
	Trouble    screen.Untrusted `json:"trouble,omitzero"` // why there is none, or how the last one ended
}

// BrowserSandbox is how the browser confines its pages.
type BrowserSandbox string

// The ways. Off is only ever the job's own choice (rule W3).
const (
	SandboxUnknown    BrowserSandbox = ""
	SandboxNamespaces BrowserSandbox = "namespaces"
	SandboxSetuid     BrowserSandbox = "setuid"
	SandboxOff        BrowserSandbox = "off"
)

// BrowserRequest shows an address on the screen: http, https, a file of the screen by its
// absolute path, or about:blank. Without one the browser comes up, or to the front.
type BrowserRequest struct {
	// Epoch is the one it was decided under, as for InputRequest; 0: the one that holds
	// when the request arrives.
	Epoch lease.Epoch `json:"epoch,omitempty"`
	URL   string      `json:"url,omitempty"`
}

// BrowserAnswer says that the browser has begun to load.
type BrowserAnswer struct {
	Epoch   lease.Epoch `json:"epoch"`
	Started bool        `json:"started,omitempty"` // it did not run before
	// HandedOver says that a browser shows it which somebody started by hand with the
	// screen's profile: nothing can drive that one.
	HandedOver bool `json:"handed_over,omitempty"`
}

// OpenBrowser shows an address on the screen, as the agent or an operator.
func (c *Client) OpenBrowser(ctx context.Context, req BrowserRequest) (BrowserAnswer, error) {
	return ask[BrowserAnswer](ctx, c, CallOpenBrowser, req)
}

// CloseBrowser asks the browser to go, and returns when it has: what it knows is written
// down then. One that does not run is closed.
func (c *Client) CloseBrowser(ctx context.Context) error { return c.plain(ctx, CallCloseBrowser) }

// Commands of an exec call that the screen's session answers itself, whatever its image
// has: the browser's profile as a tar on standard output, and one from standard input in
// the place of the screen's. Both are refused while the browser runs.
const (
	CommandExportProfile = "botscreen:export-profile"
	CommandImportProfile = "botscreen:import-profile"
)
