// SPDX-License-Identifier: MPL-2.0

package plugin

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/screen"
)

const (
	// reservedPrefix marks commands the driver answers itself, without a process.
	reservedPrefix = "botscreen:"
	// maxOutput bounds what ExecTask keeps of each output; Nomad keeps the last 4 KiB.
	maxOutput = 64 << 10
	// guiCommand in front of a command gives it the desktop's own display rights; without
	// it a command cannot show most windows, nor watch those of others (X3).
	guiCommand = "botscreen:gui"
	// forceCommand in front of a command starts it though a person controls the screen, and
	// lets it go on when one takes it (X19, X20).
	forceCommand = "botscreen:force"
	// notAllowed and notFound are what a shell exits with for a command that it cannot run
	// and for one that does not exist.
	notAllowed, notFound = 126, 127
)

// reserved are the commands there are and the role each one's caller gets.
var reserved = map[string]screen.Role{
	control.CommandControl: screen.RoleOperator,
	control.CommandAgent:   screen.RoleOperator, // acts as agent; who may reach it bypasses the agent's own door
	control.CommandCDP:     screen.RoleOperator, // the same
	control.CommandRFB:     screen.RoleViewer,   // the supervisor asks for more where the stream may send input
}

// ExecTask runs a command to its end, for checks and change scripts. Reserved commands
// are streams and refused here (X19).
func (d *Driver) ExecTask(ctx context.Context, id nomadplugin.TaskID, command []string, timeout time.Duration) (*nomadplugin.ExecResult, error) {
	t, err := d.find(id)
	if err != nil {
		return nil, err
	}
	request, err := execRequest(t.View().Exec, command, false)
	if err != nil {
		return nil, err
	}
	if request.Force { // a check or a script runs whoever holds: nobody decides at that moment
		return nil, fmt.Errorf("exec: %s is for `nomad alloc exec`, not for checks and scripts", forceCommand)
	}
	if timeout > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, timeout)
		defer cancel()
	}
	stdout, stderr := &tail{}, &tail{}
	result, err := t.Exec(ctx, request, strings.NewReader(""), stdout, stderr, nil)
	exit, err := execOutcome(result, err, stderr)
	if err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	return &nomadplugin.ExecResult{Stdout: stdout.Bytes(), Stderr: stderr.Bytes(), Result: exit}, nil
}

// ExecTaskStreaming runs a command with live input and output, or opens the stream of
// a reserved one.
func (d *Driver) ExecTaskStreaming(ctx context.Context, id nomadplugin.TaskID, req nomadplugin.ExecRequest) (*nomadplugin.ExitResult, error) {
	t, err := d.find(id)
	if err != nil {
		return nil, err
	}
	if req.Command[0] == control.CommandImage {
		return image(ctx, t, req)
	}
	if strings.HasPrefix(req.Command[0], reservedPrefix) && !prefixes[req.Command[0]] {
		return tunnel(ctx, t, req)
	}
	request, err := execRequest(t.View().Exec, req.Command, req.TTY)
	if err != nil {
		return nil, err
	}
	resize := make(chan control.TerminalSize)
	go func() {
		defer close(resize)
		for size := range req.Resize {
			select {
			case resize <- control.TerminalSize{Rows: size.Rows, Cols: size.Columns}:
			case <-ctx.Done():
				return
			}
		}
	}()
	result, err := t.Exec(ctx, request, req.Stdin, req.Stdout, req.Stderr, resize)
	return execOutcome(result, err, req.Stderr)
}

// prefixes stand in front of a command and are none themselves.
var prefixes = map[string]bool{guiCommand: true, forceCommand: true}

// execRequest is what the session runs for a command as it came from Nomad.
func execRequest(allowed screen.ExecPolicy, command []string, tty bool) (control.ExecRequest, error) {
	request := control.ExecRequest{Argv: command, TTY: tty}
	last := ""
	for len(request.Argv) > 0 && prefixes[request.Argv[0]] {
		last = request.Argv[0]
		request.GUI = request.GUI || last == guiCommand
		request.Force = request.Force || last == forceCommand
		request.Argv = request.Argv[1:]
	}
	switch {
	case !allowed.Shell:
		return request, errors.New("exec: this screen allows no commands (exec { shell = false } in its job or in the plugin's config)")
	case len(request.Argv) == 0:
		return request, fmt.Errorf("exec: %s needs a command behind it", last)
	case strings.HasPrefix(request.Argv[0], reservedPrefix):
		return request, fmt.Errorf("exec: %q is a stream; use `nomad alloc exec` or the botscreen command", request.Argv[0])
	case request.Force && allowed.Role != screen.RoleOperator:
		return request, fmt.Errorf("exec: %s needs exec { role = \"operator\" }; this screen allows %q", forceCommand, allowed.Role)
	}
	return request, nil
}

// execOutcome tells of a command that was refused or ended the way a shell does: by a
// sentence on standard error and an exit code. Nomad loses the text of
// an error whose caller has closed its input already.
func execOutcome(result control.ExecResult, err error, stderr io.Writer) (*nomadplugin.ExitResult, error) {
	var refusal *control.Error
	switch {
	case errors.As(err, &refusal):
		_, _ = fmt.Fprintln(stderr, refusal.Error())
		if refusal.Kind == control.NotFound {
			return &nomadplugin.ExitResult{ExitCode: notFound}, nil
		}
		return &nomadplugin.ExitResult{ExitCode: notAllowed}, nil
	case err != nil:
		return nil, err
	case result.Error != "" && result.ExitCode == 0:
		return nil, errors.New(result.Error)
	case result.Error != "":
		_, _ = fmt.Fprintln(stderr, result.Error)
	}
	return &nomadplugin.ExitResult{ExitCode: int32(result.ExitCode), Signal: int32(result.Signal)}, nil
}

// tunnel carries bytes between the caller and the supervisor; both ends speak the
// supervisor's API, which this process does not parse.
func tunnel(ctx context.Context, t *task.Task, req nomadplugin.ExecRequest) (*nomadplugin.ExitResult, error) {
	command := req.Command[0]
	role, known := reserved[command]
	switch {
	case !known || len(req.Command) > 1:
		return nil, fmt.Errorf("exec: %q is not a reserved command of this driver", strings.Join(req.Command, " "))
	case req.TTY:
		return nil, fmt.Errorf("exec: %s carries bytes, not a terminal: use -t=false", command)
	case role == screen.RoleOperator && t.View().Exec.Role != screen.RoleOperator:
		return nil, fmt.Errorf("exec: %s needs exec { role = \"operator\" }; this screen allows %q", command, t.View().Exec.Role)
	}
	conn, err := t.Tunnel(ctx, command)
	if err != nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	go func() {
		_, _ = io.Copy(conn, req.Stdin)
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			_ = half.CloseWrite()
		}
	}()
	if _, err := io.Copy(req.Stdout, conn); err != nil && ctx.Err() == nil {
		return nil, fmt.Errorf("exec: %w", err)
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return &nomadplugin.ExitResult{}, nil
}

// tail keeps the end of an output.
type tail struct{ bytes.Buffer }

func (t *tail) Write(p []byte) (int, error) {
	n, _ := t.Buffer.Write(p)
	if extra := t.Len() - maxOutput; extra > 0 {
		t.Next(extra)
	}
	return n, nil
}
