// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/coder/websocket"
	"github.com/coder/websocket/wsjson"

	"github.com/botscreen/botscreen/shared/rfb"
)

// endsInWords: a person whose view ends reads why on the page, and can come back where
// that makes sense (rules L5, R2).
func endsInWords(t *testing.T, a *agent) {
	a.must(t, "run", a.job(t, "asked", `consent = true`))
	defer a.botscreen(t, "stop", "--force", "asked")
	ann, bob := newBrowser(t), newBrowser(t)
	ann.watch(viewInBrowser(t, a, "ann", "asked"))
	bob.watch(viewInBrowser(t, a, "bob", "asked"))
	ann.take("first")
	ask := func() {
		t.Helper()
		bob.press("take")
		bob.until("the dialog", `document.activeElement?.id === "take-reason"`)
		bob.typeKeys("mine")
		bob.press("take-confirm")
		bob.until("that the holder was asked", `document.getElementById("notice-text").innerText.includes("has been asked and has until")`)
		ann.until("the question", `document.getElementById("notice-text").innerText.includes("Another person asks for the screen (“mine”)")`)
	}
	ask()
	ann.press("notice-action")
	bob.until("the refusal", `document.getElementById("notice-text").innerText.includes("refused to give up")`)
	ask()
	bob.holding() // ten seconds later: nobody refused
	ann.until("words about the loss", `document.body.dataset.code === "4000" && document.getElementById("over-text").innerText.includes("Another person took the screen over.")`)
	ann.press("over-action")
	ann.connected()
	ann.until("that the other holds", `/^A person \([0-9a-f]{12}\) controls/.test(document.getElementById("holder").innerText)`)

	// The same person at another machine takes the stream along, not the screen.
	again := newBrowser(t)
	again.watch(viewInBrowser(t, a, "bob", "asked"))
	bob.until("words about the other window", `document.body.dataset.code === "4002" && document.getElementById("over-text").innerText.includes("another window")`)
	again.holding()
	again.press("leave")
	again.until("the end", `document.body.dataset.code === "1000" && document.getElementById("over-text").innerText === "You left the screen."`)
	ann.until("the hand-back of who left", `document.getElementById("holder").innerText === "The agent controls this screen."`)
	for _, b := range []*browser{ann, bob, again} {
		b.quiet()
	}

	// Where only the holder watches, the others are let in again by themselves.
	a.must(t, "run", a.job(t, "shut", `watch = "holder"`))
	defer a.botscreen(t, "stop", "--force", "shut")
	carl := newBrowser(t)
	carl.watch(viewInBrowser(t, a, "carl", "shut"))
	a.must(t, "take", "shut")
	carl.until("words about the policy", `document.body.dataset.code === "4003" && document.getElementById("over-text").innerText.includes("comes back at the hand-back")`)
	a.must(t, "release", "shut")
	carl.until("the picture", `document.getElementById("over").hidden && document.getElementById("state").dataset.state === "up"`)
	carl.quiet()
}

// hostileTexts are what somebody writes who wants to be more than text (X32): 200 of
// them.
func hostileTexts() []string {
	payloads := []string{
		`<img src=x onerror="window.pwned=1">`, `<script>window.pwned=1</script>`, `<svg onload=window.pwned=1>`,
		`<iframe srcdoc="<script>parent.pwned=1</script>">`, `<a href="javascript:window.pwned=1">x</a>`, `<b style="position:fixed">x</b>`,
		`"><input autofocus onfocus=window.pwned=1>`, `'-window.pwned=1-'`, `{{constructor.constructor("window.pwned=1")()}}`,
		`${window.pwned=1}`, `<math><mtext></form><form><mglyph><style></math><img src onerror=window.pwned=1>`,
		`</title><script>window.pwned=1</script>`, `<meta http-equiv=refresh content="0;url=//evil.example">`, `<base href=//evil.example>`,
		`<link rel=stylesheet href=//evil.example/x.css>`, `<form action=//evil.example><input name=token>`, `javascript:window.pwned=1`,
		`data:text/html,<script>window.pwned=1</script>`, `<video><source onerror=window.pwned=1></video>`, `<details open ontoggle=window.pwned=1>`,
	}
	wrappers := []string{
		"%s", "a\u202e%s\u202c", "\u2066%s\u2069", "a\r\n%s", "\x1b[2J%s", "\x00%s", "\u200b\ufeff%s\u2028", "The operator says: enter your Nomad token %s", "&lt;%s&#x3e;", "%s\u0300\u0301",
	}
	var all []string
	for _, w := range wrappers {
		for _, p := range payloads {
			all = append(all, fmt.Sprintf(w, p))
		}
	}
	return all
}

// hostileWords: whatever a person writes as the reason stays text on the pages of the
// others.
func hostileWords(t *testing.T, a *agent) {
	a.must(t, "run", a.listenedJob(t, "worded"))
	defer a.botscreen(t, "stop", "--force", "worded")
	b := newBrowser(t)
	b.watch(viewInBrowser(t, a, "ann", "worded"))
	before, err := evaluate[int](b, `(window.seen = [], new MutationObserver(() => window.seen.push(document.getElementById("holder").innerText))
		.observe(document.getElementById("holder"), {childList: true, characterData: true, subtree: true}), document.querySelectorAll("*").length)`)
	if err != nil {
		t.Fatal(err)
	}
	ticket := a.ticket(t, "worded", "--mode", "control")
	conn := speakLease(t, ticket)
	texts := hostileTexts()
	if len(texts) != 200 {
		t.Fatalf("%d texts", len(texts))
	}
	for _, text := range texts {
		conn.say(map[string]string{"op": "take", "reason": text})
		conn.until(true)
		conn.say(map[string]string{"op": "release"})
		conn.until(false)
	}
	b.until("all of them", `window.seen.filter((s) => s.includes("ontoggle")).length >= 10 && document.getElementById("holder").innerText.startsWith("The agent")`)
	seen, err := evaluate[[]string](b, `window.seen`)
	if err != nil {
		t.Fatal(err)
	}
	shown := strings.Join(seen, "\n")
	for _, want := range []string{`<img src=x onerror="window.pwned=1">`, "&lt;", "enter your Nomad token"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the page has not shown %q as text", want)
		}
	}
	for _, bad := range "\x00\x1b\u202e\u2066\u2028\u200b\ufeff" {
		if strings.ContainsRune(shown, bad) {
			t.Errorf("the page has shown %q", bad)
		}
	}
	after, err := evaluate[int](b, `document.querySelectorAll("*").length`)
	if err != nil || after != before {
		t.Errorf("%d elements became %d, %v", before, after, err)
	}
	if pwned, err := evaluate[bool](b, `"pwned" in window`); err != nil || pwned {
		t.Errorf("script ran: %t, %v", pwned, err)
	}
	b.quiet()
	sinksRefused(t, b)
}

// sinksRefused shows that the policy would stop what the page does not do.
func sinksRefused(t *testing.T, b *browser) {
	t.Helper()
	// (What is evaluated from here may use eval: a debugger is above a policy.)
	markup, err := evaluate[bool](b, `(() => { try { document.body.innerHTML = "<img src=x>"; return false; } catch { return true; } })()`)
	if err != nil || !markup {
		t.Errorf("markup was let through: %v", err)
	}
	for name, try := range map[string]string{
		"a script of text":   `{ const s = document.createElement("script"); s.append("window.pwned = 1"); document.head.append(s); s.remove(); }`,
		"a foreign script":   `{ const s = document.createElement("img"); s.src = "https://evil.example/x"; document.head.append(s); s.remove(); }`,
		"a style of text":    `{ const s = document.createElement("style"); s.append("body { display: none }"); document.head.append(s); s.remove(); }`,
		"a foreign endpoint": `fetch("https://evil.example/").catch(() => {})`,
	} {
		n := len(b.refused())
		if _, err := evaluate[bool](b, `(() => { try { `+try+` } catch {} return true; })()`); err != nil {
			t.Fatal(err)
		}
		for deadline := time.Now().Add(10 * time.Second); len(b.refused()) == n && !pwnedEarly(b); time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Errorf("%s: the policy says nothing", name)
				break
			}
		}
	}
	if pwned, err := evaluate[bool](b, `"pwned" in window || getComputedStyle(document.body).display === "none"`); err != nil || pwned {
		t.Errorf("one of them worked: %v", err)
	}
}

func pwnedEarly(b *browser) bool {
	pwned, _ := evaluate[bool](b, `"pwned" in window`)
	return pwned
}

// speaker is a viewer that speaks the lease's protocol and looks at no picture.
type speaker struct {
	t    *testing.T
	conn *websocket.Conn
	told chan bool // whether it holds
}

func speakLease(t *testing.T, m minted) *speaker {
	t.Helper()
	conn := dialListener(t, m)
	s := &speaker{t: t, conn: conn, told: make(chan bool, 1000)}
	frames := make(chan []byte, 1)
	go s.read(frames)
	if _, _, err := rfb.Join(&framed{conn: conn, frames: frames}, rfb.MaxSize); err != nil {
		t.Fatal(err)
	}
	go func() {
		for range frames { // the picture that was not asked for
		}
	}()
	return s
}

func (s *speaker) read(frames chan<- []byte) {
	defer close(frames)
	defer close(s.told)
	for {
		kind, text, err := s.conn.Read(context.Background())
		if err != nil {
			return
		}
		if kind == websocket.MessageBinary {
			frames <- text
			continue
		}
		var m struct {
			Type    string
			Holding bool
		}
		if json.Unmarshal(text, &m) == nil && m.Type == "lease" {
			s.told <- m.Holding
		}
	}
}

func (s *speaker) say(operation any) {
	s.t.Helper()
	if err := wsjson.Write(s.t.Context(), s.conn, operation); err != nil {
		s.t.Fatal(err)
	}
}

func (s *speaker) until(holding bool) {
	s.t.Helper()
	for now := range s.told {
		if now == holding {
			return
		}
	}
	s.t.Fatal("the view ended")
}

// framed is the RFB in a WebSocket's binary frames.
type framed struct {
	conn   *websocket.Conn
	frames <-chan []byte
	rest   []byte
}

func (f *framed) Read(b []byte) (int, error) {
	for len(f.rest) == 0 {
		frame, ok := <-f.frames
		if !ok {
			return 0, context.Canceled
		}
		f.rest = frame
	}
	n := copy(b, f.rest)
	f.rest = f.rest[n:]
	return n, nil
}

func (f *framed) Write(b []byte) (int, error) {
	return len(b), f.conn.Write(context.Background(), websocket.MessageBinary, b)
}
