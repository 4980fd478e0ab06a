// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/botscreen/botscreen/shared/audit"
	"github.com/botscreen/botscreen/shared/control"
)

func (c *cli) auditCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use:   "audit SCREEN",
		Short: "Show who had a screen, and check that nobody changed the record",
		Long: `Show who took a screen and gave it back, when, through which door and who watched. Each line carries the hash
of the one before, so one that was edited, removed or moved is found: the command names it and ends with 1.

A door that says "exec" leads through Nomad, which alone knows who it was (its own audit log says so).
A screen that does not run is read on its node, as root: -dir STATE_DIR/control/NAMESPACE/PROFILE.`,
		Args: func(_ *cobra.Command, args []string) error {
			if (len(args) == 1) == (dir != "") || len(args) > 1 {
				return errors.New("name a screen, or a control directory with -dir")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			if dir != "" {
				text, err := auditFrom(dir)
				if err != nil {
					return failf(exitFailed, "Cannot read the audit file: %w. It is the supervisor's; read it as root on the screen's node.", err)
				}
				return c.printAudit(text, audit.Head{})
			}
			text, head, err := c.fetchAudit(cmd.Context(), args[0])
			if err != nil {
				return err
			}
			return c.printAudit(text, head)
		},
	}
	cmd.Flags().StringVar(&dir, "dir", "", "a screen's control directory on this machine")
	return cmd
}

func auditFrom(path string) ([]byte, error) {
	dir, err := os.OpenRoot(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	text, err := audit.ReadDir(dir)
	if err == nil && len(text) == 0 {
		err = fmt.Errorf("no %s in %s", audit.Name, path)
	}
	return text, err
}

func (c *cli) fetchAudit(ctx context.Context, name string) ([]byte, audit.Head, error) {
	var text []byte
	var headText string
	_, err := c.withScreen(ctx, name, reachTimeout, func(ctx context.Context, conn *control.Client) (err error) {
		text, headText, err = conn.Audit(ctx)
		return err
	})
	if err != nil {
		return nil, audit.Head{}, err
	}
	head, err := audit.ParseHead(headText)
	if err != nil {
		return nil, audit.Head{}, failf(exitFailed, "Cannot check who had the screen: its supervisor does not say where the record ends (%w). Compare the versions of this command and of the driver.", err)
	}
	return text, head, nil
}

// printAudit shows what holds, and then what does not.
func (c *cli) printAudit(text []byte, head audit.Head) error {
	entries, broken := audit.Verify(text, head)
	if c.json {
		answer := auditAnswer{Entries: entries, Intact: broken == nil}
		if broken != nil {
			answer.Broken = broken.Error()
		}
		if err := c.printJSON(answer); err != nil {
			return err
		}
	} else if err := c.printEntries(entries); err != nil {
		return err
	}
	if broken != nil {
		return failf(exitFailed, "The record of who had this screen was changed: %w. What is shown above it holds; what follows cannot be trusted.", broken)
	}
	return nil
}

// auditAnswer is what the command prints for programs.
type auditAnswer struct {
	Entries []audit.Entry `json:"entries"`
	Intact  bool          `json:"intact"`
	Broken  string        `json:"broken,omitempty"`
}

func (c *cli) printEntries(entries []audit.Entry) error {
	table := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(table, "LINE\tTIME\tACT\tVIEWER\tDOOR\tEPOCH\tWATCHERS\tREASON")
	for _, e := range entries {
		watchers := make([]string, len(e.Watchers))
		for i, v := range e.Watchers {
			watchers[i] = string(v)
		}
		epoch := fmt.Sprint(e.After)
		if e.Before != e.After {
			epoch = fmt.Sprintf("%d→%d", e.Before, e.After)
		}
		reason := e.Reason.String()
		if e.Lost > 0 {
			reason = strings.TrimSpace(fmt.Sprintf("(%d lines before could not be written) %s", e.Lost, reason))
		}
		_, _ = fmt.Fprintf(table, "%d\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", e.Seq, e.Time.UTC().Format(time.DateTime), clean(string(e.Act)),
			clean(string(e.Viewer)), doorOf(e.Peer), epoch, strings.Join(watchers, ","), clean(reason))
	}
	return table.Flush()
}

func doorOf(p audit.Peer) string {
	text := clean(string(p.Door))
	if p.UID != nil {
		text += fmt.Sprintf(" uid %d", *p.UID)
	}
	if p.PID != nil {
		text += fmt.Sprintf(" pid %d", *p.PID)
	}
	if p.TicketID != "" {
		text += " ticket " + clean(p.TicketID)
	}
	return text
}
