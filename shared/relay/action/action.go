// SPDX-License-Identifier: MPL-2.0

// Package action is what an agent does on a screen: the actions as they are
// written in JSON, and the RFB messages each one is made of.
package action

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/botscreen/botscreen/shared/rfb"
	"github.com/botscreen/botscreen/shared/screen"
)

// Bounds of one call (threats.md X34).
const (
	MaxActions = 1000
	MaxText    = 64 << 10 // bytes, in all
	MaxWait    = 60 * time.Second
	maxClicks  = 3
	maxNotches = 100
	maxRepeat  = 100
	maxPath    = 100
)

// Step is one message to the screen and the pause after it.
type Step struct {
	Message rfb.Message // nil: only the pause
	Pause   time.Duration
}

// Action is one thing an agent does. Whatever it presses it releases again.
type Action interface {
	// Steps are the messages it is made of. The action must have passed Check.
	Steps() iter.Seq[Step]

	check(faults *faults, desktop rfb.Size)
}

// List is what one call does, in order.
type List []Action

// Check reports all that is wrong with the list at once, as screen.Faults: against
// a desktop of this size, or of any size when that is zero.
func (l List) Check(desktop rfb.Size) error {
	var f faults
	if len(l) > MaxActions {
		f.add("actions", strconv.Itoa(len(l)), fmt.Sprintf("are more than %d", MaxActions))
		return f.Err()
	}
	var text int
	var wait time.Duration
	for i, a := range l {
		f.at = fmt.Sprintf("actions[%d]", i)
		a.check(&f, desktop)
		switch a := a.(type) {
		case Type:
			text += len(a.Text)
		case Wait:
			wait += min(a.Duration(), MaxWait+1)
		}
	}
	f.at = ""
	if text > MaxText {
		f.add("actions", strconv.Itoa(text), fmt.Sprintf("type more than %d bytes", MaxText))
	}
	if wait > MaxWait {
		f.add("actions", "", fmt.Sprintf("wait longer than %s", MaxWait))
	}
	return f.Err()
}

// faults collects under the name of the action being checked.
type faults struct {
	screen.Faults
	at string
}

func (f *faults) add(field, value, want string) {
	if f.at != "" {
		field = f.at + "." + field
	}
	f.Add(field, value, want)
}

// point checks that a place lies on the desktop, and within what RFB can say.
func (f *faults) point(field string, x, y int, desktop rfb.Size) {
	if desktop == (rfb.Size{}) {
		desktop = rfb.Size{WidthPx: 1 << 16, HeightPx: 1 << 16}
	}
	if x < 0 || y < 0 || x >= desktop.WidthPx || y >= desktop.HeightPx {
		f.add(field, fmt.Sprintf("%d,%d", x, y), fmt.Sprintf("lies outside of the %s screen", desktop))
	}
}

func (f *faults) count(field string, n, most int) {
	if n < 0 || n > most {
		f.add(field, strconv.Itoa(n), fmt.Sprintf("must be 1 to %d", most))
	}
}

func (f *faults) chord(field, text string) {
	if _, err := parseChord(text); err != nil {
		f.add(field, text, err.Error())
	}
}

func (f *faults) modifiers(text string) {
	if text == "" {
		return
	}
	if keys, err := parseChord(text); err != nil {
		f.add("modifiers", text, err.Error())
	} else if keys.key != 0 {
		f.add("modifiers", text, "must name only ctrl, shift, alt, super, meta, altgr")
	}
}

// UnmarshalJSON reads an array of objects such as {"action": "move", "x": 1, "y": 2}.
// All faults of form are reported at once, as screen.Faults; Check finds the others.
func (l *List) UnmarshalJSON(text []byte) error {
	var parts []json.RawMessage
	if err := json.Unmarshal(text, &parts); err != nil {
		return err
	}
	if len(parts) > MaxActions {
		return screen.Faults{{Field: "actions", Value: strconv.Itoa(len(parts)), Want: fmt.Sprintf("are more than %d", MaxActions)}}
	}
	var f faults
	list := make(List, 0, len(parts))
	for i, part := range parts {
		f.at = fmt.Sprintf("actions[%d]", i)
		if a := decode(&f, part); a != nil {
			list = append(list, a)
		}
	}
	if err := f.Err(); err != nil {
		return err
	}
	*l = list
	return nil
}

// MarshalJSON writes what UnmarshalJSON reads.
func (l List) MarshalJSON() ([]byte, error) {
	parts := make([]any, len(l))
	for i, a := range l {
		switch a := a.(type) {
		case Move:
			parts[i] = named[Move]{"move", a}
		case Click:
			parts[i] = named[Click]{"click", a}
		case Drag:
			parts[i] = named[Drag]{"drag", a}
		case Scroll:
			parts[i] = named[Scroll]{"scroll", a}
		case Key:
			parts[i] = named[Key]{"key", a}
		case Type:
			parts[i] = named[Type]{"type", a}
		case Wait:
			parts[i] = named[Wait]{"wait", a}
		}
	}
	return json.Marshal(parts)
}

// named writes an action with its name beside its fields.
type named[A Action] struct {
	name   string
	action A
}

func (n named[A]) MarshalJSON() ([]byte, error) {
	fields, err := json.Marshal(n.action)
	if err != nil || len(fields) == len("{}") {
		return []byte(`{"action":"` + n.name + `"}`), err
	}
	return append([]byte(`{"action":"`+n.name+`",`), fields[1:]...), nil
}

// decode is strict: a field that an action does not have is a fault, because what
// was meant by it would not be done.
func decode(f *faults, text []byte) Action {
	var fields map[string]json.RawMessage
	var name string
	if json.Unmarshal(text, &fields) != nil || json.Unmarshal(fields["action"], &name) != nil {
		f.add("action", "", "must be an object whose \"action\" is a text")
		return nil
	}
	delete(fields, "action")
	switch name {
	case "move":
		return decodeAs[Move](f, fields)
	case "click":
		return decodeAs[Click](f, fields)
	case "drag":
		return decodeAs[Drag](f, fields)
	case "scroll":
		return decodeAs[Scroll](f, fields)
	case "key":
		return decodeAs[Key](f, fields)
	case "type":
		return decodeAs[Type](f, fields)
	case "wait":
		return decodeAs[Wait](f, fields)
	default:
		f.add("action", name, "is not one of move, click, drag, scroll, key, type, wait")
		return nil
	}
}

func decodeAs[A Action](f *faults, fields map[string]json.RawMessage) Action {
	text, err := json.Marshal(fields)
	var a A
	if err == nil {
		d := json.NewDecoder(bytes.NewReader(text))
		d.DisallowUnknownFields()
		err = d.Decode(&a)
	}
	if err != nil {
		f.add("fields", "", "cannot be read: "+err.Error())
		return nil
	}
	return a
}

// Type enters text, as if typed. Any Unicode text goes; a line feed is Return, a tab
// is Tab, and there are no other control characters.
type Type struct {
	Text string `json:"text"`
}

func (a Type) check(f *faults, _ rfb.Size) {
	if a.Text == "" {
		f.add("text", "", "must not be empty")
	}
	if !utf8.ValidString(a.Text) {
		f.add("text", "", "must be UTF-8")
		return
	}
	for _, r := range a.Text {
		if keysymOf(r) == 0 {
			f.add("text", string(r), "is a control character; only line feed and tab can be typed")
			return
		}
	}
}

// Steps presses and releases one key per character.
func (a Type) Steps() iter.Seq[Step] {
	return func(yield func(Step) bool) {
		for _, r := range a.Text {
			if !tap(yield, keysymOf(r)) {
				return
			}
		}
	}
}

// Wait does nothing for a while.
type Wait struct {
	MS int `json:"ms"`
}

// Duration is how long.
func (a Wait) Duration() time.Duration { return time.Duration(a.MS) * time.Millisecond }

func (a Wait) check(f *faults, _ rfb.Size) {
	if a.MS < 0 || a.MS > int(MaxWait/time.Millisecond) {
		f.add("ms", strconv.Itoa(a.MS), fmt.Sprintf("must be 0 to %d", MaxWait/time.Millisecond))
	}
}

// Steps is the pause.
func (a Wait) Steps() iter.Seq[Step] {
	return func(yield func(Step) bool) { yield(Step{Pause: a.Duration()}) }
}
