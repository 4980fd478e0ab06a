// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/botscreen/botscreen/shared/control"
)

// wakeLimit is longer than any start may take.
const wakeLimit = 12 * time.Minute

func (c *cli) sleepCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "sleep SCREEN",
		Short: "End a screen's desktop until somebody uses it again",
		Long: `End the programs of a screen's desktop, and with them what is open on it, while its task, its lease and its home
stay. The next use starts the desktop again: a view, a screenshot, a command, an action of the agent, a takeover. Refused while
somebody uses the screen. With idle_stop in the job it happens by itself.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.toScreen(cmd.Context(), args[0], reachTimeout, "sleeps", func(ctx context.Context, conn *control.Client) error { return conn.Sleep(ctx) })
		},
	}
}

func (c *cli) wakeCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "wake SCREEN",
		Short: "Start a sleeping screen's desktop, and wait until it is ready",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.toScreen(cmd.Context(), args[0], wakeLimit, "is ready", func(ctx context.Context, conn *control.Client) error { return conn.Wake(ctx) })
		},
	}
}

// toScreen makes a call that answers nothing, and says what the screen does then.
func (c *cli) toScreen(ctx context.Context, name string, limit time.Duration, now string, call func(context.Context, *control.Client) error) error {
	s, err := c.withScreen(ctx, name, limit, call)
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(struct {
			Screen string `json:"screen"`
			Done   bool   `json:"done"`
		}{s.Path(), true})
	}
	_, err = fmt.Fprintf(c.out, "%s %s.\n", line(s.Path()), now)
	return err
}
