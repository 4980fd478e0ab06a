// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"io"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"
)

type logFlags struct {
	follow, stderr bool
	tail           int64
}

func (c *cli) logsCommand() *cobra.Command {
	var f logFlags
	cmd := &cobra.Command{
		Use:   "logs SCREEN",
		Short: "Show what a screen wrote",
		Long: `Show the log of a screen: of its desktop, or with -stderr its error output. On a terminal, characters that
could change what the terminal shows are replaced.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.logs(cmd.Context(), args[0], f) },
	}
	cmd.Flags().BoolVarP(&f.follow, "follow", "f", false, "go on with what is written from now on")
	cmd.Flags().BoolVar(&f.stderr, "stderr", false, "show the error output")
	cmd.Flags().Int64VarP(&f.tail, "tail", "c", 0, "show the last `BYTES` only")
	return cmd
}

func (c *cli) logs(ctx context.Context, name string, f logFlags) error {
	client, s, err := c.located(ctx, name)
	if err != nil {
		return err
	}
	stream, origin := api.FSLogNameStdout, api.OriginStart
	if f.stderr {
		stream = api.FSLogNameStderr
	}
	if f.tail > 0 {
		origin = api.OriginEnd
	}
	cancel := make(chan struct{})
	defer close(cancel)
	alloc := &api.Allocation{ID: s.Alloc, NodeID: s.NodeID, Namespace: s.Namespace}
	frames, errs := client.AllocFS().Logs(alloc, f.follow, s.Task, stream, origin, f.tail, cancel, &api.QueryOptions{Namespace: s.Namespace})
	out := c.out
	if terminal(c.out) {
		out = &cleanWriter{w: c.out}
	}
	for {
		select {
		case frame, ok := <-frames:
			if !ok {
				return nil
			}
			if _, err := out.Write(frame.Data); err != nil {
				return err
			}
		case err := <-errs:
			if errors.Is(err, io.EOF) {
				return nil
			}
			return c.nomadError(err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}
