// SPDX-License-Identifier: MPL-2.0

package action

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/shared/rfb"
	"github.com/botscreen/botscreen/shared/screen"
)

var desktop = rfb.Size{WidthPx: 800, HeightPx: 600}

// told writes an action's messages in words.
func told(a Action) string {
	var out []string
	for step := range a.Steps() {
		if step.Message == nil {
			out = append(out, fmt.Sprint("wait ", step.Pause))
			continue
		}
		if k, ok := step.Message.Key(); ok {
			out = append(out, fmt.Sprintf("%s%x", map[bool]string{true: "+", false: "-"}[k.Down], k.Keysym))
		}
		if p, ok := step.Message.Pointer(); ok {
			out = append(out, fmt.Sprintf("%d,%d:%x", p.X, p.Y, p.Buttons))
		}
	}
	return strings.Join(out, " ")
}

func TestSteps(t *testing.T) {
	for _, test := range []struct {
		a    Action
		want string
	}{
		{Move{Point{1, 2}}, "1,2:0"},
		{Click{Point: Point{3, 4}}, "3,4:0 3,4:1 3,4:0"},
		{Click{Point: Point{3, 4}, Count: 2, Button: Right, Modifiers: "ctrl"}, "+ffe3 3,4:0 3,4:4 3,4:0 3,4:4 3,4:0 -ffe3"},
		{Scroll{Point: Point{5, 6}, DY: 2, DX: -1}, "5,6:0 5,6:10 5,6:0 5,6:10 5,6:0 5,6:20 5,6:0"},
		{Scroll{Point: Point{5, 6}, DY: -1}, "5,6:0 5,6:8 5,6:0"},
		{Scroll{Point: Point{5, 6}, DX: 1}, "5,6:0 5,6:40 5,6:0"},
		{Key{Keys: "ctrl+shift+t"}, "+ffe3 +ffe1 +54 -54 -ffe1 -ffe3"},
		{Key{Keys: "Return", Count: 2}, "+ff0d -ff0d +ff0d -ff0d"},
		{Key{Keys: "super"}, "+ffeb -ffeb"},
		{Type{"aÄ\n\t"}, "+61 -61 +c4 -c4 +ff0d -ff0d +ff09 -ff09"},
		{Type{"€漢😀"}, "+10020ac -10020ac +1006f22 -1006f22 +101f600 -101f600"},
		{Wait{250}, "wait 250ms"},
		{Drag{Path: []Point{{0, 0}, {80, 8}}}, "0,0:0 0,0:1 10,1:1 20,2:1 30,3:1 40,4:1 50,5:1 60,6:1 70,7:1 80,8:1 80,8:0"},
	} {
		if err := (List{test.a}).Check(desktop); err != nil {
			t.Errorf("%+v: %v", test.a, err)
		}
		if got := told(test.a); got != test.want {
			t.Errorf("%+v:\n got %s\nwant %s", test.a, got, test.want)
		}
	}
}

// Every action, cut off anywhere, has pressed no more than it says; run to its end
// it has released all.
func TestNothingStaysDown(t *testing.T) {
	for _, a := range []Action{
		Click{Point: Point{1, 1}, Count: 3, Modifiers: "ctrl+alt"}, Drag{Path: []Point{{1, 1}, {2, 2}, {3, 3}}, Modifiers: "shift"},
		Scroll{Point: Point{1, 1}, DX: 2, DY: -2, Modifiers: "ctrl"}, Key{Keys: "ctrl+alt+Delete", Count: 3}, Type{"Hello, wörld\n"},
	} {
		keys, buttons := map[uint32]bool{}, uint16(0)
		steps := 0
		for step := range a.Steps() {
			steps++
			if k, ok := step.Message.Key(); ok && k.Down {
				keys[k.Keysym] = true
			} else if ok {
				delete(keys, k.Keysym)
			} else if p, ok := step.Message.Pointer(); ok {
				buttons = p.Buttons
			}
		}
		if len(keys) > 0 || buttons != 0 {
			t.Errorf("%+v leaves %v %x down", a, keys, buttons)
		}
		for stop := range steps {
			n := 0
			for range a.Steps() {
				if n++; n > stop {
					break
				}
			}
			if n != stop+1 {
				t.Errorf("%+v goes on after its caller stopped", a)
			}
		}
	}
}

func TestChords(t *testing.T) {
	for text, want := range map[string]string{
		"a": "+61 -61", "A": "+41 -41", "ctrl+C": "+ffe3 +63 -63 -ffe3", "shift+a": "+ffe1 +41 -41 -ffe1",
		"shift+1": "+ffe1 +21 -21 -ffe1", "shift+Tab": "+ffe1 +ff09 -ff09 -ffe1", "altgr+q": "+fe03 +71 -71 -fe03",
		"ctrl++": "+ffe3 +2b -2b -ffe3", "+": "+2b -2b", "ctrl+plus": "+ffe3 +2b -2b -ffe3", "F5": "+ffc2 -ffc2",
		"alt+f24": "+ffe9 +ffd5 -ffd5 -ffe9", "U20AC": "+10020ac -10020ac", "Page_Up": "+ff55 -ff55",
		"Control_L+Alt_L+Delete": "+ffe3 +ffe9 +ffff -ffff -ffe9 -ffe3", "f": "+66 -66", "u": "+75 -75", "ß": "+df -df",
	} {
		if err := (List{Key{Keys: text}}).Check(desktop); err != nil {
			t.Errorf("%q: %v", text, err)
		} else if got := told(Key{Keys: text}); got != want {
			t.Errorf("%q: got %s, want %s", text, got, want)
		}
	}
	for _, text := range []string{"", "ctrl+", "a+b", "F25", "nokey", "ctrl+\x01", "UD800", "u0000", "++ +", "\xff", strings.Repeat("ctrl+", 20) + "a"} {
		if err := (List{Key{Keys: text}}).Check(desktop); err == nil {
			t.Errorf("%q is taken: %s", text, told(Key{Keys: text}))
		}
	}
}

// Validation reports all faults at once, each with its field.
func TestCheckReportsAll(t *testing.T) {
	bad := List{
		Move{Point{800, 0}}, Click{Point: Point{-1, 0}, Button: "fourth", Count: 4, Modifiers: "a"}, Drag{Path: []Point{{1, 1}}},
		Scroll{Point: Point{0, 0}}, Key{Keys: "x+y", Count: 1000}, Type{"a\x07"}, Type{""}, Wait{-1}, Type{"\xff"}, Wait{59000}, Wait{2000},
		Drag{Path: []Point{{1, 1}, {1, 600}}, Button: "x", Modifiers: "ctrl+q"}, Scroll{Point: Point{0, 600}, DY: 101, Modifiers: "?"},
	}
	err := bad.Check(desktop)
	for _, want := range []string{
		`actions[0].x,y: "800,0" lies outside of the 800x600 screen`, "actions[1].x,y", "actions[1].button", "actions[1].count", "actions[1].modifiers",
		"actions[2].path", "actions[3].dx,dy", "actions[4].keys", "actions[4].count", "actions[5].text", "actions[6].text", "actions[7].ms",
		"actions[8].text", "actions: wait longer", "actions[11].path[1]", "actions[11].button", "actions[11].modifiers", "actions[12].x,y", "actions[12].dx,dy",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in %v", want, err)
		}
	}
	var faults screen.Faults
	if !errors.As(err, &faults) {
		t.Errorf("%T", err)
	}
	if err := (List{Move{Point{5000, 5000}}}).Check(rfb.Size{}); err != nil {
		t.Errorf("a size that is not known yet: %v", err)
	}
	if err := (List{Move{Point{1 << 16, 0}}}).Check(rfb.Size{}); err == nil {
		t.Error("beyond what RFB can say")
	}
	if err := (List{Type{strings.Repeat("a", MaxText)}, Type{"b"}}).Check(desktop); err == nil {
		t.Error("too much text")
	}
	if err := make(List, MaxActions+1).Check(desktop); err == nil {
		t.Error("too many actions")
	}
}

func TestJSON(t *testing.T) {
	const text = `[{"action":"move","x":1,"y":2},{"action":"click","x":3,"y":4,"button":"right","count":2,"modifiers":"ctrl"},` +
		`{"action":"drag","path":[{"x":1,"y":1},{"x":2,"y":2}]},{"action":"scroll","x":5,"y":6,"dy":-3},` +
		`{"action":"key","keys":"ctrl+a"},{"action":"type","text":"ä"},{"action":"wait","ms":10}]`
	var l List
	if err := json.Unmarshal([]byte(text), &l); err != nil {
		t.Fatal(err)
	}
	want := List{
		Move{Point{1, 2}}, Click{Point{3, 4}, Right, 2, "ctrl"}, Drag{Path: []Point{{1, 1}, {2, 2}}},
		Scroll{Point: Point{5, 6}, DY: -3}, Key{Keys: "ctrl+a"}, Type{"ä"}, Wait{10},
	}
	if !reflect.DeepEqual(l, want) {
		t.Errorf("%+v", l)
	}
	if back, err := json.Marshal(l); err != nil || string(back) != text {
		t.Errorf("%s, %v", back, err)
	}
	err := json.Unmarshal([]byte(`[{"action":"fly"},{"x":1},3,{"action":"move","x":"a"},{"action":"type","text":"a","x":1}]`), &l)
	for i := range 5 {
		if err == nil || !strings.Contains(err.Error(), fmt.Sprintf("actions[%d]", i)) {
			t.Errorf("fault %d is missing in %v", i, err)
		}
	}
	if err := json.Unmarshal([]byte("["+strings.Repeat("{},", MaxActions)+"{}]"), &l); err == nil {
		t.Error("too many actions")
	}
}

// What is read and passes its check is written and read as the same, and its steps
// are whole messages.
func FuzzList(f *testing.F) {
	f.Add([]byte(`[{"action":"click","x":3,"y":4,"count":2,"modifiers":"ctrl+shift"}]`))
	f.Add([]byte(`[{"action":"key","keys":"ctrl++"},{"action":"type","text":"ä\n"},{"action":"wait"}]`))
	f.Add([]byte(`[{"action":"drag","path":[{"x":1,"y":1},{"x":2,"y":2}]},{"action":"scroll","dy":1}]`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var l List
		if json.Unmarshal(text, &l) != nil || l.Check(desktop) != nil {
			return
		}
		again, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		var back List
		if err := json.Unmarshal(again, &back); err != nil || !reflect.DeepEqual(l, back) {
			t.Fatalf("%s: %v", again, err)
		}
		for _, a := range l {
			for step := range a.Steps() {
				if step.Message == nil {
					continue
				}
				if _, rest, err := (rfb.Framing{}).Cut(step.Message); err != nil || len(rest) > 0 || !step.Message.Input() {
					t.Fatalf("%x: %v", step.Message, err)
				}
			}
		}
	})
}
