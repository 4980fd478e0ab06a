// SPDX-License-Identifier: MPL-2.0

package connection

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"syscall"
	"time"
)

// transport bounds every request in time, tries again what may be, and checks that a
// "not found" is Nomad's before anybody believes it.
type transport struct {
	base     http.RoundTripper
	settings Settings
	// leader is set once /v1/status/leader was answered by Nomad.
	leader atomic.Bool
}

// ForeignError says that something answered that is not Nomad.
type ForeignError struct {
	Address string
	Detail  string
}

func (e *ForeignError) Error() string {
	return fmt.Sprintf("%s does not look like Nomad: %s", e.Address, e.Detail)
}

const (
	retryBase  = 250 * time.Millisecond
	retryLimit = 4 * time.Second
	// maxAnswer bounds what is read of an answer that is judged by its text.
	maxAnswer = 64 << 10
)

// RoundTrip tries a request until it is answered or may not be tried again.
func (t *transport) RoundTrip(req *http.Request) (*http.Response, error) {
	body, err := drain(req)
	if err != nil {
		return nil, err
	}
	wait, limit := t.settings.retryBase, t.settings.retryLimit
	if wait == 0 {
		wait, limit = retryBase, retryLimit
	}
	for try := 0; ; try++ {
		resp, err := t.once(req, body)
		if try >= t.settings.MaxRetries || !again(req, resp, err) {
			return t.judge(req, resp, err)
		}
		if resp != nil {
			_ = resp.Body.Close()
		}
		select {
		case <-time.After(wait):
		case <-req.Context().Done():
			return nil, req.Context().Err()
		}
		wait = min(2*wait, limit)
	}
}

// drain takes the body out of a request, so that it can be sent more than once.
func drain(req *http.Request) ([]byte, error) {
	if req.Body == nil {
		return nil, nil
	}
	defer func() { _ = req.Body.Close() }()
	return io.ReadAll(req.Body)
}

// once sends the request, bounded by the request timeout; a blocking query may take its
// own wait time on top.
func (t *transport) once(req *http.Request, body []byte) (*http.Response, error) {
	limit := t.settings.RequestTimeout
	if q := req.URL.Query(); q.Get("index") != "" {
		if d, err := time.ParseDuration(q.Get("wait")); err == nil {
			limit += d + d/8 // Nomad adds up to a sixteenth
		}
	}
	ctx, cancel := context.WithTimeout(req.Context(), limit)
	sent := req.Clone(ctx)
	if body != nil {
		sent.Body = io.NopCloser(bytes.NewReader(body))
		sent.ContentLength = int64(len(body))
	}
	resp, err := t.base.RoundTrip(sent)
	if err != nil {
		cancel()
		return nil, err
	}
	resp.Body = &cancelBody{resp.Body, cancel}
	return resp, nil
}

// cancelBody ends the request's time when the answer was read.
type cancelBody struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (b *cancelBody) Close() error {
	err := b.ReadCloser.Close()
	b.cancel()
	return err
}

// again says whether a request may be sent once more: a reading one after any trouble on
// the way, a writing one only if nobody can have taken it.
func again(req *http.Request, resp *http.Response, err error) bool {
	if req.Context().Err() != nil {
		return false
	}
	if req.Method != http.MethodGet {
		return errors.Is(err, syscall.ECONNREFUSED)
	}
	if err != nil {
		return !untrusted(err)
	}
	return resp.StatusCode == http.StatusTooManyRequests || resp.StatusCode >= http.StatusBadGateway
}

// notFound are Nomad's words for what is not there.
var notFound = []string{
	"variable not found", "job not found", "alloc not found", "eval not found", "node not found", "job versions not found",
	"job source not found", "Namespace not found", "node pool not found",
}

// judge believes an answer only if it can be Nomad's: "404" alone, from a proxy or from
// another program on the port, must never look like a resource that is gone.
func (t *transport) judge(req *http.Request, resp *http.Response, err error) (*http.Response, error) {
	if err != nil {
		return resp, err
	}
	switch {
	case resp.StatusCode == http.StatusNotFound:
	case resp.StatusCode >= 400 && looksLikeHTML(resp):
		return nil, t.foreign(resp, fmt.Sprintf("it answered %d with a page", resp.StatusCode))
	default:
		return resp, nil
	}
	text, readErr := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	_ = resp.Body.Close()
	if readErr != nil {
		return nil, readErr
	}
	resp.Body = io.NopCloser(bytes.NewReader(text))
	if !nomadsWord(plain(resp, text)) {
		return nil, t.foreign(nil, fmt.Sprintf("it answered 404 to %s", req.URL.Path))
	}
	if err := t.checkLeader(req); err != nil {
		return nil, err
	}
	return resp, nil
}

// plain is the text of an answer, which Nomad may have compressed.
func plain(resp *http.Response, text []byte) string {
	if resp.Header.Get("Content-Encoding") != "gzip" {
		return string(text)
	}
	r, err := gzip.NewReader(bytes.NewReader(text))
	if err != nil {
		return ""
	}
	out, err := io.ReadAll(io.LimitReader(r, maxAnswer))
	if err != nil {
		return ""
	}
	return string(out)
}

func nomadsWord(text string) bool {
	text = strings.TrimSpace(text)
	for _, word := range notFound {
		if text == word || strings.HasSuffix(text, word) && len(text) < 256 {
			return true
		}
	}
	return false
}

func looksLikeHTML(resp *http.Response) bool {
	return strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html")
}

func (t *transport) foreign(resp *http.Response, detail string) error {
	if resp != nil {
		_ = resp.Body.Close()
	}
	return &ForeignError{Address: t.settings.Address, Detail: detail}
}

// checkLeader asks once what every Nomad answers to everybody.
func (t *transport) checkLeader(req *http.Request) error {
	if t.leader.Load() {
		return nil
	}
	ask := req.Clone(req.Context())
	ask.Method, ask.Body, ask.ContentLength = http.MethodGet, nil, 0
	ask.URL.Path, ask.URL.RawPath, ask.URL.RawQuery = "/v1/status/leader", "", ""
	resp, err := t.once(ask, nil)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK || !strings.HasPrefix(strings.TrimSpace(plain(resp, text)), `"`) {
		return t.foreign(nil, fmt.Sprintf("it answered %d to /v1/status/leader", resp.StatusCode))
	}
	t.leader.Store(true)
	return nil
}
