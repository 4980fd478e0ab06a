// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"os"
	"path/filepath"
	"testing"
)

// focusStolen lets a program of the job come to the front while a person has the screen:
// the page says so, and its button ends the program (threats.md X44).
func focusStolen(t *testing.T, a *agent) {
	// It comes again: what has the keyboard when somebody first looks is no news. Its own
	// time-out is code 5.
	const thief = `while [ ! -e "$HOME/go" ]; do sleep 0.1; done
		while zenity --info --title=Thief --text=hello --timeout=15; [ $? = 5 ]; do sleep 1; done; touch "$HOME/ended"; exec sleep 1000`
	a.must(t, "run", a.job(t, "robbed", `command = "sh"`, `args = ["-c", `+quote(thief)+`]`))
	defer a.botscreen(t, "stop", "--force", "robbed")
	home := filepath.Join(a.dir, "state", "data", "default", "robbed")
	ann, bob := newBrowser(t), newBrowser(t)
	ann.watch(viewInBrowser(t, a, "ann", "robbed"))
	bob.watch(viewInBrowser(t, a, "bob", "robbed"))
	ann.take("a code")
	writeFile(t, filepath.Join(home, "go"), "")
	ann.until("the notice", `document.getElementById("notice-text").textContent.startsWith("zenity (“Thief”) came to the front")`)
	ann.press("notice-action")
	a.eventually("the end of the program", func() bool { _, err := os.Stat(filepath.Join(home, "ended")); return err == nil })
	ann.handBack()
	bob.until("the hand-back", `document.getElementById("holder").innerText === "The agent controls this screen."`)
	if text := bob.text("notice-text"); text != "" {
		t.Errorf("who only watches is told %q", text)
	}
	a.must(t, "stop", "robbed")
	gone(t, a)
}
