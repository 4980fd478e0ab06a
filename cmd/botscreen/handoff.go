// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/nomadjob"
)

func (c *cli) handoffCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "handoff",
		Short: "List what agents ask people for",
		Long: `List the screens whose agents ask for a person, the oldest request first. What an agent says is its own claim: it
may repeat what a web page told it. Take a screen with ` + "`botscreen take SCREEN`" + ` or ` + "`botscreen view SCREEN`" + ` and hand it
back when you are done.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.handoff(cmd.Context()) },
	}
}

// wanted is one request of an agent.
type wanted struct {
	Screen  string      `json:"screen"` // to be named in other commands
	Profile string      `json:"profile"`
	Ask     control.Ask `json:"ask"`
}

// askedAtOnce bounds how many screens are asked at the same time, each over an exec
// stream of its own.
const askedAtOnce = 8

func (c *cli) handoff(ctx context.Context) error {
	client, err := c.nomad()
	if err != nil {
		return err
	}
	screens, err := nomadjob.List(ctx, client, "")
	if err != nil {
		return c.nomadError(err)
	}
	all, silent := c.askScreens(ctx, client, screens)
	if c.json {
		if err := c.printJSON(nonNil(all)); err != nil {
			return err
		}
	} else if err := c.printWanted(all); err != nil {
		return err
	}
	if len(silent) > 0 {
		return failf(exitFailed, "%d screens cannot be asked; the first is %s.", len(silent), silent[0])
	}
	return nil
}

// askScreens gives what is asked for, the oldest first, and which screens do not answer.
func (c *cli) askScreens(ctx context.Context, client *api.Client, screens []nomadjob.Screen) (all []wanted, silent []string) {
	var mu sync.Mutex // guards all and silent
	var group sync.WaitGroup
	places := make(chan struct{}, askedAtOnce)
	for _, s := range screens {
		if !s.Live() {
			continue
		}
		group.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			status, err := statusOf(ctx, client, s)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				silent = append(silent, fmt.Sprintf("%s: %v", line(s.Path()), err))
			}
			for _, ask := range status.Asks {
				all = append(all, wanted{Screen: s.Path(), Profile: s.Profile.String(), Ask: ask})
			}
		})
	}
	group.Wait()
	sortWanted(all)
	return all, silent
}

func (c *cli) printWanted(all []wanted) error {
	if len(all) == 0 {
		_, err := fmt.Fprintln(c.out, "No agent asks for a person.")
		return err
	}
	var rows [][]string
	for _, w := range all {
		name := w.Profile
		if name == "" {
			name = w.Screen
		}
		rows = append(rows, []string{dash(name), ago(w.Ask.Since), untilDeadline(w.Ask.Deadline), dash(w.Ask.Reason.String())})
	}
	return c.table([]string{"SCREEN", "ASKED", "DEADLINE IN", "THE AGENT SAYS"}, rows)
}

func untilDeadline(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return max(0, time.Until(t)).Round(time.Second).String()
}

func sortWanted(all []wanted) {
	slices.SortFunc(all, func(a, b wanted) int { return a.Ask.Since.Compare(b.Ask.Since) })
}
