// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/jezek/xgb/xproto"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/screen"
)

// nameKeymap compiles keyboard maps; Xvnc itself cannot do without it.
const nameKeymap = "xkbcomp"

// SetKeyboardLayout gives the display another keyboard layout, in the form of
// Options.KeyboardLayout, until it is set again or the desktop ends.
func (d *Desktop) SetKeyboardLayout(ctx context.Context, layout string) error {
	if !keyboardForm.MatchString(layout) {
		return screen.FieldError{Field: "keyboard_layout", Value: layout, Want: `must be up to four XKB layouts such as "us" or "de(nodeadkeys),fr"`}
	}
	if err := d.compileKeymap(ctx, layout); err != nil {
		return fmt.Errorf("set keyboard layout %s: %w", layout, err)
	}
	return nil
}

// compileKeymap runs xkbcomp as a client, which compiles the map and sends it.
// The server must not run it: see execGate.
func (d *Desktop) compileKeymap(ctx context.Context, layout string) error {
	var trouble strings.Builder
	cmd := exec.CommandContext(ctx, d.plan.Keymap.Path, d.plan.Keymap.Args...)
	cmd.Env, cmd.Dir = d.plan.Keymap.Env, d.plan.Options.Home
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(keymapSource(layout)), &trouble, &trouble
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	if err := d.startUnlessStopping(cmd); err != nil {
		return err
	}
	if err := d.launcher.reaper.Wait(cmd); err != nil {
		return fmt.Errorf("%s: %w: %q", nameKeymap, err, cleanLine(trouble.String()))
	}
	return d.view.nameKeymap(layout)
}

// nameKeymap tells other programs what the map was made of, as setxkbmap(1) does.
func (x *xclient) nameKeymap(layout string) error {
	atom, err := x.atom("_XKB_RULES_NAMES")
	if err != nil {
		return err
	}
	layouts, variants := splitLayout(layout)
	value := strings.Join([]string{"evdev", "pc105", layouts, variants, ""}, "\x00") + "\x00"
	return xproto.ChangePropertyChecked(x.conn, xproto.PropModeReplace, x.root, atom, xproto.AtomString, 8,
		uint32(len(value)), []byte(value)).Check()
}

// Layouts whose letters lie elsewhere, from the variables of the rules file
// "evdev" of xkeyboard-config.
var (
	azerty = []string{"be", "fr"}
	qwertz = []string{"al", "ba", "ch", "cz", "de", "hr", "hu", "me", "ro", "rs", "si", "sk"}
)

// keymapSource is what `setxkbmap -print` writes for a layout on a pc105
// keyboard under the rules "evdev".
func keymapSource(layout string) string {
	aliases := "qwerty"
	symbols := "pc"
	for i, part := range strings.Split(layout, ",") {
		name, _, _ := strings.Cut(part, "(")
		symbols += "+" + part
		if i > 0 {
			symbols += fmt.Sprintf(":%d", i+1)
			continue
		}
		switch {
		case slices.Contains(azerty, name):
			aliases = "azerty"
		case slices.Contains(qwertz, name):
			aliases = "qwertz"
		}
	}
	return fmt.Sprintf(`xkb_keymap {
	xkb_keycodes { include "evdev+aliases(%s)" };
	xkb_types { include "complete" };
	xkb_compat { include "complete" };
	xkb_symbols { include "%s+inet(evdev)" };
	xkb_geometry { include "pc(pc105)" };
};
`, aliases, symbols)
}

// splitLayout turns "de(nodeadkeys),us" into XKB's parallel lists "de,us" and
// "nodeadkeys,".
func splitLayout(spec string) (layouts, variants string) {
	var names, kinds []string
	for part := range strings.SplitSeq(spec, ",") {
		name, rest, _ := strings.Cut(part, "(")
		names = append(names, name)
		kinds = append(kinds, strings.TrimSuffix(rest, ")"))
	}
	variants = strings.Join(kinds, ",")
	if strings.Trim(variants, ",") == "" {
		variants = ""
	}
	return strings.Join(names, ","), variants
}
