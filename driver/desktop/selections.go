// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"context"
	"fmt"

	"github.com/jezek/xgb/xproto"
)

// Clipboard is the text that a program would paste now, empty where there is none. It may
// hold anything that a program of the desktop, or a web page in one, put there.
func (d *Desktop) Clipboard(ctx context.Context) (string, error) {
	text, err := d.clip.get(ctx)
	if err != nil {
		return "", fmt.Errorf("read clipboard: %w", err)
	}
	return text, nil
}

// SetClipboard makes a text of at most MaxClipboard bytes what programs paste, by the
// clipboard and by the middle button.
func (d *Desktop) SetClipboard(ctx context.Context, text string) error {
	if err := d.clip.set(ctx, text); err != nil {
		return fmt.Errorf("set clipboard: %w", err)
	}
	return nil
}

// WipeClipboard empties clipboard and primary selection, whoever has them (rule L8). What
// a program shows as selected, it can offer again.
func (d *Desktop) WipeClipboard(ctx context.Context) error {
	if err := d.clip.wipe(ctx); err != nil {
		return fmt.Errorf("wipe clipboard: %w", err)
	}
	return nil
}

// Pointer is where the mouse pointer is, in pixels from the upper left corner, and which
// buttons are down, bit 0 the left one.
type Pointer struct {
	X, Y    int
	Buttons int
}

// Pointer asks the X server.
func (d *Desktop) Pointer(ctx context.Context) (Pointer, error) {
	return watched(ctx, d, "ask for pointer", func() (Pointer, error) {
		reply, err := xproto.QueryPointer(d.view.conn, d.view.root).Reply()
		if err != nil {
			return Pointer{}, fmt.Errorf("ask for pointer: %w", err)
		}
		return Pointer{X: int(reply.RootX), Y: int(reply.RootY), Buttons: int(reply.Mask >> 8 & 0x1f)}, nil
	})
}
