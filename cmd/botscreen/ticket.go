// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/botscreen/botscreen/shared/control"
)

type ticketFlags struct{ mode, revoke string }

func (c *cli) ticketCommand() *cobra.Command {
	var f ticketFlags
	cmd := &cobra.Command{
		Use:   "ticket SCREEN",
		Short: "Make a link by which somebody without access to Nomad sees a screen",
		Long: `Make a link to a screen's viewer listener for somebody who has no access to Nomad (and must not have: who may
view through Nomad may also open shells). It opens one view, once, within 30 seconds; a view whose connection
breaks comes back by itself. With -mode control whoever opens it can take the screen over.

The screen's job must have a viewer listener: viewer { port = "label", tls_cert, tls_key }.
-revoke ends a ticket and the view that it opened; -revoke all ends all of the screen's.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.ticket(cmd.Context(), args[0], f) },
	}
	cmd.Flags().StringVar(&f.mode, "mode", string(control.Watch), "watch, or control")
	cmd.Flags().StringVar(&f.revoke, "revoke", "", "end the ticket of this `ID`, or \"all\"")
	return cmd
}

func (c *cli) ticket(ctx context.Context, name string, f ticketFlags) error {
	req := control.TicketRequest{Mode: control.ViewMode(f.mode)}
	if err := req.Check(); err != nil {
		return failf(exitUsage, "Cannot make a ticket: %v.", err)
	}
	s, conn, err := c.reach(ctx, name)
	if err != nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := context.WithTimeout(ctx, viewTimeout)
	defer cancel()
	if f.revoke != "" {
		if err := conn.RevokeTicket(ctx, f.revoke); err != nil {
			return c.screenError(s, err)
		}
		said := "The ticket and the view that it opened have ended."
		if f.revoke == control.AllTickets {
			said = "All tickets of the screen and the views that they opened have ended."
		}
		_, err := fmt.Fprintln(c.out, said)
		return err
	}
	made, err := conn.MintTicket(ctx, req)
	if err != nil {
		return c.screenError(s, err)
	}
	if made.Address == "" {
		err := failf(exitFailed, "Screen %s has no viewer listener, so a ticket opens nothing. Give its job one: viewer { port = \"label\" }. People with access to Nomad use `botscreen view`.", line(s.Path()))
		return errors.Join(err, conn.RevokeTicket(ctx, made.ID))
	}
	return c.printTicket(made)
}

func (c *cli) printTicket(made control.Ticket) error {
	if c.json {
		return c.printJSON(struct {
			control.Ticket
			URL string `json:"url"`
		}{made, made.URL()})
	}
	may := "to watch"
	if made.Mode == control.Control {
		may = "to watch and to take over"
	}
	if _, err := fmt.Fprintln(c.out, line(made.URL())); err != nil {
		return err
	}
	// Not on the output: that is the link alone, for scripts.
	c.say("Good once, within %d seconds, %s. Its end: botscreen ticket --revoke %s SCREEN", int(time.Until(made.Expires).Round(time.Second).Seconds()), may, line(made.ID))
	return nil
}
