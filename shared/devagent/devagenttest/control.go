// SPDX-License-Identifier: MPL-2.0

package devagenttest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"image"
	"image/jpeg"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/botscreen/botscreen/shared/nomadplugin"
)

// serveControl stands for a supervisor behind the reserved command botscreen:control:
// the hello, the answer, and then HTTP over the stream.
func serveControl(ctx context.Context, t *task, req nomadplugin.ExecRequest) (*nomadplugin.ExitResult, error) {
	in := bufio.NewReader(req.Stdin)
	if _, refusal, err := greet(in, req); refusal != nil || err != nil {
		return refusal, err
	}
	conn := &pipeConn{r: in, w: req.Stdout, closed: make(chan struct{})}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /v1/status", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(map[string]any{"state": "ready", "profile": t.config.GetName()})
	})
	mux.HandleFunc("GET /v1/screenshot", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Botscreen-Epoch", "7")
		if r.URL.Query().Get("thumbnail") == "true" {
			w.Header().Set("Content-Type", "image/jpeg")
			_ = jpeg.Encode(w, image.NewGray(image.Rect(0, 0, 1, 1)), nil)
			return
		}
		w.Header().Set("Content-Type", "image/png")
		_, _ = w.Write(pixel)
	})
	s := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute}
	stop := context.AfterFunc(ctx, func() { _ = s.Close() })
	defer stop()
	_ = s.Serve(&oneListener{conn: conn})
	return &nomadplugin.ExitResult{}, nil
}

// hello is the first line of a reserved command's stream.
type hello struct {
	V      int    `json:"v"`
	Viewer string `json:"viewer"`
	Mode   string `json:"mode"`
}

// greet reads it and answers.
func greet(in *bufio.Reader, req nomadplugin.ExecRequest) (h hello, refusal *nomadplugin.ExitResult, err error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return h, nil, err
	}
	if err := json.Unmarshal(line, &h); err != nil || h.V != 1 {
		_, err := fmt.Fprintln(req.Stdout, `{"v":1,"error":{"kind":"bad_request","message":"no hello"}}`)
		return h, &nomadplugin.ExitResult{ExitCode: 1}, err
	}
	_, err = fmt.Fprintln(req.Stdout, `{"v":1}`)
	return h, nil, err
}

// serveViewer stands for the reserved command botscreen:rfb: it says what the hello said
// and then sends everything back.
func serveViewer(req nomadplugin.ExecRequest) (*nomadplugin.ExitResult, error) {
	in := bufio.NewReader(req.Stdin)
	h, refusal, err := greet(in, req)
	if refusal != nil || err != nil {
		return refusal, err
	}
	if _, err := fmt.Fprintln(req.Stdout, h.Mode, len(h.Viewer)); err != nil {
		return nil, err
	}
	_, err = io.Copy(req.Stdout, in)
	return &nomadplugin.ExitResult{}, err
}

// pixel is a PNG of one white pixel.
var pixel = []byte("\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR\x00\x00\x00\x01\x00\x00\x00\x01\x08\x00\x00\x00\x00:~\x9bU\x00\x00\x00\nIDATx\xdac\xf8\x0f\x00\x01\x01\x01\x00\x1b\xb6\xeeV\x00\x00\x00\x00IEND\xaeB`\x82")

// pipeConn makes a connection of an exec stream's two ends.
type pipeConn struct {
	r      io.Reader
	w      io.Writer
	closed chan struct{}
}

func (c *pipeConn) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	if err != nil {
		_ = c.Close()
	}
	return n, err
}
func (c *pipeConn) Write(p []byte) (int, error) { return c.w.Write(p) }
func (c *pipeConn) Close() error {
	select {
	case <-c.closed:
	default:
		close(c.closed)
	}
	return nil
}
func (c *pipeConn) LocalAddr() net.Addr              { return &net.UnixAddr{Name: "exec", Net: "unix"} }
func (c *pipeConn) RemoteAddr() net.Addr             { return &net.UnixAddr{Name: "exec", Net: "unix"} }
func (c *pipeConn) SetDeadline(time.Time) error      { return nil }
func (c *pipeConn) SetReadDeadline(time.Time) error  { return nil }
func (c *pipeConn) SetWriteDeadline(time.Time) error { return nil }

// oneListener gives its one connection and then waits for its end.
type oneListener struct {
	conn  *pipeConn
	given bool
}

func (l *oneListener) Accept() (net.Conn, error) {
	if l.given {
		<-l.conn.closed
		return nil, net.ErrClosed
	}
	l.given = true
	return l.conn, nil
}
func (l *oneListener) Close() error   { return l.conn.Close() }
func (l *oneListener) Addr() net.Addr { return l.conn.LocalAddr() }
