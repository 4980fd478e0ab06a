// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"context"
	"errors"
	"fmt"
	"image"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/nomadjob"
	"github.com/botscreen/botscreen/shared/relay/action"
)

// passwordField is a program on the desktop that asks for a password in a field of its
// own and writes what was in it once its button was clicked.
const passwordField = `zenity --password --title=Sign-in --width=400 --height=200 >"$HOME/typed.tmp"; mv "$HOME/typed.tmp" "$HOME/typed"; exec sleep 1000`

// asAgent calls the screen the way its agent does.
func (a *agent) asAgent(t *testing.T, profile string) *control.Client {
	t.Helper()
	s, err := nomadjob.Find(t.Context(), a.client(), "", profile)
	if err != nil {
		t.Fatal(err)
	}
	client := control.NewClient(func(ctx context.Context) (net.Conn, error) {
		conn, err := nomadjob.Tunnel(context.WithoutCancel(ctx), a.client(), s, control.CommandAgent)
		if err != nil {
			return nil, err
		}
		if err := control.OpenTunnel(ctx, conn, control.Hello{}); err != nil {
			return nil, errors.Join(err, conn.Close())
		}
		return conn, nil
	})
	t.Cleanup(client.Close)
	return client
}

// windowOn waits for a window by its title, until that has found its place, and gives
// where it is.
func (a *agent) windowOn(t *testing.T, profile, title string) image.Rectangle {
	t.Helper()
	var at image.Rectangle
	a.eventually("the window "+title, func() bool {
		r := a.botscreen(t, "exec", "-T", "--gui", profile, "xwininfo", "-name", title)
		var x, y, w, h int
		for line := range strings.Lines(r.stdout) {
			for format, into := range map[string]*int{
				"Absolute upper-left X: %d": &x, "Absolute upper-left Y: %d": &y, "Width: %d": &w, "Height: %d": &h,
			} {
				_, _ = fmt.Sscanf(strings.TrimSpace(line), format, into)
			}
		}
		last := at
		at = image.Rect(x, y, x+w, y+h)
		return w > 50 && at == last && strings.Contains(r.stdout, "IsViewable")
	})
	return at
}

// takenOverInBrowsers is the heart of it: two people watch in real browsers, one takes
// the screen over and types a password into a real text field, while the other types and
// the agent clicks in vain; after the hand-back the agent's click arrives.
func takenOverInBrowsers(t *testing.T, a *agent) {
	a.must(t, "run", a.job(t, "webbed", `command = "sh"`, `args = ["-c", `+quote(passwordField)+`]`))
	defer a.botscreen(t, "stop", "--force", "webbed")
	window := a.windowOn(t, "webbed", "Sign-in")
	bot := a.asAgent(t, "webbed")
	before, err := bot.Lease(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	click := func() (control.InputAnswer, error) {
		now, err := bot.Lease(t.Context())
		if err != nil {
			return control.InputAnswer{}, err
		}
		// The button at the right below the field.
		return bot.Input(t.Context(), control.InputRequest{Epoch: now.Epoch, Actions: action.List{action.Click{Point: action.Point{X: window.Max.X - 50, Y: window.Max.Y - 24}}}})
	}

	ann, bob := newBrowser(t), newBrowser(t)
	ann.watch(viewInBrowser(t, a, "ann", "webbed"))
	bob.watch(viewInBrowser(t, a, "bob", "webbed"))
	for _, b := range []*browser{ann, bob} {
		if text := b.text("holder"); text != "The agent controls this screen." {
			t.Errorf("before the takeover the page says %q", text)
		}
		if !strings.Contains(b.text("warning"), "can read what you type") || b.text("name") != "webbed" {
			t.Errorf("the page of %q says %q", b.text("name"), b.text("warning"))
		}
	}
	for _, b := range []*browser{ann, bob} {
		b.accessible("watching")
	}
	if _, err := bot.Ask(t.Context(), control.AskRequest{Reason: "the bank's <b>code</b>"}); err != nil {
		t.Fatal(err)
	}
	ann.until("what the agent asks for", `document.getElementById("wanted").innerText === "The agent asks for a person: “the bank's <b>code</b>”"`)
	ann.press("take")
	ann.until("the dialog", `document.activeElement?.id === "take-reason"`)
	ann.accessible("about to take over")
	ann.do("leave the dialog", escape)
	ann.take("a password")
	ann.until("that nobody is asked for", `document.getElementById("wanted").hidden`)
	ann.accessible("in control")
	ann.until("the words", `document.getElementById("holder").innerText.includes("You control this screen since") && document.getElementById("holder").innerText.includes("a password")`)
	bob.until("the words of the other", `/^A person \([0-9a-f]{12}\) controls/.test(document.getElementById("holder").innerText)`)

	bob.click(window.Min.X+window.Dx()/2, window.Min.Y+window.Dy()/2)
	bob.typeKeys("intruder")
	// The clipboard first: a program gets it some time after its Ctrl+V.
	ann.press("paste")
	ann.until("the dialog", `document.activeElement?.id === "paste-text"`)
	ann.insert("π")
	ann.press("paste-clipboard")
	ann.until("that the text was sent", `document.activeElement?.tagName === "CANVAS"`)
	ann.sticky("Ctrl") // which stays down until it is pressed again
	ann.typeKeys("v")
	ann.sticky("Ctrl")
	ann.typeKeys("Grün") // on a German keyboard, before a desktop that has an American one (R13)
	ann.press("touch")
	ann.insert("-7")
	ann.press("touch")
	ann.press("paste")
	ann.until("the dialog", `document.activeElement?.id === "paste-text"`)
	ann.insert("ä€漢")
	ann.press("paste-type")
	ann.until("that the text was typed", `document.activeElement?.tagName === "CANVAS"`)
	bob.typeKeys("again")
	if answer, err := click(); control.KindOf(err) != control.HumanHasControl {
		t.Errorf("the agent's click while a person has control: %+v, %v", answer, err)
	}
	typed := filepath.Join(a.dir, "state", "data", "default", "webbed", "typed")
	if _, err := os.Stat(typed); err == nil {
		t.Fatal("the field was left before anybody clicked its button")
	}
	ann.handBack()
	after, err := click()
	if err != nil || after.Epoch != before.Epoch+2 {
		t.Fatalf("the agent's click after the hand-back: %+v, %v, want epoch %d", after, err, before.Epoch+2)
	}
	a.eventually("the effect of the agent's click", func() bool { _, err := os.Stat(typed); return err == nil })
	// Where the pasted letter stands is the program's affair.
	if text, err := os.ReadFile(typed); err != nil || strings.Count(string(text), "π") != 1 || strings.Replace(string(text), "π", "", 1) != "Grün-7ä€漢\n" {
		t.Errorf("the field held %q, %v", text, err)
	}
	ann.quiet()
	bob.quiet()
	a.must(t, "stop", "webbed")
	ann.until("the end of the screen", `document.body.dataset.code === "4001"`)
	gone(t, a)
}
