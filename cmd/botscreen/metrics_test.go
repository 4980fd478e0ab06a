// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/control/controlserver"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/screen"
)

// measured is a supervisor that knows its figures.
type measured struct {
	controlserver.Backend
	status control.Status
	stats  control.Stats
}

func (m measured) Status(context.Context, controlserver.Caller) (control.Status, error) {
	return m.status, nil
}
func (m measured) Stats(context.Context) (control.Stats, error) { return m.stats, nil }

// runDirOf makes a run directory with a supervisor for each, and one that is dead.
func runDirOf(t *testing.T, all ...measured) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bm-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for i, backend := range append(all, measured{}) {
		place := filepath.Join(dir, strings.Repeat("a", i+1))
		if err := os.Mkdir(place, 0o700); err != nil {
			t.Fatal(err)
		}
		l, err := net.ListenUnix("unix", &net.UnixAddr{Name: filepath.Join(place, "op"), Net: "unix"})
		if err != nil {
			t.Fatal(err)
		}
		l.SetUnlinkOnClose(false)
		if i == len(all) {
			_ = l.Close()
			continue
		}
		server := controlserver.New(backend, slog.New(slog.DiscardHandler))
		go func() { _ = server.Serve(l, screen.RoleOperator) }()
		t.Cleanup(func() { _ = server.Shutdown(context.Background()) })
	}
	return dir
}

func scrape(t *testing.T, url, token string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, url+"/metrics", nil)
	if err != nil {
		t.Fatal(err)
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	return answerTo(t, req)
}

// Issue 7: what the screens of a node do, in Prometheus' words, with nobody's name in it.
func TestMetrics(t *testing.T) {
	const viewer = "3f9a00112233"
	first := measured{
		status: control.Status{State: screen.Ready, Isolation: screen.Host, Profile: "one",
			Lease: lease.Public{Holder: lease.Human, Viewer: viewer, Reason: screen.Distrust("a captcha")}, Viewers: []control.Viewer{{Viewer: viewer}}},
		stats: control.Stats{Namespace: "default", MemoryBytes: 50 << 20, Processes: 9, CPUUserNs: 1_500_000_000,
			Counts: control.Counts{StartNs: 250 * time.Millisecond, Wakes: 2, WakeNs: 600 * time.Millisecond, Takeovers: 3, HandBacks: 2, Refusals: 5, SentBytes: 7000, ReceivedBytes: 70}},
	}
	second := measured{
		status: control.Status{State: screen.Asleep, Isolation: screen.Docker, Profile: "two", Lease: lease.Public{Holder: lease.Agent}},
		stats:  control.Stats{Namespace: "team", Time: time.Now()},
	}
	server := httptest.NewServer(newMetrics(runDirOf(t, first, second)).handler(""))
	defer server.Close()
	code, text := scrape(t, server.URL, "")
	if code != http.StatusOK {
		t.Fatalf("%d: %s", code, text)
	}
	const one = `{namespace="default",profile="one"} `
	for _, line := range []string{
		`botscreen_screens{isolation="host",state="ready"} 1`,
		`botscreen_screens{isolation="docker",state="asleep"} 1`,
		`botscreen_screens_silent 1`,
		`botscreen_screen_held_by_person` + one + "1", `botscreen_screen_viewers` + one + "1",
		`botscreen_screen_memory_bytes` + one + "5.24288e+07", `botscreen_screen_cpu_seconds_total` + one + "1.5",
		`botscreen_screen_start_seconds` + one + "0.25",
		`botscreen_screen_wake_seconds_sum` + one + "0.6", `botscreen_screen_wake_seconds_count` + one + "2",
		`botscreen_screen_takeovers_total` + one + "3", `botscreen_screen_hand_backs_total` + one + "2",
		`botscreen_screen_refusals_total` + one + "5", `botscreen_screen_sent_bytes_total` + one + "7000",
		`botscreen_screen_received_bytes_total` + one + "70",
		`botscreen_screen_held_by_person{namespace="team",profile="two"} 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("no line %s", line)
		}
	}
	for _, secret := range []string{viewer, "captcha", `memory_bytes{namespace="team"`} {
		if strings.Contains(text, secret) {
			t.Errorf("%q is in it", secret)
		}
	}
	if t.Failed() {
		t.Log(text)
	}
}

// X43: only loopback goes without a bearer, and with one nobody else is answered.
func TestX43MetricsNeedABearer(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	writeToken := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	writeToken("0123456789abcdef\n")
	for _, tc := range []struct {
		listen, file, token string
		ok                  bool
	}{
		{"127.0.0.1:0", "", "", true}, {"[::1]:9477", "", "", true}, {"0.0.0.0:9477", "", "", false}, {":9477", "", "", false},
		{"localhost:9477", "", "", false}, {"10.0.0.1", "", "", false}, {"0.0.0.0:9477", file, "0123456789abcdef", true}, {"127.0.0.1:1", file + ".no", "", false},
	} {
		if got, err := metricsToken(tc.listen, tc.file); (err == nil) != tc.ok || got != tc.token {
			t.Errorf("%s with %q: %q, %v", tc.listen, tc.file, got, err)
		}
	}
	writeToken("short")
	if _, err := metricsToken("0.0.0.0:1", file); err == nil {
		t.Error("a token of five bytes was taken")
	}
	server := httptest.NewServer(newMetrics(t.TempDir()).handler("0123456789abcdef"))
	defer server.Close()
	for token, want := range map[string]int{"": 401, "0123456789abcdee": 401, "0123456789abcdef": 200} {
		if code, text := scrape(t, server.URL, token); code != want || want == 401 && strings.Contains(text, "botscreen_screens") {
			t.Errorf("with %q: %d %s", token, code, text)
		}
	}
}
