// SPDX-License-Identifier: MPL-2.0

package control

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/botscreen/botscreen/shared/lease"
)

// Dialer opens one connection to a supervisor: its Unix socket, an exec stream
// after OpenTunnel, or the end of a pipe in a test.
type Dialer func(ctx context.Context) (net.Conn, error)

// maxSocketPath is the longest path of a Unix socket in bytes, see unix(7).
const maxSocketPath = 107

// Unix dials the supervisor's socket at path, which may be longer than an address: an
// agent's socket lies deep in Nomad's directories.
func Unix(path string) Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		if len(path) <= maxSocketPath {
			return d.DialContext(ctx, "unix", path)
		}
		dir, err := os.Open(filepath.Dir(path))
		if err != nil {
			return nil, err
		}
		defer dir.Close()
		return d.DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d/%s", dir.Fd(), filepath.Base(path)))
	}
}

// Bounds on what the client believes from the other side, in bytes.
const (
	maxJSONBody  = 1 << 20
	maxPicture   = 192 << 20 // the largest screen as PNG that does not compress
	maxEventLine = 64 << 10
)

// Client calls one supervisor. It is safe for concurrent use. Refusals are
// *Error; everything else is a fault of the connection.
type Client struct {
	dial Dialer
	http *http.Client
}

// NewClient calls the supervisor that dial reaches. Nothing is opened before the
// first call.
func NewClient(dial Dialer) *Client {
	transport := &http.Transport{
		DialContext:        func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		DisableCompression: true,
		MaxIdleConns:       2,
		IdleConnTimeout:    30 * time.Second,
	}
	return &Client{dial: dial, http: &http.Client{Transport: transport}}
}

// Close drops idle connections; running calls go on.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status reads everything there is to say about the screen.
func (c *Client) Status(ctx context.Context) (Status, error) {
	return get[Status](ctx, c, CallStatus)
}

// Lease reads who holds the screen.
func (c *Client) Lease(ctx context.Context) (lease.Public, error) {
	return get[lease.Public](ctx, c, CallLease)
}

// Take gives the screen to a viewer and returns the lease that holds then.
func (c *Client) Take(ctx context.Context, req TakeRequest) (lease.Public, error) {
	return ask[lease.Public](ctx, c, CallTake, req)
}

// Release hands the screen back and returns the lease that holds then.
func (c *Client) Release(ctx context.Context, req ReleaseRequest) (lease.Public, error) {
	return ask[lease.Public](ctx, c, CallRelease, req)
}

// Ask asks for a person.
func (c *Client) Ask(ctx context.Context, req AskRequest) (Ask, error) {
	return ask[Ask](ctx, c, CallAsk, req)
}

// AwaitAsk says what became of an ask, as soon as it is over and at the latest after
// wait, which is at most MaxAskWait.
func (c *Client) AwaitAsk(ctx context.Context, id string, wait time.Duration) (AskOutcome, error) {
	var outcome AskOutcome
	req, err := newRequest(ctx, CallAwaitAsk, url.Values{"wait": {wait.String()}}, nil)
	if err != nil {
		return outcome, err
	}
	req.URL.Path = strings.Replace(req.URL.Path, "{id}", id, 1)
	resp, err := c.do(CallAwaitAsk, req)
	err = decodeAnswer(CallAwaitAsk, resp, err, &outcome)
	return outcome, err
}

// MintTicket makes a ticket for one viewer.
func (c *Client) MintTicket(ctx context.Context, req TicketRequest) (Ticket, error) {
	return ask[Ticket](ctx, c, CallMintTicket, req)
}

// RevokeTicket ends a ticket and the view that it opened; AllTickets ends them all. One that
// there is not is a NotFound.
func (c *Client) RevokeTicket(ctx context.Context, id string) error {
	req, err := newRequest(ctx, CallRevokeTicket, nil, nil)
	if err != nil {
		return err
	}
	req.URL.Path = strings.Replace(req.URL.Path, "{id}", id, 1)
	resp, err := c.do(CallRevokeTicket, req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Stats reads what the screen uses.
func (c *Client) Stats(ctx context.Context) (Stats, error) {
	return get[Stats](ctx, c, CallStats)
}

// Wait returns how the screen ended, as soon as it has.
func (c *Client) Wait(ctx context.Context) (Exit, error) {
	return get[Exit](ctx, c, CallWait)
}

// Stop ends the screen and returns when nothing of it is left.
func (c *Client) Stop(ctx context.Context, req StopRequest) error {
	resp, err := c.call(ctx, CallStop, nil, req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Signal signals the programs on the desktop.
func (c *Client) Signal(ctx context.Context, req SignalRequest) error {
	resp, err := c.call(ctx, CallSignal, nil, req)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// Screenshot takes a picture.
func (c *Client) Screenshot(ctx context.Context, req ScreenshotRequest) (Screenshot, error) {
	resp, err := c.call(ctx, CallScreenshot, req.Query(), nil)
	if err != nil {
		return Screenshot{}, err
	}
	defer resp.Body.Close()
	data, err := readBounded(resp.Body, maxPicture)
	if err != nil {
		return Screenshot{}, fmt.Errorf("read screenshot: %w", err)
	}
	epoch, err := strconv.ParseUint(resp.Header.Get(HeaderEpoch), 10, 64)
	if err != nil {
		return Screenshot{}, fmt.Errorf("read screenshot: header %s: %w", HeaderEpoch, err)
	}
	shot := Screenshot{
		Format: ImageFormat(strings.TrimPrefix(resp.Header.Get("Content-Type"), "image/")),
		Data:   data,
		Epoch:  lease.Epoch(epoch),
		Hash:   resp.Header.Get(HeaderHash),
		Late:   resp.Header.Get(HeaderLate) == "true",
	}
	// An older supervisor does not say it.
	width, height, _ := strings.Cut(resp.Header.Get(HeaderScreen), "x")
	shot.Screen.WidthPx, _ = strconv.Atoi(width)
	shot.Screen.HeightPx, _ = strconv.Atoi(height)
	return shot, nil
}

// Events yields what happened after the event numbered since (0: all that is
// still remembered) and then what happens, until ctx ends, the loop is left, or
// an error was yielded.
func (c *Client) Events(ctx context.Context, since uint64) iter.Seq2[Event, error] {
	return func(yield func(Event, error) bool) {
		q := url.Values{"since": {strconv.FormatUint(since, 10)}}
		resp, err := c.call(ctx, CallEvents, q, nil)
		if err != nil {
			yield(Event{}, err)
			return
		}
		defer resp.Body.Close()
		lines := bufio.NewScanner(resp.Body)
		lines.Buffer(nil, maxEventLine)
		for lines.Scan() {
			if len(lines.Bytes()) == 0 {
				continue // a sign of life
			}
			var event Event
			if err := json.Unmarshal(lines.Bytes(), &event); err != nil {
				yield(Event{}, fmt.Errorf("read event: %w", err))
				return
			}
			if !yield(event, nil) {
				return
			}
		}
		err = lines.Err()
		if err == nil {
			err = io.ErrUnexpectedEOF // the stream has no end of its own
		}
		yield(Event{}, fmt.Errorf("read events: %w", causeOf(ctx, err)))
	}
}

// Exec starts a program inside the session.
func (c *Client) Exec(ctx context.Context, req ExecRequest) (*ExecStream, error) {
	conn, err := c.Stream(ctx, CallExec, nil, req)
	if err != nil {
		return nil, err
	}
	return NewExecStream(conn), nil
}

// Tunnel asks for a byte stream that is to carry one reserved command; the hello
// and everything after it are the caller's bytes.
func (c *Client) Tunnel(ctx context.Context, command string) (net.Conn, error) {
	return c.Stream(ctx, CallTunnel, url.Values{"command": {command}}, nil)
}

func get[T any](ctx context.Context, c *Client, call Call) (T, error) {
	return ask[T](ctx, c, call, nil)
}

// ask makes a call whose answer is JSON.
func ask[T any](ctx context.Context, c *Client, call Call, body any) (T, error) {
	var answer T
	resp, err := c.call(ctx, call, nil, body)
	err = decodeAnswer(call, resp, err, &answer)
	return answer, err
}

func decodeAnswer(call Call, resp *http.Response, err error, answer any) error {
	return decodeAnswerOf(call, resp, err, answer, maxJSONBody)
}

func decodeAnswerOf(call Call, resp *http.Response, err error, answer any, most int64) error {
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	text, err := readBounded(resp.Body, most)
	if err == nil {
		err = json.Unmarshal(text, answer)
	}
	if err != nil {
		return fmt.Errorf("read %s: %w", call, err)
	}
	return nil
}

// call makes one request and turns every answer but success into an error.
func (c *Client) call(ctx context.Context, call Call, q url.Values, body any) (*http.Response, error) {
	req, err := newRequest(ctx, call, q, body)
	if err != nil {
		return nil, err
	}
	return c.do(call, req)
}

func (c *Client) do(call Call, req *http.Request) (*http.Response, error) {
	resp, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", call, err)
	}
	if resp.StatusCode/100 == 2 {
		return resp, nil
	}
	defer resp.Body.Close()
	return nil, refusal(call, resp)
}

func newRequest(ctx context.Context, call Call, q url.Values, body any) (*http.Request, error) {
	route, ok := RouteOf(call)
	if !ok {
		return nil, fmt.Errorf("call %s: not in the route table", call)
	}
	var payload io.Reader
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return nil, fmt.Errorf("call %s: %w", call, err)
		}
		payload = bytes.NewReader(text)
	}
	target := url.URL{Scheme: "http", Host: "botscreen", Path: route.Path, RawQuery: q.Encode()}
	req, err := http.NewRequestWithContext(ctx, route.Method, target.String(), payload)
	if err != nil {
		return nil, fmt.Errorf("call %s: %w", call, err)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	return req, nil
}

// refusal reads the error of an answer that is not a success.
func refusal(call Call, resp *http.Response) error {
	body, err := readBounded(resp.Body, maxJSONBody)
	if err != nil {
		return fmt.Errorf("call %s: %s: %w", call, resp.Status, err)
	}
	var answer errorBody
	if json.Unmarshal(body, &answer) != nil || answer.Error == nil {
		return fmt.Errorf("call %s: %s", call, resp.Status)
	}
	return answer.Error
}

func readBounded(r io.Reader, most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, most+1))
	if err == nil && int64(len(data)) > most {
		err = fmt.Errorf("more than %d bytes", most)
	}
	return data, err
}
