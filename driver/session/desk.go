// SPDX-License-Identifier: MPL-2.0

package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/botscreen/botscreen/driver/desktop"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// The wire carries what the clipboard may hold, and no more.
const (
	_ = uint(dialhome.MaxClipboard - desktop.MaxClipboard)
	_ = uint(desktop.MaxClipboard - dialhome.MaxClipboard)
)

// deskLimit bounds what is asked of the desktop's own X clients; programs that do not
// answer cost less.
const deskLimit = 8 * time.Second

// handleDesk answers what the session's own X clients know, one request of Windows,
// Pointer, the focus and the clipboard. It owns what was passed.
func (s *session) handleDesk(l *link, packet dialhome.Packet, passed []*dialhome.Descriptor) {
	defer dialhome.CloseAll(passed)
	d := s.running()
	if d == nil {
		l.reply(packet.ID, nil, errNoDesktop)
		return
	}
	ctx, cancel := context.WithTimeout(s.stopping, deskLimit)
	defer cancel()
	answer, err := askDesk(ctx, d, packet, passed)
	l.answer(packet.ID, answer, err)
}

func askDesk(ctx context.Context, d *desktop.Desktop, packet dialhome.Packet, passed []*dialhome.Descriptor) (any, error) {
	switch packet.Op {
	case dialhome.OpWindows:
		return windowsOf(ctx, d)
	case dialhome.OpPointer:
		at, err := d.Pointer(ctx)
		return dialhome.Pointer{X: at.X, Y: at.Y, Buttons: at.Buttons}, err
	case dialhome.OpFocus:
		return focusOf(ctx, d, packet)
	case dialhome.OpEndClient:
		return nil, endClient(ctx, d, packet)
	case dialhome.OpWipeClipboard:
		return nil, d.WipeClipboard(ctx)
	}
	if len(passed) != 1 {
		return nil, fmt.Errorf("%s: %d descriptors came, want 1", packet.Op, len(passed))
	}
	text := passed[0].File("clipboard")
	defer text.Close()
	if packet.Op == dialhome.OpReadClipboard {
		return readClipboard(ctx, d, text)
	}
	var request dialhome.Text
	if err := dialhome.Decode(packet.Body, &request); err != nil {
		return nil, err
	}
	return nil, setClipboard(ctx, d, io.NewSectionReader(text, 0, int64(request.Bytes)))
}

// windowsOf lists the uppermost windows: more would not fit into a packet.
func windowsOf(ctx context.Context, d *desktop.Desktop) (dialhome.Windows, error) {
	all, err := d.Windows(ctx)
	if err != nil {
		return dialhome.Windows{}, err
	}
	var list dialhome.Windows
	for _, w := range all[max(0, len(all)-dialhome.MaxWindows):] {
		list.Windows = append(list.Windows, dialhome.Window{
			ID: w.ID, Title: w.Title.String(), Class: w.Class.String(), Type: w.Type,
			X: w.X, Y: w.Y, WidthPx: w.WidthPx, HeightPx: w.HeightPx, Active: w.Active, Minimized: w.Minimized,
		})
	}
	return list, nil
}

func focusOf(ctx context.Context, d *desktop.Desktop, packet dialhome.Packet) (dialhome.Focus, error) {
	var request dialhome.LookForFocus
	if err := dialhome.Decode(packet.Body, &request); err != nil {
		return dialhome.Focus{}, err
	}
	f, err := d.Focus(ctx, request.Grabs)
	return dialhome.Focus{Client: f.Client, PID: f.PID, Program: f.Program.String(), Title: f.Title.String(), Grabbed: f.Grabbed}, err
}

func endClient(ctx context.Context, d *desktop.Desktop, packet dialhome.Packet) error {
	var request dialhome.EndClient
	if err := dialhome.Decode(packet.Body, &request); err != nil {
		return err
	}
	return d.EndClient(ctx, request.Client, request.PID)
}

// readClipboard writes the text into the supervisor's file, which has room for it.
func readClipboard(ctx context.Context, d *desktop.Desktop, into *os.File) (dialhome.Text, error) {
	text, err := d.Clipboard(ctx)
	if errors.Is(err, desktop.ErrClipboardText) {
		text, err = "", nil // a picture or files: nothing that could be read
	}
	if err != nil {
		return dialhome.Text{}, err
	}
	_, err = into.WriteAt([]byte(text), 0)
	return dialhome.Text{Bytes: len(text)}, err
}

func setClipboard(ctx context.Context, d *desktop.Desktop, from io.Reader) error {
	text, err := io.ReadAll(io.LimitReader(from, dialhome.MaxClipboard+1))
	if err != nil {
		return fmt.Errorf("set clipboard: %w", err)
	}
	return d.SetClipboard(ctx, string(text))
}
