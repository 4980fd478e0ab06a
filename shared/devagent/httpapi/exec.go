// SPDX-License-Identifier: MPL-2.0

package httpapi

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/coder/websocket"

	"github.com/botscreen/botscreen/shared/devagent/client"
	"github.com/botscreen/botscreen/shared/devagent/server"
	"github.com/botscreen/botscreen/shared/nomadplugin/host"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// The frames of an exec stream are JSON texts with the field names of the plugin
// protocol; bytes are base64, fields with zero values are left out.

type ioFrame struct {
	Data  []byte `json:"data,omitempty"`
	Close bool   `json:"close,omitempty"`
}

type sizeFrame struct {
	Height int32 `json:"height,omitempty"`
	Width  int32 `json:"width,omitempty"`
}

// inputFrame is what a client sends; one without any field is a heartbeat.
type inputFrame struct {
	Stdin   *ioFrame   `json:"stdin,omitempty"`
	TTYSize *sizeFrame `json:"tty_size,omitempty"`
}

type resultFrame struct {
	ExitCode  int32 `json:"exit_code,omitempty"`
	Signal    int32 `json:"signal,omitempty"`
	OOMKilled bool  `json:"oom_killed,omitempty"`
}

type outputFrame struct {
	Stdout *ioFrame     `json:"stdout,omitempty"`
	Stderr *ioFrame     `json:"stderr,omitempty"`
	Exited bool         `json:"exited,omitempty"`
	Result *resultFrame `json:"result,omitempty"`
}

// handshakeFrame is the first frame of clients that cannot set headers.
type handshakeFrame struct {
	Version   int    `json:"version"`
	AuthToken string `json:"auth_token"`
}

const (
	// maxFrame bounds one frame of a client, in bytes.
	maxFrame = 1 << 20
	// handshakeTimeout bounds the wait for the token.
	handshakeTimeout = 5 * time.Second
	// maxReason is what a close frame can carry (RFC 6455, section 5.5).
	maxReason = 123
)

// exec runs a command in a task. As with Nomad the upgrade comes first: refusals are
// close frames, 1008 for the client's faults and 1011 for ours.
func (a *API) exec(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodGet {
		fail(w, refuse(http.StatusMethodNotAllowed, "Invalid method"))
		return
	}
	// The guard has looked at Host and Origin.
	conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{InsecureSkipVerify: true, CompressionMode: websocket.CompressionDisabled})
	if err != nil {
		return
	}
	conn.SetReadLimit(maxFrame)
	// A read whose context ends takes the connection with it, so the context lives until
	// the last frame is written.
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	if err := a.serveExec(ctx, conn, r); err != nil {
		_ = conn.Close(closeCode(err), reason(err))
	}
	_ = conn.CloseNow()
}

// lingerTimeout is how long a client may take to hang up after the exit frame. A
// connection closed with something of the client's unread is reset, and the frame could
// be lost with it.
const lingerTimeout = time.Second

func closeCode(err error) websocket.StatusCode {
	var refusal *server.Error
	if errors.As(err, &refusal) && refusal.Status < http.StatusInternalServerError {
		return websocket.StatusPolicyViolation
	}
	return websocket.StatusInternalError
}

// reason cuts an error to what fits, between characters.
func reason(err error) string {
	text := err.Error()
	for len(text) > maxReason {
		_, size := utf8.DecodeLastRuneInString(text[:maxReason+1])
		text = text[:maxReason+1-size]
	}
	return text
}

func (a *API) serveExec(ctx context.Context, conn *websocket.Conn, r *http.Request) error {
	if handshake(r) && !a.authorized(token(r)) {
		if err := a.receiveToken(ctx, conn); err != nil {
			return err
		}
	}
	setup, task, err := a.execSetup(r)
	if err != nil {
		return err
	}
	instance, err := task.Instance(ctx)
	if err != nil {
		return err
	}
	stream, release, err := instance.OpenExec(ctx)
	if err != nil {
		return err
	}
	defer release()
	setup.TaskId = string(task.ID())
	if err := stream.Send(&driverpb.ExecTaskStreamingRequest{Setup: setup}); err != nil && !errors.Is(err, io.EOF) {
		return pluginError(instance.Describe(ctx, err))
	}
	// A client that is gone ends the command: its read fails and cancels the stream.
	gone := make(chan struct{})
	go func() {
		defer close(gone)
		forwardInput(ctx, conn, stream)
		release()
	}()
	if err := forwardOutput(ctx, conn, stream, instance); err != nil {
		return err
	}
	linger := time.NewTimer(lingerTimeout)
	defer linger.Stop()
	select {
	case <-gone:
	case <-linger.C:
	}
	return nil
}

func (a *API) receiveToken(ctx context.Context, conn *websocket.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, handshakeTimeout)
	defer cancel()
	_, text, err := conn.Read(ctx)
	if err != nil {
		return refuse(http.StatusBadRequest, "failed to read handshake")
	}
	var h handshakeFrame
	if err := json.Unmarshal(text, &h); err != nil || h.Version != 1 {
		return refuse(http.StatusBadRequest, "unexpected handshake value")
	}
	if !a.authorized(h.AuthToken) {
		return refuse(http.StatusForbidden, denied)
	}
	return nil
}

// execSetup reads the parameters and finds the task.
func (a *API) execSetup(r *http.Request) (*driverpb.ExecTaskStreamingRequest_Setup, *client.Task, error) {
	q := r.URL.Query()
	setup := &driverpb.ExecTaskStreamingRequest_Setup{}
	if text := q.Get("tty"); text != "" {
		tty, err := strconv.ParseBool(text)
		if err != nil {
			return nil, nil, refuse(http.StatusBadRequest, "tty value is not a boolean: %v", err)
		}
		setup.Tty = tty
	}
	if q.Get("task") == "" {
		return nil, nil, refuse(http.StatusBadRequest, "taskName is not present")
	}
	if q.Get("command") != "" {
		if err := json.Unmarshal([]byte(q.Get("command")), &setup.Command); err != nil {
			return nil, nil, refuse(http.StatusBadRequest, "failed to parse command: %v", err)
		}
	}
	task, err := a.Client.Task(r.PathValue("id"), q.Get("task"))
	if err != nil {
		return nil, nil, err
	}
	if len(setup.Command) == 0 {
		return nil, nil, refuse(http.StatusBadRequest, "command is not present")
	}
	return setup, task, nil
}

// forwardInput sends what the client writes to the plugin, until either ends. The
// end of a command does not end it: the caller closes the connection then.
func forwardInput(ctx context.Context, conn *websocket.Conn, stream host.ExecStream) {
	for {
		_, text, err := conn.Read(ctx)
		if err != nil {
			return
		}
		var in inputFrame
		if json.Unmarshal(text, &in) != nil {
			return
		}
		msg := &driverpb.ExecTaskStreamingRequest{}
		if in.Stdin != nil {
			msg.Stdin = &driverpb.ExecTaskStreamingIOOperation{Data: in.Stdin.Data, Close: in.Stdin.Close}
		}
		if in.TTYSize != nil {
			msg.TtySize = &driverpb.ExecTaskStreamingRequest_TerminalSize{Height: in.TTYSize.Height, Width: in.TTYSize.Width}
		}
		// A command that ended does not read: its result is on the way.
		_ = stream.Send(msg)
	}
}

func forwardOutput(ctx context.Context, conn *websocket.Conn, stream host.ExecStream, instance *host.Instance) error {
	for {
		msg, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return pluginError(instance.Describe(ctx, err))
		}
		out := outputFrame{Stdout: frame(msg.GetStdout()), Stderr: frame(msg.GetStderr()), Exited: msg.GetExited()}
		if res := msg.GetResult(); res != nil {
			out.Result = &resultFrame{ExitCode: res.GetExitCode(), Signal: res.GetSignal(), OOMKilled: res.GetOomKilled()}
		}
		text, err := json.Marshal(out)
		if err != nil {
			return err
		}
		if err := conn.Write(ctx, websocket.MessageText, text); err != nil {
			return nil
		}
	}
}

func frame(op *driverpb.ExecTaskStreamingIOOperation) *ioFrame {
	if op == nil {
		return nil
	}
	return &ioFrame{Data: op.GetData(), Close: op.GetClose()}
}

// pluginError gives a plugin's error in the words that operators know from Nomad.
func pluginError(err error) error {
	var call *host.CallError
	if errors.As(err, &call) {
		return refuse(http.StatusInternalServerError, "rpc error: code = %s desc = %s", call.GRPCStatus().Code(), call.GRPCStatus().Message())
	}
	return err
}
