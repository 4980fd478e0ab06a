// SPDX-License-Identifier: MPL-2.0

package control

import (
	"context"
	"net/url"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// MaxClipboard bounds the text of a clipboard, in bytes.
const MaxClipboard = 256 << 10

// Windows is what is on the desktop, from bottom to top, as seen under a lease.
type Windows struct {
	Epoch   lease.Epoch `json:"epoch"`
	Windows []Window    `json:"windows"`
}

// Window is one top-level window. Its words are claims of the program that owns it.
type Window struct {
	Title     screen.Untrusted `json:"title"`
	Class     screen.Untrusted `json:"class"` // which program
	Type      screen.Untrusted `json:"type"`  // "normal", "dialog", "dock", "desktop", ...
	X         int              `json:"x"`     // of its upper left corner, in pixels of the screen
	Y         int              `json:"y"`
	WidthPx   int              `json:"width_px"`
	HeightPx  int              `json:"height_px"`
	Focused   bool             `json:"focused,omitempty"`
	Minimized bool             `json:"minimized,omitempty"`
}

// Cursor is where the mouse pointer is, in pixels of the screen, under a lease.
type Cursor struct {
	Epoch  lease.Epoch `json:"epoch"`
	X      int         `json:"x"`
	Y      int         `json:"y"`
	Left   bool        `json:"left,omitempty"` // buttons that are down
	Middle bool        `json:"middle,omitempty"`
	Right  bool        `json:"right,omitempty"`
}

// Clipboard is the text a program would paste. It is whatever a program put there.
type Clipboard struct {
	Epoch lease.Epoch `json:"epoch"`
	Text  string      `json:"text"`
}

// ClipboardRequest makes a text the clipboard's, decided under an epoch as InputRequest is.
type ClipboardRequest struct {
	Epoch lease.Epoch `json:"epoch"`
	Text  string      `json:"text"`
}

// Windows lists the windows.
func (c *Client) Windows(ctx context.Context) (Windows, error) {
	return get[Windows](ctx, c, CallWindows)
}

// Cursor says where the mouse pointer is.
func (c *Client) Cursor(ctx context.Context) (Cursor, error) {
	return get[Cursor](ctx, c, CallCursor)
}

// Clipboard reads the text of the clipboard, empty where it holds none.
func (c *Client) Clipboard(ctx context.Context) (Clipboard, error) {
	var answer Clipboard
	resp, err := c.call(ctx, CallReadClipboard, url.Values{}, nil)
	// Escaped, a text may be six times as long.
	err = decodeAnswerOf(CallReadClipboard, resp, err, &answer, 7*MaxClipboard)
	return answer, err
}

// SetClipboard makes a text what programs paste.
func (c *Client) SetClipboard(ctx context.Context, req ClipboardRequest) error {
	_, err := ask[Clipboard](ctx, c, CallSetClipboard, req)
	return err
}
