// SPDX-License-Identifier: MPL-2.0

package toolbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"image/png"
	"net"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/botscreen/botscreen/shared/cdp"
	"github.com/botscreen/botscreen/shared/cdp/cdptest"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/lease"
)

// browsers lets a desk have one, a real one, and cuts its clients as a supervisor does.
type browsers struct {
	*desk
	mux *cdp.Mux

	cutting sync.Mutex // guards below
	conns   []net.Conn
	opened  []control.BrowserRequest
}

func (b *browsers) OpenBrowser(ctx context.Context, _ controlserver.Caller, req control.BrowserRequest) (control.BrowserAnswer, error) {
	b.mu.Lock()
	err := b.admit(req.Epoch)
	b.mu.Unlock()
	if err == nil {
		err = b.mux.Call(ctx, "", "Target.createTarget", map[string]string{"url": req.URL}, nil)
	}
	b.cutting.Lock()
	defer b.cutting.Unlock()
	b.opened = append(b.opened, req)
	return control.BrowserAnswer{Epoch: req.Epoch}, err
}

func (b *browsers) CloseBrowser(ctx context.Context, _ controlserver.Caller) error {
	return b.mux.Call(ctx, "", "Browser.close", nil, nil)
}

// A call that a backend cannot do does not exist.
var (
	_ controlserver.Opener    = (*browsers)(nil)
	_ controlserver.Browsable = (*browsers)(nil)
)

func (b *browsers) Browse(context.Context, controlserver.Caller) (controlserver.Carrier, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b, b.admit(b.lease.Epoch)
}

func (b *browsers) Carry(conn net.Conn) {
	b.cutting.Lock()
	b.conns = append(b.conns, conn)
	b.cutting.Unlock()
	_ = b.mux.Serve(conn)
}

func (b *browsers) Drop() {}

// take and giveBack change hands.
func (b *browsers) take() {
	b.cutting.Lock()
	for _, conn := range b.conns {
		_ = conn.Close()
	}
	b.conns = nil
	b.cutting.Unlock()
	b.change(lease.Human)
}

func (b *browsers) giveBack() { b.change(lease.Agent) }

// form is a page with what the tools have to find on it.
const form = `<!doctype html><title>The form</title><h1>Order %s</h1><p>Some <b>bold</b> words` + "\u202e" + `.
<form action="/sent"><label>Name <input name="name" value="old"></label><label>Secret <input name="secret" type="password"></label>
<select name="size" aria-label="Size"><option value="s">Small</option><option value="l">Large</option></select>
<label><input type="checkbox" name="gift" value="yes"> A gift</label><button>Send</button></form>
<a href="/sent?by=link" style="position:absolute;top:3000px">Far below</a>
<button id="hidden" style="position:absolute;top:400px;left:10px">Covered</button><div style="position:absolute;top:380px;left:0;width:300px;height:100px;background:red">lid</div>`

func newBrowsingModel(t *testing.T) (m *model, b *browsers, site *httptest.Server) {
	t.Helper()
	mux := cdp.New(cdptest.Chromium(t))
	t.Cleanup(func() { _ = mux.Close() })
	site = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "text/html; charset=utf-8")
		_, _ = fmt.Fprintf(w, form, r.URL.RawQuery)
	}))
	t.Cleanup(site.Close)
	b = &browsers{desk: newDesk(), mux: mux}
	m = newModelOn(t, b.desk, b)
	t.Cleanup(func() {
		if d := m.box.driver; d != nil {
			d.close()
		}
	})
	return m, b, site
}

// refOf finds what a snapshot calls so.
func refOf(t *testing.T, snapshot, words string) string {
	t.Helper()
	found := regexp.MustCompile(regexp.QuoteMeta(words) + ` \[(e\d+)\]`).FindStringSubmatch(snapshot)
	if found == nil {
		t.Fatalf("no %s in\n%s", words, snapshot)
	}
	return found[1]
}

// loaded waits until the page in front is at an address.
func (m *model) loaded(address string) (snapshot string) {
	m.t.Helper()
	for range 1000 {
		a := m.call("page_snapshot", nil)
		if strings.Contains(a.text, " at "+address) && !strings.Contains(a.text, "still loads") && !a.failed {
			return a.text
		}
		m.does("wait", map[string]any{"seconds": 0.05})
	}
	m.t.Fatalf("the page at %s does not load", address)
	return ""
}

// The agent reads a page of a real browser, fills its form, clicks, and sees what came.
func TestBrowserTools(t *testing.T) {
	m, b, site := newBrowsingModel(t)
	m.refused("browser_open", map[string]any{"url": site.URL}, "Call screenshot")
	m.refused("page_click", map[string]any{"ref": "e1"}, "page_snapshot")
	m.does("screenshot", nil)
	if a := m.does("browser_open", map[string]any{"url": site.URL + "/?first"}, "done"); a.failed {
		t.FailNow()
	}
	if got := b.opened[len(b.opened)-1]; got.Epoch != 4 {
		t.Errorf("opened under %+v", got)
	}
	var page struct {
		ID, Title, URL string
		Current        bool
	}
	snapshot := m.loaded(site.URL + "/?first")
	for _, want := range []string{`Page "The form"`, `heading "Order first" level=1`, `text "Some"`, `value "old"`, `combobox "Size"`, `checkbox "A gift"`} {
		if !strings.Contains(snapshot, want) {
			t.Errorf("nothing of %s in\n%s", want, snapshot)
		}
	}
	if strings.Contains(snapshot, "\u202e") {
		t.Error("the page turns its reader's text around")
	}
	tabs := m.does("browser_tabs", nil, "The form")
	for line := range strings.Lines(tabs.text) {
		if err := json.Unmarshal([]byte(line), &page); err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if page.Title == "The form" {
			break
		}
	}
	if page.URL != site.URL+"/?first" {
		t.Errorf("tabs: %s", tabs.text)
	}
	m.does("page_fill", map[string]any{"ref": refOf(t, snapshot, `textbox "Name"`), "text": "ä€漢"})
	m.does("page_fill", map[string]any{"ref": refOf(t, snapshot, `textbox "Secret"`), "text": "hunter2"})
	m.does("page_fill", map[string]any{"ref": refOf(t, snapshot, `combobox "Size"`), "text": "Large"})
	m.refused("page_fill", map[string]any{"ref": refOf(t, snapshot, `combobox "Size"`), "text": "Huge"}, "no choice")
	m.refused("page_fill", map[string]any{"ref": refOf(t, snapshot, `button "Send"`), "text": "x"}, "no field")
	m.refused("page_click", map[string]any{"ref": refOf(t, snapshot, `button "Covered"`)}, "lies over it")
	m.refused("page_click", map[string]any{"ref": "e999"}, "no ref")
	m.does("page_click", map[string]any{"ref": refOf(t, snapshot, `checkbox "A gift"`)})
	if after := m.does("page_snapshot", nil, `value "ä€漢"`, "checked"); strings.Contains(after.text, "hunter2") {
		t.Error("a snapshot shows what a password field holds")
	}
	m.does("page_click", map[string]any{"ref": refOf(t, m.does("page_snapshot", nil).text, `button "Send"`)})
	snapshot = m.loaded(site.URL + "/sent?name=%C3%A4%E2%82%AC%E6%BC%A2&secret=hunter2&size=l&gift=yes")
	m.does("page_fill", map[string]any{"ref": refOf(t, snapshot, `textbox "Name"`), "text": "", "submit": true})
	snapshot = m.loaded(site.URL + "/sent?name=&secret=&size=s")
	// It has to be scrolled to.
	m.does("page_click", map[string]any{"ref": refOf(t, snapshot, `link "Far below"`)})
	m.loaded(site.URL + "/sent?by=link")

	a := m.does("page_screenshot", map[string]any{"full": true}, "The page at")
	if len(a.images) != 1 {
		t.Fatalf("%+v", a)
	}
	if picture, err := png.DecodeConfig(bytes.NewReader(a.images[0].Data)); err != nil || picture.Height < 3000 {
		t.Errorf("%+v, %v", picture, err)
	}
	m.refused("page_screenshot", map[string]any{"format": "bmp"}, "png or jpeg")
	m.refused("page_snapshot", map[string]any{"tab": "nobody"}, "no such tab")
}

// BRW-09, L6: while a person has the screen no tool reaches the browser, and afterwards the
// agent has to read the page again before it can act on it.
func TestBRW09BrowserTools(t *testing.T) {
	m, b, site := newBrowsingModel(t)
	m.does("screenshot", nil)
	m.does("browser_open", map[string]any{"url": site.URL + "/?held"})
	link := refOf(t, m.loaded(site.URL+"/?held"), `link "Far below"`)
	b.take()
	for tool, args := range map[string]map[string]any{
		"browser_tabs": nil, "page_snapshot": nil, "page_screenshot": nil, "page_click": {"ref": link}, "page_fill": {"ref": link, "text": "x"},
	} {
		a := m.call(tool, args)
		if !a.failed || len(a.images) > 0 || !strings.Contains(a.text, "human_has_control") && !strings.Contains(a.text, "read the page first") {
			t.Errorf("%s under a person: %+v", tool, a)
		}
	}
	b.giveBack()
	m.refused("page_click", map[string]any{"ref": link}, "page_snapshot")
	m.does("page_snapshot", nil, "Order held")

	// A whole take and return between reading and acting is noticed.
	link = refOf(t, m.does("page_snapshot", nil).text, `link "Far below"`)
	b.take()
	b.giveBack()
	m.refused("page_click", map[string]any{"ref": link}, "lease_changed")
	m.does("page_snapshot", nil, " at "+site.URL+"/?held")
}

// A page cannot make its reader go round, read without end, or see what is not there.
func TestOutline(t *testing.T) {
	var nodes []axNode
	must := func(text string) {
		t.Helper()
		var n axNode
		if err := json.Unmarshal([]byte(text), &n); err != nil {
			t.Fatal(err)
		}
		nodes = append(nodes, n)
	}
	must(`{"nodeId":"1","role":{"value":"RootWebArea"},"name":{"value":"x"},"childIds":["2","3","nobody"]}`)
	must(`{"nodeId":"2","role":{"value":"group"},"name":{"value":"a \"group\"\n"},"childIds":["1","2"]}`)
	must(`{"nodeId":"3","role":{"value":"button"},"name":{"value":"go"},"backendDOMNodeId":7,"childIds":["4"],"properties":[{"name":"disabled","value":{"value":true}}]}`)
	must(`{"nodeId":"4","role":{"value":"StaticText"},"name":{"value":"go"}}`)
	o := newOutline(nodes)
	if want := "- group \"a \\\"group\\\"\"\n- button \"go\" [e1] disabled\n"; o.text.String() != want || o.refs["e1"].backend != 7 {
		t.Errorf("%s, %+v", o.text.String(), o.refs)
	}
	nodes = nodes[:1]
	nodes[0].ChildIDs = nil
	for i := range 100000 {
		id := fmt.Sprint("n", i)
		nodes[0].ChildIDs = append(nodes[0].ChildIDs, id)
		must(fmt.Sprintf(`{"nodeId":%q,"role":{"value":"StaticText"},"name":{"value":"%s"}}`, id, strings.Repeat("word ", 10)))
	}
	if o := newOutline(nodes); !o.cut || o.text.Len() > maxOutline+100 {
		t.Errorf("%d bytes, cut: %t", o.text.Len(), o.cut)
	}
	if got := quote(strings.Repeat("ä\x1b", 5000)); len(got) > 4*maxWords || strings.Contains(got, "\x1b") {
		t.Errorf("%d bytes", len(got))
	}
	if newOutline(nil).text.Len() > 0 {
		t.Error("nothing has words")
	}
}
