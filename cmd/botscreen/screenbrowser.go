// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// browserLimit is longer than a wake and the start of a browser may take.
const browserLimit = wakeLimit + 2*time.Minute

func (c *cli) browserCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "browser",
		Short: "Use the one browser of a screen, the person's and the bot's",
	}
	cmd.AddCommand(&cobra.Command{
		Use:   "open SCREEN [URL]",
		Short: "Show an address in a screen's browser, and start the browser if it does not run",
		Long: `Show an address in a screen's browser: http, https, about:blank, or a file of the screen by its absolute path
(file:///…). The browser that people have on the desktop and the one that the agent drives are the same one, with the same logins.
One that runs gets a new tab; without an address it comes to the front. A sleeping screen is woken. Refused while a person has
control.`,
		Args: cobra.RangeArgs(1, 2),
		RunE: func(cmd *cobra.Command, args []string) error {
			address := ""
			if len(args) == 2 {
				address = args[1]
			}
			return c.browserOpen(cmd.Context(), args[0], address)
		},
	})
	cmd.AddCommand(&cobra.Command{
		Use:   "close SCREEN",
		Short: "Ask a screen's browser to go, so that its logins are written down",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			return c.toScreen(cmd.Context(), args[0], browserLimit, "has no browser open any more", func(ctx context.Context, conn *control.Client) error {
				return conn.CloseBrowser(ctx)
			})
		},
	})
	return cmd
}

func (c *cli) browserOpen(ctx context.Context, name, address string) error {
	if address != "" {
		if _, err := screen.ParseBrowserURL(address); err != nil {
			return failf(exitUsage, "The address %w.", err)
		}
	}
	var answer control.BrowserAnswer
	s, err := c.withScreen(ctx, name, browserLimit, func(ctx context.Context, conn *control.Client) (err error) {
		answer, err = conn.OpenBrowser(ctx, control.BrowserRequest{URL: address})
		return err
	})
	if err != nil {
		return err
	}
	if c.json {
		return c.printJSON(struct {
			Screen string `json:"screen"`
			control.BrowserAnswer
		}{s.Path(), answer})
	}
	did := "shows it in the browser that runs"
	switch {
	case answer.HandedOver:
		did = "shows it in a browser that somebody started by hand with the screen's profile; close that one before the agent needs it"
	case answer.Started:
		did = "started its browser"
	}
	_, err = fmt.Fprintf(c.out, "%s %s.\n", line(s.Path()), did)
	return err
}

// browserRow is the status' line about the browser.
func browserRow(b *control.Browser) [2]string {
	text := ""
	switch {
	case b == nil:
	case b.Executable.String() == "":
		text = "none: " + b.Trouble.String()
	default:
		text = fmt.Sprintf("%s, %s, sandbox: %s", b.Version, b.Executable, or(string(b.Sandbox), "unknown"))
		if b.Running {
			text += ", runs"
		} else if b.Trouble.String() != "" {
			text += ", " + b.Trouble.String()
		}
		if b.Warning.String() != "" {
			text += ". " + b.Warning.String()
		}
	}
	return [2]string{"Browser", text}
}
