// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/shared/relay/ticket"
)

// X43: in the clear only on this machine; only GET, and short headers.
func TestX43Listener(t *testing.T) {
	w := newWorld(t)
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var refused *ListenError
	if err := (Listener{Relay: w.Relay}).Serve(t.Context(), elsewhere{ln}); !errors.As(err, &refused) {
		t.Errorf("%v", err)
	}
	ln, err = net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "page") })
	go func() { done <- Listener{Relay: w.Relay, Page: page}.Serve(ctx, ln) }()
	url := "http://" + ln.Addr().String()
	for _, test := range []struct {
		method, path, host string
		status             int
	}{
		{"GET", "/", "", 200}, {"POST", "/", "", 405}, {"PUT", PathView, "", 405}, {"GET", "/", "evil.example", 403},
		{"GET", PathView, "", 426}, {"DELETE", "/x", "", 405},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), test.method, url+test.path, nil)
		req.Host = test.host
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != test.status || resp.Header.Get("Server") != "" {
			t.Errorf("%+v: %s", test, resp.Status)
		}
	}
	req, _ := http.NewRequestWithContext(t.Context(), "GET", url, nil)
	req.Header.Set("X-Long", strings.Repeat("x", maxHeaderBytes+8<<10))
	if resp, err := http.DefaultClient.Do(req); err == nil {
		resp.Body.Close()
		if resp.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Errorf("long header: %s", resp.Status)
		}
	}
	d := &door{w, url + PathView, http.DefaultClient}
	d.visit(t, "v", ticket.Watch)
	cancel()
	if err := <-done; err != nil {
		t.Errorf("%v", err)
	}
	http.DefaultClient.CloseIdleConnections()
}

// elsewhere is a listener that others can reach.
type elsewhere struct{ net.Listener }

// X43: with TLS, from 1.2 on, another address may be served, and viewers come through.
func TestX43TLS(t *testing.T) {
	w := newWorld(t)
	lender := httptest.NewUnstartedServer(nil) // of a certificate
	lender.StartTLS()
	defer lender.Close()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	config := &tls.Config{Certificates: lender.TLS.Certificates}
	go func() { done <- Listener{Relay: w.Relay, TLS: config}.Serve(ctx, elsewhere{ln}) }()
	trusting := func(most uint16) *http.Client {
		client := lender.Client()
		transport := client.Transport.(*http.Transport).Clone()
		transport.TLSClientConfig.MinVersion, transport.TLSClientConfig.MaxVersion = tls.VersionTLS10, most
		return &http.Client{Transport: transport}
	}
	url := "https://" + ln.Addr().String()
	if resp, err := trusting(tls.VersionTLS11).Get(url); err == nil {
		resp.Body.Close()
		t.Error("TLS 1.1 is spoken")
	}
	d := &door{w, url + PathView, trusting(0)}
	d.visit(t, "v", ticket.Watch)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
