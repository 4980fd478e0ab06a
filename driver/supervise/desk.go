// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"errors"
	"time"

	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// deskTimeout is a little longer than a session takes at most.
const deskTimeout = 10 * time.Second

// Windows lists the windows for the agent, which sees them as a person does not: their
// titles are a way to the screen, and fenced as one (rules L6, L15).
func (s *supervisor) Windows(ctx context.Context, _ controlserver.Caller) (control.Windows, error) {
	var list []dialhome.Window
	seen, err := s.desk(ctx, "list the windows", func() (err error) {
		list, err = s.listWindows(ctx)
		return err
	})
	if err != nil {
		return control.Windows{}, err
	}
	answer := control.Windows{Epoch: seen, Windows: make([]control.Window, 0, len(list))}
	for _, w := range list {
		answer.Windows = append(answer.Windows, control.Window{
			Title: screen.Distrust(w.Title), Class: screen.Distrust(w.Class), Type: screen.Distrust(w.Type),
			X: w.X, Y: w.Y, WidthPx: w.WidthPx, HeightPx: w.HeightPx, Focused: w.Active, Minimized: w.Minimized,
		})
	}
	return answer, nil
}

// Cursor says where the mouse pointer is.
func (s *supervisor) Cursor(ctx context.Context, _ controlserver.Caller) (control.Cursor, error) {
	var at dialhome.Pointer
	seen, err := s.desk(ctx, "look for the pointer", func() error {
		return s.askDesk(ctx, question{op: dialhome.OpPointer, body: struct{}{}}, &at)
	})
	if err != nil {
		return control.Cursor{}, err
	}
	return control.Cursor{Epoch: seen, X: at.X, Y: at.Y, Left: at.Buttons&1 != 0, Middle: at.Buttons&2 != 0, Right: at.Buttons&4 != 0}, nil
}

// desk runs one question of the agent about the desktop, fenced before and after; asking
// is a use of the screen.
func (s *supervisor) desk(ctx context.Context, what string, ask func() error) (seen lease.Epoch, err error) {
	if seen, err = s.beginFenced(); err != nil {
		return seen, err
	}
	end, err := s.begin(ctx, what)
	if err != nil {
		return seen, err
	}
	defer end()
	err = ask()
	if refusal := s.admit(seen); refusal != nil {
		return seen, refusal
	}
	if err != nil {
		return seen, refusalUnless(what, err)
	}
	return seen, nil
}

// refusalUnless is refusalOf for what may be a refusal already.
func refusalUnless(what string, err error) error {
	var refusal *control.Error
	if errors.As(err, &refusal) {
		return err
	}
	return refusalOf(what, err)
}

func (s *supervisor) listWindows(ctx context.Context) ([]dialhome.Window, error) {
	var list dialhome.Windows
	err := s.askDesk(ctx, question{op: dialhome.OpWindows, body: struct{}{}}, &list)
	return list.Windows[:min(len(list.Windows), dialhome.MaxWindows)], err
}

// askDesk asks the session's own X clients. Where into is nil the answer says nothing.
func (s *supervisor) askDesk(ctx context.Context, q question, into any) error {
	ctx, cancel := context.WithTimeout(ctx, deskTimeout)
	defer cancel()
	a, err := s.link.call(ctx, q)
	if err != nil || into == nil {
		return err
	}
	return dialhome.Decode(a.packet.Body, into)
}
