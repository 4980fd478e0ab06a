// SPDX-License-Identifier: MPL-2.0

package cdp

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strings"

	"github.com/botscreen/botscreen/shared/form"
)

// Target is something that a client can attach to, such as a page. Its words are the
// page's own.
type Target struct {
	ID       string `json:"targetId"`
	Type     string `json:"type"`
	Title    string `json:"title"`
	URL      string `json:"url"`
	Attached bool   `json:"attached"`
	OpenerID string `json:"openerId"`
}

// IsPage tells a tab, or a window with one page, from what pages are made of.
func (t Target) IsPage() bool { return t.Type == "page" }

// Targets lists the targets there are.
func (m *Mux) Targets(ctx context.Context) ([]Target, error) {
	var list struct {
		TargetInfos []Target `json:"targetInfos"`
	}
	err := m.Call(ctx, "", "Target.getTargets", nil, &list)
	return list.TargetInfos, err
}

// Attach begins a session with a target, as Call takes it. detach ends it: nobody waits for
// that, nor does it end with ctx.
func (m *Mux) Attach(ctx context.Context, target string) (session string, detach func(), err error) {
	var attached struct{ SessionID string }
	if err := m.Call(ctx, "", "Target.attachToTarget", map[string]any{"targetId": target, "flatten": true}, &attached); err != nil {
		return "", nil, err
	}
	return attached.SessionID, func() {
		go func() {
			bounded, cancel := context.WithTimeout(context.Background(), detachTimeout)
			defer cancel()
			_ = m.Call(bounded, "", "Target.detachFromTarget", map[string]string{"sessionId": attached.SessionID}, nil)
		}()
	}, nil
}

// handler serves what a debugging port serves. Its paths may end in a slash, as the
// browser takes them.
func (m *Mux) handler() http.Handler {
	mux := http.NewServeMux()
	both := func(path string, handle http.HandlerFunc) {
		mux.HandleFunc(path, handle)
		mux.HandleFunc(path+"/{$}", handle)
	}
	both("/json/version", m.version)
	both("/json", m.list)
	both("/json/list", m.list)
	both("/json/new", m.open)
	both("/json/protocol", func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "The browser does not tell its protocol over a pipe; take that of its version from https://github.com/ChromeDevTools/devtools-protocol.", http.StatusNotFound)
	})
	mux.HandleFunc("/json/activate/{id}", m.act("Target.activateTarget", "Target activated"))
	mux.HandleFunc("/json/close/{id}", m.act("Target.closeTarget", "Target is closing"))
	mux.HandleFunc("GET /devtools/browser/{id}", func(w http.ResponseWriter, r *http.Request) {
		if id := r.PathValue("id"); id != m.id && id != CurrentBrowser {
			http.Error(w, "That browser has ended; /json/version has the address of the one that runs.", http.StatusNotFound)
			return
		}
		m.socket(w, r, "")
	})
	mux.HandleFunc("GET /devtools/page/{id}", func(w http.ResponseWriter, r *http.Request) {
		m.socket(w, r, r.PathValue("id"))
	})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// Clients of the protocol send no Origin: it is a page that found its way here, and
		// would drive the browser that shows it.
		if r.Header.Get("Origin") != "" || r.Header.Get("Sec-Fetch-Site") != "" {
			http.Error(w, "Web pages may not use this interface.", http.StatusForbidden)
			return
		}
		mux.ServeHTTP(w, r)
	})
}

func (m *Mux) version(w http.ResponseWriter, r *http.Request) {
	var v struct {
		ProtocolVersion, Product, Revision, UserAgent, JSVersion string
	}
	if !m.ask(w, r, "Browser.getVersion", nil, &v) {
		return
	}
	send(w, map[string]string{
		"Browser": v.Product, "Protocol-Version": v.ProtocolVersion, "User-Agent": v.UserAgent, "V8-Version": v.JSVersion,
		"WebKit-Version":       "537.36 (" + v.Revision + ")",
		"webSocketDebuggerUrl": base(r) + "/devtools/browser/" + m.id,
	})
}

func (m *Mux) list(w http.ResponseWriter, r *http.Request) {
	var list struct{ TargetInfos []Target }
	if !m.ask(w, r, "Target.getTargets", nil, &list) {
		return
	}
	all := make([]map[string]string, 0, len(list.TargetInfos))
	for _, t := range list.TargetInfos {
		all = append(all, described(r, t))
	}
	send(w, all)
}

// open opens a page, for the URL that is the whole query.
func (m *Mux) open(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPut {
		http.Error(w, "Using unsafe HTTP verb "+r.Method+" to invoke /json/new. This action supports only PUT verb.", http.StatusMethodNotAllowed)
		return
	}
	address, err := url.QueryUnescape(r.URL.RawQuery)
	if err != nil || address == "" {
		address = "about:blank"
	}
	var made struct{ TargetID string }
	if !m.ask(w, r, "Target.createTarget", map[string]string{"url": address}, &made) {
		return
	}
	var info struct{ TargetInfo Target }
	if m.ask(w, r, "Target.getTargetInfo", map[string]string{"targetId": made.TargetID}, &info) {
		send(w, described(r, info.TargetInfo))
	}
}

func (m *Mux) act(method, done string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if m.ask(w, r, method, map[string]string{"targetId": r.PathValue("id")}, nil) {
			w.Header().Set("Content-Type", "text/html; charset=UTF-8")
			_, _ = w.Write([]byte(done))
		}
	}
}

// ask answers the request where the browser does not.
func (m *Mux) ask(w http.ResponseWriter, r *http.Request, method string, params, result any) bool {
	ctx, cancel := context.WithTimeout(r.Context(), openTimeout)
	defer cancel()
	err := m.Call(ctx, "", method, params, result)
	if err != nil {
		refuseTarget(w, err)
	}
	return err == nil
}

func described(r *http.Request, t Target) map[string]string {
	d := map[string]string{
		"id": t.ID, "type": t.Type, "title": t.Title, "url": t.URL, "description": "",
		"webSocketDebuggerUrl": base(r) + "/devtools/page/" + t.ID,
	}
	if t.OpenerID != "" {
		d["parentId"] = t.OpenerID
	}
	return d
}

// validHost and validPrefix are what addresses are made of: nothing else gets into answers.
var (
	validHost   = form.Of(`^[A-Za-z0-9._:\[\]-]{1,255}$`)
	validPrefix = form.Of(`^(/[A-Za-z0-9_-]{1,128}){1,4}$`)
)

// base is the address of the endpoint as the client of this request reaches it (BRW-06).
func base(r *http.Request) string {
	host, prefix := r.Host, r.Header.Get(PrefixHeader)
	if !validHost().MatchString(host) {
		host = "localhost"
	}
	if !validPrefix().MatchString(prefix) {
		prefix = ""
	}
	return "ws://" + host + strings.TrimSuffix(prefix, "/")
}

func send(w http.ResponseWriter, answer any) {
	text, err := json.MarshalIndent(answer, "", "   ")
	if err != nil {
		http.Error(w, "the answer cannot be written", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json; charset=UTF-8")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write(append(text, '\n')) // the client left when this fails
}
