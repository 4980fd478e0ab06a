// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"github.com/spf13/cobra"

	"github.com/botscreen/botscreen/cmd/botscreen/toolbox"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/nomadjob"
)

func (c *cli) mcpCommand() *cobra.Command {
	var socket string
	cmd := &cobra.Command{
		Use:   "mcp [SCREEN | --socket PATH]",
		Short: "Give an agent its screen as MCP tools over standard input and output",
		Long: `Give an agent its screen as the tools of an MCP server over standard input and output: screenshot, click, type,
key and the others, and tools to ask for a person and to wait for the hand-back. While a person controls the screen
each of them is refused and says so; afterwards the agent has to look again before it can act.

With SCREEN the screen is reached through Nomad's alloc exec; the token then needs alloc-exec and alloc-node-exec,
with which its bearer may do more than an agent should. With --socket it is reached through the agent's socket,
which has no other rights: in a task beside the screen it is $NOMAD_ALLOC_DIR/botscreen/TASK.sock, and is found
there where neither is named.

Standard output carries the protocol alone. A supervisor that was replaced is reached again.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			dial, err := c.agentDoor("mcp", args, socket)
			if err != nil {
				return err
			}
			return c.mcp(cmd.Context(), dial)
		},
	}
	cmd.Flags().StringVar(&socket, "socket", "", "`PATH` of the agent's socket")
	return cmd
}

func (c *cli) mcp(ctx context.Context, dial control.Dialer) error {
	client := control.NewClient(patient(dial))
	defer client.Close()
	transport := &mcp.IOTransport{Reader: io.NopCloser(c.in), Writer: noClose{c.out}}
	err := toolbox.New(client).Server(Version).Run(ctx, transport)
	if err == nil || ctx.Err() != nil || errors.Is(err, io.EOF) {
		return nil // the agent left
	}
	return failf(exitFailed, "The MCP session ended: %v.", err)
}

// noClose is standard output: it is not this session's to close.
type noClose struct{ io.Writer }

func (noClose) Close() error { return nil }

// agentDoor is the way to the screen that the command line, or the task, names for the
// command.
func (c *cli) agentDoor(command string, args []string, socket string) (control.Dialer, error) {
	switch {
	case socket != "" && len(args) > 0:
		return nil, failf(exitUsage, "Name either a screen or its socket, not both.")
	case len(args) > 0:
		return c.dialAgent(args[0]), nil
	case socket == "":
		found, err := siblingSocket(command)
		if err != nil {
			return nil, err
		}
		socket = found
	}
	return control.Unix(socket), nil
}

// siblingSocket is the one agent's socket of the allocation this process is a task of.
func siblingSocket(command string) (string, error) {
	dir := os.Getenv("NOMAD_ALLOC_DIR")
	if dir == "" {
		return "", failf(exitUsage, "Say which screen: `botscreen %[1]s SCREEN`, or `botscreen %[1]s --socket PATH`.", command)
	}
	found, err := filepath.Glob(filepath.Join(escapeGlob(dir), "botscreen", "*.sock"))
	switch {
	case err == nil && len(found) == 1:
		return found[0], nil
	case len(found) > 1:
		return "", failf(exitUsage, "This allocation has %d screens. Say which one with --socket PATH.", len(found))
	}
	return "", failf(exitNotFound, "This allocation has no agent's socket in %s. A screen makes one where its job says agent_socket { }.", filepath.Join(dir, "botscreen"))
}

func escapeGlob(path string) string {
	var out []rune
	for _, r := range path {
		if r == '*' || r == '?' || r == '[' || r == '\\' {
			out = append(out, '\\')
		}
		out = append(out, r)
	}
	return string(out)
}

// dialAgent finds the screen anew for each connection: it may have moved.
func (c *cli) dialAgent(name string) control.Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		client, s, err := c.running(ctx, name)
		if err != nil {
			return nil, err
		}
		return nomadjob.DialAgent(client, s)(ctx)
	}
}

// How long an agent's call waits for a door that does not open, and how often it tries:
// a supervisor that died is replaced within a second or two.
const (
	doorPatience = 15 * time.Second
	doorPause    = 250 * time.Millisecond
)

// patient tries again where a door does not open. Nothing has been asked by then, so
// nothing is done twice. Refusals, and screens that do not exist, are final.
func patient(dial control.Dialer) control.Dialer {
	return func(ctx context.Context) (net.Conn, error) {
		over := time.Now().Add(doorPatience)
		for {
			conn, err := dial(ctx)
			var refusal *control.Error
			var exit *exitError
			if err == nil || errors.As(err, &refusal) || errors.As(err, &exit) || time.Now().After(over) {
				return conn, err
			}
			select {
			case <-time.After(doorPause):
			case <-ctx.Done():
				return nil, fmt.Errorf("%w (%w)", context.Cause(ctx), err)
			}
		}
	}
}
