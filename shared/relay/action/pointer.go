// SPDX-License-Identifier: MPL-2.0

package action

import (
	"fmt"
	"iter"
	"time"

	"github.com/botscreen/botscreen/shared/rfb"
)

// Button is a button of the pointer.
type Button string

// The buttons. Empty is Left.
const (
	Left   Button = "left"
	Middle Button = "middle"
	Right  Button = "right"
)

// mask is the bit of RFB's button mask, 0 for an unknown button.
func (b Button) mask() uint16 {
	switch b {
	case "", Left:
		return 1 << 0
	case Middle:
		return 1 << 1
	case Right:
		return 1 << 2
	default:
		return 0
	}
}

// Bits of the button mask that are a notch of the wheel.
const (
	wheelUp = 1 << (iota + 3)
	wheelDown
	wheelLeft
	wheelRight
)

// Point is a place on the desktop, from its upper left corner.
type Point struct {
	X int `json:"x"`
	Y int `json:"y"`
}

func (p Point) step(buttons uint16) Step {
	return Step{Message: rfb.PointerEvent{Buttons: buttons, X: uint16(p.X), Y: uint16(p.Y)}.Append(nil)}
}

func (f *faults) button(b Button) {
	if b.mask() == 0 {
		f.add("button", string(b), "is not one of left, middle, right")
	}
}

// Move puts the pointer somewhere.
type Move struct {
	Point
}

func (a Move) check(f *faults, desktop rfb.Size) { f.point("x,y", a.X, a.Y, desktop) }

// Steps is one motion.
func (a Move) Steps() iter.Seq[Step] {
	return func(yield func(Step) bool) { yield(a.step(0)) }
}

// Click moves somewhere and clicks, with modifiers such as "ctrl+shift" held.
type Click struct {
	Point
	Button    Button `json:"button,omitempty"`
	Count     int    `json:"count,omitempty"` // 2 is a double click; 0: once
	Modifiers string `json:"modifiers,omitempty"`
}

func (a Click) check(f *faults, desktop rfb.Size) {
	f.point("x,y", a.X, a.Y, desktop)
	f.button(a.Button)
	f.count("count", a.Count, maxClicks)
	f.modifiers(a.Modifiers)
}

// Steps moves first, so that what is below the pointer knows of it.
func (a Click) Steps() iter.Seq[Step] {
	return held(a.Modifiers, func(yield func(Step) bool) bool {
		if !yield(a.step(0)) {
			return false
		}
		for range max(1, a.Count) {
			if !yield(a.step(a.Button.mask())) || !yield(a.step(0)) {
				return false
			}
		}
		return true
	})
}

// Drag presses at the path's first point, follows it and releases at its last.
type Drag struct {
	Path      []Point `json:"path"`
	Button    Button  `json:"button,omitempty"`
	Modifiers string  `json:"modifiers,omitempty"`
}

func (a Drag) check(f *faults, desktop rfb.Size) {
	if len(a.Path) < 2 || len(a.Path) > maxPath {
		f.add("path", fmt.Sprint(len(a.Path)), fmt.Sprintf("must have 2 to %d points", maxPath))
		return
	}
	for i, p := range a.Path {
		f.point(fmt.Sprintf("path[%d]", i), p.X, p.Y, desktop)
	}
	f.button(a.Button)
	f.modifiers(a.Modifiers)
}

// A drag has motions between its points, because a program takes a single jump for
// a slip of the hand.
const (
	dragSteps = 8
	dragPause = 8 * time.Millisecond
)

// Steps takes some 60 ms between two points.
func (a Drag) Steps() iter.Seq[Step] {
	return held(a.Modifiers, func(yield func(Step) bool) bool {
		mask := a.Button.mask()
		first, last := a.Path[0], a.Path[len(a.Path)-1]
		if !yield(first.step(0)) || !yield(first.step(mask)) {
			return false
		}
		for i, to := range a.Path[1:] {
			if !line(yield, a.Path[i], to, mask) {
				return false
			}
		}
		return yield(last.step(0))
	})
}

func line(yield func(Step) bool, from, to Point, mask uint16) bool {
	for i := 1; i <= dragSteps; i++ {
		between := Point{from.X + (to.X-from.X)*i/dragSteps, from.Y + (to.Y-from.Y)*i/dragSteps}
		step := between.step(mask)
		step.Pause = dragPause
		if !yield(step) {
			return false
		}
	}
	return true
}

// Scroll turns the wheel with the pointer somewhere: DY notches down, DX to the
// right, the other way when negative.
type Scroll struct {
	Point
	DX        int    `json:"dx,omitempty"`
	DY        int    `json:"dy,omitempty"`
	Modifiers string `json:"modifiers,omitempty"`
}

func (a Scroll) check(f *faults, desktop rfb.Size) {
	f.point("x,y", a.X, a.Y, desktop)
	if a.DX == 0 && a.DY == 0 || abs(a.DX) > maxNotches || abs(a.DY) > maxNotches {
		f.add("dx,dy", fmt.Sprintf("%d,%d", a.DX, a.DY), fmt.Sprintf("must be -%d to %d notches, not both 0", maxNotches, maxNotches))
	}
	f.modifiers(a.Modifiers)
}

// Steps is one press and release of a wheel's button for each notch.
func (a Scroll) Steps() iter.Seq[Step] {
	return held(a.Modifiers, func(yield func(Step) bool) bool {
		if !yield(a.step(0)) {
			return false
		}
		return a.notches(yield, a.DY, wheelUp, wheelDown) && a.notches(yield, a.DX, wheelLeft, wheelRight)
	})
}

func (a Scroll) notches(yield func(Step) bool, n int, negative, positive uint16) bool {
	mask := positive
	if n < 0 {
		mask = negative
	}
	for range abs(n) {
		if !yield(a.step(mask)) || !yield(a.step(0)) {
			return false
		}
	}
	return true
}

func abs(n int) int {
	if n < 0 {
		return -n
	}
	return n
}

// held yields inner's steps with modifiers down around them.
func held(modifiers string, inner func(yield func(Step) bool) bool) iter.Seq[Step] {
	var c chord
	if modifiers != "" {
		c, _ = parseChord(modifiers) // Check has refused what is not
	}
	return func(yield func(Step) bool) {
		c.around(yield, func() bool { return inner(yield) })
	}
}
