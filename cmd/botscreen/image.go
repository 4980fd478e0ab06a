// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/nomadjob"
)

// imageLimit is longer than a pull may take.
const imageLimit = 12 * time.Minute

func (c *cli) imageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "See which images screens run, and decide about another one",
		Long: `The reference of a screen's image is resolved once, at its first start, and kept with its profile: a tag that moves
changes no screen. "check" shows what the reference means by now, and "switch" or "keep" is the decision about it.`,
	}
	cmd.AddCommand(
		&cobra.Command{
			Use: "ls", Short: "List what each screen runs and what its next start takes", Args: cobra.NoArgs,
			RunE: func(cmd *cobra.Command, _ []string) error { return c.imageList(cmd.Context()) },
		},
		c.imageAction("check SCREEN", "Ask what the reference of a screen's image means by now; exit code 1 when a decision is due", control.ImageCheck),
		c.imageAction("pull SCREEN", "Bring that image to the screen's node without using it", control.ImagePull),
		c.imageAction("keep SCREEN", "Decide to stay with the image the screen has", control.ImageKeep),
		c.imageSwitchCommand(),
	)
	return cmd
}

func (c *cli) imageAction(use, short string, action control.ImageAction) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.image(cmd.Context(), args[0], action) },
	}
}

func (c *cli) imageSwitchCommand() *cobra.Command {
	var force bool
	cmd := &cobra.Command{
		Use: "switch SCREEN", Short: "Pull the image that the reference means by now, and restart the screen with it",
		Long: `Pull the image that the reference means by now, and when it is there restart the screen with it. A failed pull leaves
the screen as it is. Home and logins stay. A screen that a person controls is not restarted without --force.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.imageSwitch(cmd.Context(), args[0], force) },
	}
	cmd.Flags().BoolVar(&force, "force", false, "restart it though a person has control")
	return cmd
}

// imageRow is one screen of `image ls`.
type imageRow struct {
	Screen string `json:"screen"`
	*control.ImageState
	Error string `json:"error,omitempty"`
}

func (c *cli) imageList(ctx context.Context) error {
	client, err := c.nomad()
	if err != nil {
		return err
	}
	all, err := nomadjob.List(ctx, client, "")
	if err != nil {
		return c.nomadError(err)
	}
	rows := []imageRow{}
	for _, s := range all {
		if !s.Live() || s.TaskState != "running" {
			continue
		}
		row := imageRow{Screen: s.Path()}
		if state, err := c.askImage(ctx, client, s, control.ImageShow); err != nil {
			row.Error = err.Error()
		} else {
			row.ImageState = &state
		}
		rows = append(rows, row)
	}
	if c.json {
		return c.printJSON(rows)
	}
	var table [][]string
	for _, r := range rows {
		if r.ImageState == nil {
			table = append(table, []string{line(r.Screen), "-", line(r.Error), "-", "-"})
			continue
		}
		next := "the same"
		if r.Next != r.Runs {
			next = shortDigest(r.Next)
		}
		table = append(table, []string{line(r.Screen), line(string(r.Isolation)), line(r.Reference), shortDigest(r.Runs), next})
	}
	return c.table([]string{"SCREEN", "ISOLATION", "IMAGE", "RUNS", "NEXT START"}, table)
}

func shortDigest(digest string) string {
	const shown = len("sha256:") + 12
	if digest == "" {
		return "-"
	}
	return line(digest[:min(shown, len(digest))])
}

func (c *cli) image(ctx context.Context, name string, action control.ImageAction) error {
	client, s, err := c.located(ctx, name)
	if err != nil {
		return err
	}
	state, err := c.askImage(ctx, client, s, action)
	if err != nil {
		return err
	}
	if c.json {
		err = c.printJSON(imageRow{Screen: s.Path(), ImageState: &state})
	} else {
		_, err = fmt.Fprint(c.out, imageText(s, state, action))
	}
	if err == nil && action == control.ImageCheck && state.Due() {
		return &exitError{code: exitFailed}
	}
	return err
}

// imageText says how things stand in sentences.
func imageText(s nomadjob.Screen, state control.ImageState, action control.ImageAction) string {
	text := fmt.Sprintf("%s runs %s (%s).\n", line(s.Path()), line(state.Reference), shortDigest(state.Runs))
	if state.Next != "" && state.Next != state.Runs {
		text += fmt.Sprintf("Its next start takes %s.\n", shortDigest(state.Next))
	}
	switch {
	case state.Latest == "":
		text += "What the reference means by now is known only after a pull.\n"
	case state.Latest == state.Next:
		text += "The reference means that image still.\n"
	case state.Kept:
		text += fmt.Sprintf("The reference means %s by now; it was decided to stay.\n", shortDigest(state.Latest))
	default:
		text += fmt.Sprintf("The reference means %s by now. Decide with `botscreen image switch` or `botscreen image keep`.\n", shortDigest(state.Latest))
	}
	if action == control.ImagePull {
		text += "It is on the node; the screen goes on with its own.\n"
	}
	return text
}

// imageSwitch pulls first and replaces then (P5).
func (c *cli) imageSwitch(ctx context.Context, name string, force bool) error {
	client, s, err := c.located(ctx, name)
	if err != nil {
		return err
	}
	if !force {
		if err := c.mayStopHeld(ctx, client, s); err != nil {
			return err
		}
	}
	state, err := c.askImage(ctx, client, s, control.ImageSwitch)
	if err != nil {
		return err
	}
	if state.Next == state.Runs {
		if c.json {
			return c.printJSON(imageRow{Screen: s.Path(), ImageState: &state})
		}
		_, err := fmt.Fprintf(c.out, "%s runs that image already (%s).\n", line(s.Path()), shortDigest(state.Runs))
		return err
	}
	alloc := &api.Allocation{ID: s.Alloc, NodeID: s.NodeID, Namespace: s.Namespace}
	if err := client.Allocations().Restart(alloc, s.Task, (&api.QueryOptions{Namespace: s.Namespace}).WithContext(ctx)); err != nil {
		return c.nomadError(err)
	}
	if c.json {
		return c.printJSON(imageRow{Screen: s.Path(), ImageState: &state})
	}
	_, err = fmt.Fprintf(c.out, "%s restarts with %s (%s); it ran %s.\n", line(s.Path()), line(state.Reference), shortDigest(state.Next), shortDigest(state.Runs))
	return err
}

// askImage asks the driver on the screen's node.
func (c *cli) askImage(ctx context.Context, client *api.Client, s nomadjob.Screen, action control.ImageAction) (control.ImageState, error) {
	var state control.ImageState
	if !s.Live() || s.TaskState != "running" {
		return state, failf(exitFailed, "Screen %s does not run (%s): its image is looked at by the driver that runs it.", line(s.Path()), word(s))
	}
	ctx, cancel := context.WithTimeout(ctx, imageLimit)
	defer cancel()
	alloc := &api.Allocation{ID: s.Alloc, NodeID: s.NodeID, Namespace: s.Namespace}
	var out, errs bytes.Buffer
	code, err := client.Allocations().Exec(ctx, alloc, s.Task, false, []string{control.CommandImage, string(action)},
		ioReader{strings.NewReader("")}, &out, &errs, nil, &api.QueryOptions{Namespace: s.Namespace})
	switch {
	case err != nil:
		return state, c.nomadError(err)
	case code != 0:
		return state, failf(exitFailed, "%s", line(strings.TrimSpace(errs.String())))
	}
	if err := json.Unmarshal(out.Bytes(), &state); err != nil {
		return state, failf(exitFailed, "The driver of %s does not answer as this command expects. Use the botscreen command of the same release as the driver.", line(s.Path()))
	}
	return state, nil
}
