// SPDX-License-Identifier: MPL-2.0

package control

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
)

func TestTunnel(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		defer far.Close()
		hello, err := AcceptTunnel(far)
		if err != nil || hello != (Hello{V: 1, Viewer: "anna", Mode: Watch}) {
			t.Errorf("hello = %#v, %v", hello, err)
		}
		AnswerTunnel(far, nil)
		io.Copy(far, far)
	}()
	if err := OpenTunnel(t.Context(), near, Hello{Viewer: "anna", Mode: Watch}); err != nil {
		t.Fatal(err)
	}
	go near.Write([]byte("\n{raw"))
	got := make([]byte, 5)
	if _, err := io.ReadFull(near, got); err != nil || string(got) != "\n{raw" {
		t.Fatalf("%q, %v", got, err)
	}
}

func TestTunnelRefused(t *testing.T) {
	for line, want := range map[string]string{
		"GET / HTTP/1.1\r\n":           "first line must be JSON",
		"{}\n":                         "version 0",
		`{"v":2}` + "\n":               "version 2",
		`{"v":1,"mode":"root"}` + "\n": `mode "root"`,
		`{"v":1,"mode":` + strings.Repeat(" ", 5000): "first line must be JSON",
	} {
		conn := &struct {
			io.Reader
			bytes.Buffer
		}{Reader: strings.NewReader(line)}
		_, err := AcceptTunnel(struct {
			io.Reader
			io.Writer
		}{conn.Reader, &conn.Buffer})
		if err == nil || !strings.Contains(conn.String(), `"kind":"bad_request"`) || !strings.Contains(strings.ReplaceAll(conn.String(), `\"`, `"`), want) {
			t.Errorf("%.40q: %v, answered %s", line, err, conn.String())
		}
	}
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		AcceptTunnel(far)
		AnswerTunnel(far, &Error{Kind: Forbidden, Message: "No."})
	}()
	if err := OpenTunnel(t.Context(), near, Hello{}); KindOf(err) != Forbidden {
		t.Errorf("refusal: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	silent, _ := net.Pipe()
	cancel()
	if err := OpenTunnel(ctx, silent, Hello{}); !errors.Is(err, context.Canceled) {
		t.Errorf("cancelled: %v", err)
	}
}

// FuzzTunnel: no first line makes us read past it, or passes unchecked.
func FuzzTunnel(f *testing.F) {
	f.Add([]byte(`{"v":1,"viewer":"a","mode":"control"}` + "\nrest"))
	f.Add([]byte("{\"v\":1}\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		r := bytes.NewReader(data)
		hello, err := AcceptTunnel(struct {
			io.Reader
			io.Writer
		}{r, io.Discard})
		read := data[:len(data)-r.Len()]
		if i := bytes.IndexByte(read, '\n'); i >= 0 && i != len(read)-1 || len(read) > maxTunnelLine+1 {
			t.Fatalf("read %d bytes: %q", len(read), read)
		}
		if err == nil && hello.Check() != nil {
			t.Fatalf("accepted %#v", hello)
		}
	})
}
