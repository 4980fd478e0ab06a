// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"io/fs"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/coder/websocket"
)

// minted is what `botscreen ticket --json` says.
type minted struct {
	ID      string    `json:"id"`
	Secret  string    `json:"secret"`
	Mode    string    `json:"mode"`
	Viewer  string    `json:"viewer"`
	Expires time.Time `json:"expires"`
	Address string    `json:"address"`
	URL     string    `json:"url"`
}

func (a *agent) ticket(t *testing.T, args ...string) (m minted) {
	t.Helper()
	out := a.must(t, append([]string{"ticket", "--json"}, args...)...)
	if err := json.Unmarshal([]byte(out), &m); err != nil {
		t.Fatalf("ticket is not JSON: %v\n%s", err, out)
	}
	return m
}

// listenedJob is a job with a viewer listener behind TLS on a port of Nomad's, whose
// certificate comes out of templates as a user's would.
func (a *agent) listenedJob(t *testing.T, profile string, config ...string) string {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	form := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "screen"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, DNSNames: []string{"screens.example"},
	}
	der, err := x509.CreateCertificate(rand.Reader, form, form, &private.PublicKey, private)
	if err != nil {
		t.Fatal(err)
	}
	secret, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	path := a.job(t, profile, append(config, "viewer {\n port = \"view\"\n tls_cert = \"local/cert.pem\"\n tls_key = \"secrets/key.pem\"\n }")...)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	template := func(kind string, block []byte, to string) string {
		return "template {\n destination = \"" + to + "\"\n data = <<PEM\n" + string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: block})) + "PEM\n }\n"
	}
	job := strings.Replace(string(text), `group "desk" {`, "group \"desk\" {\n network {\n port \"view\" {}\n }", 1)
	job = strings.Replace(job, `driver = "botscreen"`, `driver = "botscreen"`+"\n"+template("CERTIFICATE", der, "local/cert.pem")+template("PRIVATE KEY", secret, "secrets/key.pem"), 1)
	writeFile(t, path, job)
	return path
}

// knock shows a ticket at a listener and gives the close code, 0 where the view opened,
// or the HTTP status of a refusal before that.
func knock(t *testing.T, address, secret string, header http.Header) (code int, said string) {
	t.Helper()
	conn, resp, err := dialView(t, address, secret, header)
	if err != nil {
		if resp == nil {
			t.Fatal(err)
		}
		return resp.StatusCode, ""
	}
	defer conn.CloseNow()
	_, first, err := conn.Read(t.Context())
	if err != nil {
		return int(websocket.CloseStatus(err)), err.Error()
	}
	return 0, string(first)
}

func dialView(t *testing.T, address, secret string, header http.Header) (*websocket.Conn, *http.Response, error) {
	return websocket.Dial(t.Context(), strings.Replace(address, "http", "ws", 1)+"/view", &websocket.DialOptions{
		HTTPHeader: header, Subprotocols: []string{"botscreen", "ticket." + secret},
		HTTPClient: &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}},
	})
}

// dialListener opens the view of a ticket until the test ends.
func dialListener(t *testing.T, m minted) *websocket.Conn {
	t.Helper()
	conn, _, err := dialView(t, m.Address, m.Secret, http.Header{"Origin": {m.Address}})
	if err != nil {
		t.Fatal(err)
	}
	conn.SetReadLimit(-1)
	t.Cleanup(func() { _ = conn.CloseNow() })
	return conn
}

// ticketsAtTheListener: somebody without access to Nomad opens a link in a real browser,
// takes over, loses the connection and comes back; what is no good ticket opens nothing
// (rules R1, R2, L9; cases SEC-03, SEC-06, SEC-07).
func ticketsAtTheListener(t *testing.T, a *agent) {
	a.must(t, "run", a.listenedJob(t, "linked"))
	defer a.botscreen(t, "stop", "--force", "linked")
	a.must(t, "run", a.listenedJob(t, "other"))
	defer a.botscreen(t, "stop", "--force", "other")

	watch := a.ticket(t, "linked")
	if watch.Mode != "watch" || !strings.HasPrefix(watch.Address, "https://127.0.0.1:") || watch.URL != watch.Address+"/#ticket="+watch.Secret {
		t.Fatalf("%+v", watch)
	}
	good := http.Header{"Origin": {watch.Address}}
	foreign := http.Header{"Origin": {"https://evil.example"}}
	if code, _ := knock(t, watch.Address, watch.Secret, foreign); code != http.StatusForbidden {
		t.Errorf("a foreign page: %d", code)
	}
	if code, said := knock(t, watch.Address, watch.Secret, good); code != 0 || !strings.Contains(said, "RFB 003.008") && !strings.Contains(said, `"hello"`) {
		t.Errorf("the ticket that a foreign page did not burn: %d %q", code, said)
	}
	revoked, elsewhere := a.ticket(t, "linked"), a.ticket(t, "other", "--mode", "control")
	a.must(t, "ticket", "--revoke", revoked.ID, "linked")
	words := map[string]bool{}
	for name, secret := range map[string]string{"none": "", "made up": strings.Repeat("x", 43), "used": watch.Secret, "revoked": revoked.Secret, "another screen's": elsewhere.Secret} {
		code, said := knock(t, watch.Address, secret, good)
		if code != 4401 {
			t.Errorf("%s: %d %q", name, code, said)
		}
		words[said] = true
	}
	if len(words) != 1 {
		t.Errorf("the refusals differ: %v", words)
	}

	// A ticket to watch does not take, whatever is said over it (SEC-03).
	b := newBrowser(t)
	b.open(a.ticket(t, "linked").URL)
	b.connected()
	b.until("that who may only watch is offered no more, and the link is out of the address bar",
		`document.getElementById("take").hidden && location.hash === ""`)
	b.quiet()

	c := newBrowser(t)
	control := a.ticket(t, "linked", "--mode", "control")
	way := newProxy(t, strings.TrimPrefix(control.Address, "https://"))
	c.open(strings.Replace(control.URL, control.Address, "https://"+way.Addr().String(), 1))
	c.connected()
	c.take("by a link")
	first := leaseBy(t, a, "lease", "linked")
	if first.Holder != "human" || first.Viewer != control.Viewer {
		t.Errorf("the lease is %+v", first)
	}
	same := func(when string) {
		t.Helper()
		var l held
		a.eventually("the lease "+when, func() bool {
			r := a.botscreen(t, "lease", "linked", "--json")
			return r.code == 0 && json.Unmarshal([]byte(r.stdout), &l) == nil
		})
		if l.Epoch != first.Epoch || l.Viewer != first.Viewer {
			t.Errorf("%s: %+v became %+v", when, first, l)
		}
	}
	// The way breaks: the page comes back by itself and still has the screen.
	way.cut()
	c.until("words about the break", `document.getElementById("over-text").innerText.includes("still control")`)
	c.until("the way back", `document.getElementById("over").hidden && document.body.dataset.holding === "true" && document.getElementById("state").dataset.state === "up"`)
	same("after the connection broke")

	// The supervisor's death breaks the stream, and takes its tickets along: the lease stays.
	a.must(t, "stop", "other")
	old := supervisors(a)
	if len(old) != 1 {
		t.Fatalf("supervisors %v", old)
	}
	if err := syscall.Kill(old[0].pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	same("after the supervisor was killed")
	c.until("that the link is used up", `document.body.dataset.code === "4401" && document.getElementById("over-text").innerText.includes("Ask for a new one")`)
	c.quiet()

	// Nothing of a ticket is in what the node writes down (SEC-07).
	for _, path := range []string{a.log, filepath.Join(a.dir, "state", "control", "default", "linked", "supervise.log"), filepath.Join(a.dir, "state", "control", "default", "linked", "audit.jsonl")} {
		text, err := os.ReadFile(path)
		if err != nil && !errors.Is(err, fs.ErrNotExist) { // nothing was wrong, so nothing was logged
			t.Error(err)
		}
		for _, secret := range []string{watch.Secret, control.Secret, revoked.Secret} {
			if bytes.Contains(text, []byte(secret)) {
				t.Errorf("%s holds a ticket", path)
			}
		}
	}
	if r := a.botscreen(t, "ticket", "other", "--mode", "type"); r.code != 2 || !strings.Contains(r.stderr, "watch, control") {
		t.Errorf("unknown mode: %s", r)
	}
}

// proxy is a way to a listener that can be cut.
type proxy struct {
	net.Listener
	mu    sync.Mutex // guards conns
	conns []net.Conn
}

func newProxy(t *testing.T, to string) *proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{Listener: listener}
	t.Cleanup(func() { _ = listener.Close(); p.cut() })
	go func() {
		for {
			near, err := listener.Accept()
			if err != nil {
				return
			}
			far, err := net.Dial("tcp", to)
			if err != nil {
				_ = near.Close()
				continue
			}
			p.mu.Lock()
			p.conns = append(p.conns, near, far)
			p.mu.Unlock()
			go func() { _, _ = io.Copy(near, far); _ = near.Close() }()
			go func() { _, _ = io.Copy(far, near); _ = far.Close() }()
		}
	}()
	return p
}

func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// noListener: a ticket of a screen without a listener is not left behind.
func noListener(t *testing.T, a *agent) {
	a.must(t, "run", a.job(t, "closed"))
	defer a.must(t, "stop", "closed")
	if r := a.botscreen(t, "ticket", "closed"); r.code != 1 || !strings.Contains(r.stderr, "no viewer listener") || !strings.Contains(r.stderr, "botscreen view") {
		t.Errorf("ticket: %s", r)
	}
}
