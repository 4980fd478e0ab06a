// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/nomadjob"
	"github.com/botscreen/botscreen/shared/screen"
)

func (c *cli) leaseCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "lease SCREEN",
		Short: "Show who controls a screen: the agent or a person",
		Long: `Show who controls a screen: the agent or a person, since when and why, and the epoch, a number that grows at
every change of hands. A person is shown by a name that gives no power.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.withLease(cmd.Context(), args[0], func(ctx context.Context, conn *control.Client) (lease.Public, error) {
				return conn.Lease(ctx)
			})
		},
	}
}

func (c *cli) takeCommand() *cobra.Command {
	var reason string
	cmd := &cobra.Command{
		Use:   "take SCREEN",
		Short: "Take control of a screen: the agent is kept out until you release it",
		Long: `Take control of a screen, from the agent or from another person. Until you release it the agent gets neither
pictures nor input, and no commands are run in the session without -force; those that run are ended.
The screen keeps it when its supervisor dies and when its job is stopped and started.

Who you are is a secret in your state directory (` + "`$XDG_STATE_HOME/botscreen/viewer`" + `), made at the first use.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			viewer, err := viewerID()
			if err != nil {
				return err
			}
			notice := ""
			err = c.withLease(cmd.Context(), args[0], func(ctx context.Context, conn *control.Client) (lease.Public, error) {
				held, err := conn.Take(ctx, control.TakeRequest{Viewer: viewer, Reason: screen.Distrust(reason)})
				if err != nil {
					return held, err
				}
				if status, err := conn.Status(ctx); err == nil { // the screen is theirs in any case
					notice = status.Notice
				}
				return held, nil
			})
			if notice != "" && !c.json {
				_, _ = fmt.Fprintln(c.errs, clean(notice))
			}
			return err
		},
	}
	cmd.Flags().StringVar(&reason, "reason", "", "why; everybody who sees the screen's status and events reads it")
	return cmd
}

func (c *cli) releaseCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use:   "release SCREEN",
		Short: "Hand a screen back to its agent",
		Long: `Hand a screen that you control back to its agent. With -force also one that somebody else controls, or of
which cannot be told who does.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			req := control.ReleaseRequest{Force: force}
			if !force {
				viewer, err := viewerID()
				if err != nil {
					return err
				}
				req.Viewer = viewer
			}
			return c.withLease(cmd.Context(), args[0], func(ctx context.Context, conn *control.Client) (lease.Public, error) {
				return conn.Release(ctx, req)
			})
		},
	}
	cmd.Flags().BoolVar(&force, "force", false, "whoever controls it")
	return cmd
}

// withLease makes a call of a screen's supervisor and prints the lease that follows.
func (c *cli) withLease(ctx context.Context, name string, call func(context.Context, *control.Client) (lease.Public, error)) error {
	var held lease.Public
	s, err := c.withScreen(ctx, name, reachTimeout, func(ctx context.Context, conn *control.Client) (err error) {
		held, err = call(ctx, conn)
		return err
	})
	if err != nil {
		return err
	}
	return c.printLease(s, held)
}

// leaseAnswer is what the three commands print for programs.
type leaseAnswer struct {
	lease.Public
	You bool `json:"you"` // you hold
}

func (c *cli) printLease(s nomadjob.Screen, held lease.Public) error {
	answer := leaseAnswer{Public: held, You: held.Holder == lease.Human && held.Viewer != "" && held.Viewer == ownHandle()}
	if c.json {
		return c.printJSON(answer)
	}
	_, err := fmt.Fprintln(c.out, leaseSentence(s.Path(), answer))
	return err
}

func leaseSentence(path string, l leaseAnswer) string {
	who := "The agent controls"
	switch {
	case l.You:
		who = "You control"
	case l.Holder == lease.Human && l.Viewer == "":
		who = "Somebody who cannot be told controls"
	case l.Holder == lease.Human:
		who = fmt.Sprintf("A person (%s) controls", line(string(l.Viewer)))
	}
	text := fmt.Sprintf("%s %s since %s (epoch %d).", who, line(path), stamp(l.Since), l.Epoch)
	if reason := l.Reason.String(); reason != "" {
		text += " Reason: " + line(reason) + "."
	}
	switch {
	case l.You:
		text += " Hand it back with `botscreen release`."
	case l.Holder == lease.Human && l.Viewer == "":
		text += " Free it with `botscreen release --force`."
	}
	return text
}
