// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"

	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/nomadjob"
)

type stopFlags struct {
	purge, force, detach bool
	timeout              time.Duration
}

func (c *cli) stopCommand() *cobra.Command {
	var f stopFlags
	cmd := &cobra.Command{
		Use:   "stop SCREEN",
		Short: "Stop a screen and wait until nothing of it runs",
		Long: `Stop the job of a screen and wait until the screen has ended. Home, logins and lease of its profile stay.

A screen that a person controls is not stopped without -force; neither is a job with more screens than
this one.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.stop(cmd.Context(), args[0], f) },
	}
	cmd.Flags().BoolVar(&f.purge, "purge", false, "make Nomad forget the job too")
	cmd.Flags().BoolVar(&f.force, "force", false, "stop it though a person has control, or its job has more screens")
	cmd.Flags().BoolVar(&f.detach, "detach", false, "do not wait for the end")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 2*time.Minute, "how long to wait")
	return cmd
}

func (c *cli) stop(ctx context.Context, name string, f stopFlags) error {
	client, s, err := c.located(ctx, name)
	if err != nil {
		return err
	}
	if !f.force {
		if err := c.mayStop(ctx, client, s); err != nil {
			return err
		}
	}
	if f.detach {
		if _, _, err := client.Jobs().Deregister(s.Job, f.purge, (&api.WriteOptions{Namespace: s.Namespace}).WithContext(ctx)); err != nil {
			return c.nomadError(err)
		}
		return c.printStopped(s, false)
	}
	soon, cancel := context.WithTimeoutCause(ctx, f.timeout, errTimeout)
	defer cancel()
	err = nomadjob.Stop(soon, client, s.Namespace, s.Job, f.purge)
	switch {
	case err != nil && soon.Err() != nil:
		return failf(exitFailed, "Screen %s has not ended in time; Nomad goes on stopping it. See `botscreen status %s`.", line(s.Path()), s.Alloc[:8])
	case err != nil:
		return c.nomadError(err)
	}
	return c.printStopped(s, true)
}

// mayStop refuses what stops more than was meant.
func (c *cli) mayStop(ctx context.Context, client *api.Client, s nomadjob.Screen) error {
	all, err := nomadjob.List(ctx, client, s.Namespace)
	if err != nil {
		return c.nomadError(err)
	}
	var others []string
	for _, o := range all {
		if o.Job == s.Job && o.Namespace == s.Namespace && o.Live() && (o.Alloc != s.Alloc || o.Task != s.Task) {
			others = append(others, or(line(o.Profile.String()), line(o.Path())))
		}
	}
	if len(others) > 0 {
		return failf(exitFailed, "Job %s has more screens than this one: %s. Stop them all with -force, or change the job's count.", line(s.Job), strings.Join(others, ", "))
	}
	return c.mayStopHeld(ctx, client, s)
}

// mayStopHeld asks the screen itself who holds it: the newest event may be late. Where
// nobody answers the event counts.
func (c *cli) mayStopHeld(ctx context.Context, client *api.Client, s nomadjob.Screen) error {
	if !s.Live() {
		return nil
	}
	human, since := s.Holder == string(lease.Human), ""
	if now, err := c.askSupervisor(ctx, client, s); err == nil && now != nil {
		human, since = now.Lease.Holder == lease.Human, " since "+stamp(now.Lease.Since)
	}
	if human {
		return failf(exitFailed, "A person has controlled this screen%s. Wait for the hand-back, or stop it with --force.", since)
	}
	return nil
}

func (c *cli) printStopped(s nomadjob.Screen, ended bool) error {
	if c.json {
		return c.printJSON(map[string]any{"job": s.Job, "alloc": s.Alloc, "stopped": ended})
	}
	text := "Stopped %s.\n"
	if !ended {
		text = "Stopping %s.\n"
	}
	_, err := fmt.Fprintf(c.out, text, line(s.Path()))
	return err
}
