// SPDX-License-Identifier: MPL-2.0

package toolbox

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// desk is a supervisor whose lease and picture are what the test says.
type desk struct {
	mu      sync.Mutex // guards all below
	lease   lease.Public
	hash    string
	changed chan struct{} // closed and replaced when the lease changes
	inputs  []control.InputRequest
	shots   []control.ScreenshotRequest
	asks    []control.Ask
	outcome control.AskOutcome
	failure error  // of the next picture
	text    string // of the clipboard
}

var began = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func newDesk() *desk {
	return &desk{lease: lease.Public{Holder: lease.Agent, Epoch: 4, Since: began}, hash: "h1", changed: make(chan struct{})}
}

func (d *desk) change(holder lease.Holder) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.lease.Holder, d.lease.Epoch = holder, d.lease.Epoch+1
	close(d.changed)
	d.changed = make(chan struct{})
}

// admit needs mu.
func (d *desk) admit(seen lease.Epoch) error {
	if d.lease.Holder == lease.Human {
		return control.FromLease(&lease.HeldError{Lease: d.lease})
	}
	if seen != d.lease.Epoch {
		return control.FromLease(&lease.ChangedError{Seen: seen, Now: d.lease.Epoch})
	}
	return nil
}

func (d *desk) Status(context.Context, controlserver.Caller) (control.Status, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return control.Status{State: screen.Ready, Lease: d.lease, Asks: d.asks}, nil
}

func (d *desk) Lease(context.Context) (lease.Public, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.lease, nil
}

func (d *desk) EventsAfter(ctx context.Context, since uint64) ([]control.Event, error) {
	for {
		d.mu.Lock()
		l, changed := d.lease, d.changed
		d.mu.Unlock()
		if uint64(l.Epoch) > since {
			return []control.Event{{Seq: uint64(l.Epoch), Holder: l.Holder, Epoch: l.Epoch}}, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (d *desk) Screenshot(_ context.Context, _ controlserver.Caller, req control.ScreenshotRequest) (control.Screenshot, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.shots = append(d.shots, req)
	if d.failure != nil {
		return control.Screenshot{}, d.failure
	}
	if err := d.admit(d.lease.Epoch); err != nil {
		return control.Screenshot{}, err
	}
	shot := control.Screenshot{Format: req.Format, Data: []byte("pixels"), Epoch: d.lease.Epoch, Hash: d.hash,
		Screen: screen.Geometry{WidthPx: 1440, HeightPx: 900}}
	if req.Unless == d.hash {
		shot.Data, shot.Late = nil, req.Until == control.Change
	}
	return shot, nil
}

func (d *desk) Input(_ context.Context, _ controlserver.Caller, req control.InputRequest) (control.InputAnswer, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.inputs = append(d.inputs, req)
	if err := d.admit(req.Epoch); err != nil {
		return control.InputAnswer{}, err
	}
	return control.InputAnswer{Epoch: req.Epoch, Done: len(req.Actions)}, nil
}

func (d *desk) Ask(_ context.Context, _ controlserver.Caller, req control.AskRequest) (control.Ask, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.asks) > 0 {
		return control.Ask{}, &control.Error{Kind: control.Busy, Message: "A person has been asked for already."}
	}
	ask := control.Ask{ID: "ask-1", Reason: screen.Distrust(req.Reason), Since: began, Deadline: req.Deadline}
	d.asks = append(d.asks, ask)
	return ask, nil
}

func (d *desk) AwaitAsk(_ context.Context, id string, _ time.Duration) (control.AskOutcome, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.asks) == 0 || d.asks[0].ID != id {
		return control.AskOutcome{}, &control.Error{Kind: control.Gone, Message: "no such ask"}
	}
	d.outcome.Ask, d.outcome.Lease = d.asks[0], d.lease
	if d.outcome.State.Over() {
		d.asks = nil
	}
	return d.outcome, nil
}

func (d *desk) Windows(context.Context, controlserver.Caller) (control.Windows, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return control.Windows{Epoch: d.lease.Epoch, Windows: []control.Window{
		{Title: screen.Distrust("Mail\x1b[31m"), Class: screen.Distrust("mail"), X: 1, Y: 2, WidthPx: 640, HeightPx: 480, Focused: true},
	}}, d.admit(d.lease.Epoch)
}

func (d *desk) Cursor(context.Context, controlserver.Caller) (control.Cursor, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return control.Cursor{Epoch: d.lease.Epoch, X: 12, Y: 34, Middle: true}, d.admit(d.lease.Epoch)
}

func (d *desk) Clipboard(context.Context, controlserver.Caller) (control.Clipboard, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return control.Clipboard{Epoch: d.lease.Epoch, Text: d.text}, d.admit(d.lease.Epoch)
}

func (d *desk) SetClipboard(_ context.Context, _ controlserver.Caller, req control.ClipboardRequest) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := d.admit(req.Epoch); err != nil {
		return err
	}
	d.text = req.Text
	return nil
}

// model is an MCP client whose server works on a desk.
type model struct {
	*mcp.ClientSession
	t    *testing.T
	desk *desk
	box  *Box
}

func newModel(t *testing.T) *model {
	t.Helper()
	d := newDesk()
	return newModelOn(t, d, d)
}

// newModelOn has a supervisor that can do what backend can.
func newModelOn(t *testing.T, d *desk, backend controlserver.Backend) *model {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	server := controlserver.New(backend, slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener, screen.RoleAgent) }()
	client := control.NewClient(control.Unix(path))
	t.Cleanup(func() {
		client.Close()
		_ = server.Shutdown(context.Background())
		if err := <-served; err != nil {
			t.Errorf("serve: %v", err)
		}
	})
	box := New(client)
	near, far := mcp.NewInMemoryTransports()
	if _, err := box.Server("test").Connect(t.Context(), far, nil); err != nil {
		t.Fatal(err)
	}
	session, err := mcp.NewClient(&mcp.Implementation{Name: "model", Version: "1"}, nil).Connect(t.Context(), near, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = session.Close() })
	return &model{session, t, d, box}
}

// answer is what a tool says.
type answer struct {
	failed bool
	text   string
	images []*mcp.ImageContent
}

func (m *model) call(name string, args map[string]any) answer {
	m.t.Helper()
	result, err := m.CallTool(m.t.Context(), &mcp.CallToolParams{Name: name, Arguments: args})
	if err != nil {
		m.t.Fatalf("%s: %v", name, err)
	}
	a := answer{failed: result.IsError}
	for _, c := range result.Content {
		switch c := c.(type) {
		case *mcp.TextContent:
			a.text += c.Text + "\n"
		case *mcp.ImageContent:
			a.images = append(a.images, c)
		}
	}
	return a
}

// refused checks that a tool fails and says all of these words.
func (m *model) refused(name string, args map[string]any, words ...string) {
	m.t.Helper()
	a := m.call(name, args)
	if !a.failed || len(a.images) > 0 {
		m.t.Errorf("%s is not refused: %+v", name, a)
	}
	m.hears(name, a, words...)
}

// does checks that a tool succeeds and says all of these words.
func (m *model) does(name string, args map[string]any, words ...string) answer {
	m.t.Helper()
	a := m.call(name, args)
	if a.failed {
		m.t.Errorf("%s is refused: %s", name, a.text)
	}
	m.hears(name, a, words...)
	return a
}

func (m *model) hears(name string, a answer, words ...string) {
	m.t.Helper()
	for _, w := range words {
		if !strings.Contains(a.text, w) {
			m.t.Errorf("%s says %q, nothing of %q", name, a.text, w)
		}
	}
}

// acted takes the lists of actions that reached the supervisor.
func (m *model) acted() []control.InputRequest {
	m.desk.mu.Lock()
	defer m.desk.mu.Unlock()
	inputs := m.desk.inputs
	m.desk.inputs = nil
	return inputs
}
