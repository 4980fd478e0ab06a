// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/input"
	cdppage "github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// browser is a person's browser: a real one, headless, with nothing of another's.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu       sync.Mutex // guards all below
	console  []string   // faults that the page wrote there
	violated []string   // what the page's policy refused
}

// newBrowser starts Chromium until the test ends.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	path, err := exec.LookPath("chromium")
	if err != nil {
		t.Skip("chromium is not on PATH: run `make deps`")
	}
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(path), chromedp.NoSandbox, chromedp.UserDataDir(browserDir(t)), chromedp.WindowSize(1100, 900),
		chromedp.IgnoreCertErrors, chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true))
	ctx, stop := chromedp.NewExecAllocator(t.Context(), options...)
	ctx, cancel := chromedp.NewContext(ctx)
	t.Cleanup(func() { cancel(); stop() })
	b := &browser{t: t, ctx: ctx}
	// The first call starts the browser, and has its life.
	if err := chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, cdppage.AddScriptToEvaluateOnNewDocument, cdppage.AddScriptToEvaluateOnNewDocumentParams{Source: watchPolicy})
		return err
	})); err != nil {
		t.Fatalf("start chromium: %v", err)
	}
	if err := chromedp.Listen(ctx, b.hear); err != nil {
		t.Fatal(err)
	}
	return b
}

// browserDir is a folder for a browser's profile. Its helpers write there for a moment after
// it has been killed.
func browserDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bsb")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		for end := time.Now().Add(10 * time.Second); os.RemoveAll(dir) != nil; {
			if time.Now().After(end) {
				t.Errorf("%s is left", dir)
				return
			}
		}
	})
	return dir
}

// watchPolicy reports what a page's policy refuses, where the test reads it.
const watchPolicy = `document.addEventListener("securitypolicyviolation", (e) =>
	console.error("policy refused: " + e.violatedDirective + " " + e.blockedURI + " " + e.sample));`

func (b *browser) hear(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *runtime.EventConsoleAPICalled:
		if e.Type != runtime.ConsoleAPICalledTypeError && e.Type != runtime.ConsoleAPICalledTypeWarning {
			return
		}
		var words []string
		for _, arg := range e.Args {
			words = append(words, string(arg.Value))
		}
		text := strings.Join(words, " ")
		if strings.Contains(text, "policy refused: ") {
			b.violated = append(b.violated, text)
		}
		b.console = append(b.console, text)
	case *runtime.EventExceptionThrown:
		b.console = append(b.console, fmt.Sprintf("exception: %v", e.ExceptionDetails))
	}
}

// actionLimit is what anything in the browser may take.
const actionLimit = 60 * time.Second

func (b *browser) do(what string, steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, actionLimit)
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.fail(what, err)
	}
}

func (b *browser) fail(what string, err error) {
	b.t.Helper()
	text := b.words()
	b.mu.Lock()
	defer b.mu.Unlock()
	b.t.Fatalf("%s: %v\nthe page says: %s\nits console: %q", what, err, text, b.console)
}

// evaluate gives the value of an expression in the page.
func evaluate[T any](b *browser, expression string) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, actionLimit)
	defer cancel()
	return chromedp.Run(ctx, chromedp.Evaluate[T](expression))
}

// words is the page's text, for the failure of a test.
func (b *browser) words() string {
	text, _ := evaluate[string](b, `document.body.innerText`)
	return text
}

// until waits until an expression is true in the page, which may be another one by then.
func (b *browser) until(what, expression string) {
	b.t.Helper()
	for deadline := time.Now().Add(actionLimit); ; time.Sleep(50 * time.Millisecond) {
		ok, err := evaluate[bool](b, "Boolean("+expression+")")
		if ok {
			return
		}
		if time.Now().After(deadline) {
			b.fail("wait for "+what, err)
		}
	}
}

// text is what an element of the page says.
func (b *browser) text(id string) string {
	b.t.Helper()
	text, err := evaluate[string](b, `document.getElementById(`+quote(id)+`).innerText`)
	if err != nil {
		b.fail("read #"+id, err)
	}
	return text
}

func quote(text string) string {
	out, _ := json.Marshal(text)
	return string(out)
}

// quiet checks that the page did nothing that its policy refuses, and no error.
func (b *browser) quiet() {
	b.t.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.violated) > 0 {
		b.t.Errorf("the page's policy was violated: %q", b.violated)
	}
	for _, text := range b.console {
		if strings.HasPrefix(text, "exception: ") {
			b.t.Errorf("the page threw: %s", text)
		}
	}
}

// refused is what the page's policy has refused so far.
func (b *browser) refused() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.violated)
}

// helper is `botscreen view` of one person.
type helper struct {
	cmd    *exec.Cmd
	errs   *bytes.Buffer
	said   struct{ Screen, File, Mode string }
	ended  chan struct{}
	person string // whose state directory it uses
}

// viewInBrowser runs `botscreen view` for a person until the test ends.
func viewInBrowser(t *testing.T, a *agent, person, profile string, flags ...string) *helper {
	t.Helper()
	h := &helper{errs: &bytes.Buffer{}, ended: make(chan struct{}), person: filepath.Join(a.dir, "state-of-"+person)}
	h.cmd = exec.Command(binary(t, "botscreen"), append([]string{"view", "--json", "--no-open", profile}, flags...)...)
	h.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + a.dir, "TMPDIR=" + a.dir, "XDG_STATE_HOME=" + h.person, "NOMAD_ADDR=" + a.addr, "NOMAD_TOKEN=" + a.token}
	h.cmd.Stderr = h.errs
	stdout, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	err = json.NewDecoder(stdout).Decode(&h.said)
	go func() { _ = h.cmd.Wait(); close(h.ended) }()
	t.Cleanup(h.end)
	if err != nil {
		<-h.ended
		t.Fatalf("view: %v\n%s", err, h.errs)
	}
	return h
}

func (h *helper) end() { endWithin(10*time.Second, h.cmd.Process, syscall.SIGTERM, h.ended) }

// open goes to an address. What it serves may be signed by nobody.
func (b *browser) open(address string) {
	b.t.Helper()
	b.do("open the page", chromedp.Navigate(address))
}

// watch opens a person's page and waits for the picture.
func (b *browser) watch(h *helper) {
	b.t.Helper()
	b.open("file://" + h.said.File)
	b.connected()
}

// connected waits for the picture and for who holds.
func (b *browser) connected() {
	b.t.Helper()
	b.until("the picture", `document.getElementById("state")?.dataset.state === "up" && document.querySelector("#picture canvas")?.width > 0 && document.getElementById("holder").innerText !== ""`)
}

// press clicks the middle of an element, as a person would.
func (b *browser) press(id string) {
	b.t.Helper()
	b.until("#"+id, `(() => { const e = document.getElementById(`+quote(id)+`); return e && !e.disabled && e.getClientRects().length; })()`)
	at, err := evaluate[struct{ X, Y float64 }](b, `(() => { const r = document.getElementById(`+quote(id)+`).getBoundingClientRect();
		return {X: r.left + r.width / 2, Y: r.top + r.height / 2}; })()`)
	if err != nil {
		b.fail("find #"+id, err)
	}
	b.do("press #"+id, chromedp.MouseClickXY(at.X, at.Y))
}

// take presses the buttons that take the screen over.
func (b *browser) take(reason string) {
	b.t.Helper()
	b.press("take")
	b.until("the dialog", `document.activeElement?.id === "take-reason"`)
	b.typeKeys(reason)
	b.press("take-confirm")
	b.holding()
}

func (b *browser) holding() {
	b.t.Helper()
	b.until("control", `document.body.dataset.holding === "true"`)
}

func (b *browser) handBack() {
	b.t.Helper()
	b.press("release")
	b.until("the hand-back", `document.body.dataset.holding === "false" && document.getElementById("holder").innerText.startsWith("The agent")`)
}

// click clicks into the picture at a point of the screen.
func (b *browser) click(x, y int) {
	b.t.Helper()
	box, err := evaluate[struct{ Left, Top, Scale float64 }](b, `(() => { const c = document.querySelector("#picture canvas"), r = c.getBoundingClientRect();
		return {Left: r.left, Top: r.top, Scale: r.width / c.width}; })()`)
	if err != nil {
		b.fail("find the picture", err)
	}
	b.do("click", chromedp.MouseClickXY(box.Left+float64(x)*box.Scale, box.Top+float64(y)*box.Scale))
}

// typeKeys presses the keys of a text on a German keyboard, wherever the focus is.
func (b *browser) typeKeys(text string) {
	b.t.Helper()
	for _, letter := range text {
		press := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: string(letter), Text: string(letter), Code: germanCode(letter)}
		release := press
		release.Type, release.Text = input.DispatchKeyEventTypeKeyUp, ""
		b.do("type", chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
			_, err := cdp.Call(ctx, tab, input.DispatchKeyEvent, press)
			if err == nil {
				_, err = cdp.Call(ctx, tab, input.DispatchKeyEvent, release)
			}
			return err
		}))
	}
}

// insert enters text as a touch keyboard or an input method does: without keys.
func (b *browser) insert(text string) {
	b.t.Helper()
	b.do("insert text", chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, input.InsertText, input.InsertTextParams{Text: text})
		return err
	}))
}

// sticky presses a button of the panel of keys.
func (b *browser) sticky(name string) {
	b.t.Helper()
	pressed, err := evaluate[bool](b, `(() => { const e = [...document.querySelectorAll("#keyboard button")].find((e) => e.textContent === `+quote(name)+`); e.click(); return !e.disabled; })()`)
	if err != nil || !pressed {
		b.fail("press "+name, err)
	}
}

// germanCode is the place of a letter's key, as UI Events names it.
func germanCode(letter rune) string {
	switch letter {
	case 'ü':
		return "BracketLeft"
	case 'z':
		return "KeyY"
	case 'y':
		return "KeyZ"
	case '-':
		return "Slash"
	case ' ':
		return "Space"
	}
	if letter >= '0' && letter <= '9' {
		return "Digit" + string(letter)
	}
	return "Key" + strings.ToUpper(string(letter))
}
