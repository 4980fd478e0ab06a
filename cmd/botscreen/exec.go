// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/botscreen/botscreen/shared/nomadjob"
)

type execFlags struct{ stdin, tty, noTTY, force, gui bool }

// In front of a command these are the driver's words for force and gui.
const (
	forceCommand = "botscreen:force"
	guiCommand   = "botscreen:gui"
)

func (c *cli) execCommand() *cobra.Command {
	var f execFlags
	cmd := &cobra.Command{
		Use:   "exec SCREEN COMMAND [ARGUMENT…]",
		Short: "Run a command inside a screen's session",
		Long: `Run a command inside a screen's session, as its user. With a terminal on standard input the command gets one
too. The exit code is the command's.

While a person has control of the screen it is refused, and when one takes it the command is ended;
-force goes over both.

The command's display trusts it little: it can connect, and neither show most windows nor see what others do.
-gui gives it the display of the desktop's own programs.

What it prints is shown as it comes when the command has a terminal: it is the screen's program that
writes to yours.`,
		Args: cobra.MinimumNArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			command := args[1:]
			// The dashes that end flags stand behind SCREEN, where flags end anyway.
			if command[0] == "--" {
				command = command[1:]
			}
			if len(command) == 0 {
				return &usageError{fmt.Errorf("no command to run. See `%s --help`", cmd.CommandPath())}
			}
			if f.force {
				command = append([]string{forceCommand}, command...)
			}
			if f.gui {
				command = append([]string{guiCommand}, command...)
			}
			return c.exec(cmd.Context(), args[0], command, f)
		},
	}
	cmd.Flags().BoolVarP(&f.stdin, "interactive", "i", true, "pass standard input on")
	cmd.Flags().BoolVarP(&f.tty, "tty", "t", false, "give the command a terminal (default: when standard input is one)")
	cmd.Flags().BoolVarP(&f.noTTY, "no-tty", "T", false, "give it none")
	cmd.Flags().BoolVar(&f.force, "force", false, "run it though a person has control")
	cmd.Flags().BoolVar(&f.gui, "gui", false, "for a program that shows windows")
	// What follows SCREEN is the command's.
	cmd.Flags().SetInterspersed(false)
	return cmd
}

func (c *cli) exec(ctx context.Context, name string, command []string, f execFlags) error {
	client, s, err := c.located(ctx, name)
	if err != nil {
		return err
	}
	if !s.Live() || s.TaskState != "running" {
		return failf(exitFailed, "Screen %s does not run (%s).", line(s.Path()), word(s))
	}
	tty := (f.tty || terminal(c.in)) && !f.noTTY && f.stdin
	code, err := c.execIn(ctx, client, s, command, tty, f.stdin)
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return failf(exitFailed, "Cannot run the command in %s: %v.", line(s.Path()), err)
	case code != 0:
		return &exitError{code: code}
	}
	return nil
}

func (c *cli) execIn(ctx context.Context, client *api.Client, s nomadjob.Screen, command []string, tty, stdin bool) (int, error) {
	in, out, errs := c.in, c.out, c.errs
	if !stdin {
		in = strings.NewReader("")
	}
	if !tty && terminal(c.out) {
		out = &cleanWriter{w: c.out}
	}
	if !tty && terminal(c.errs) {
		errs = &cleanWriter{w: c.errs}
	}
	sizes := make(chan api.TerminalSize, 1)
	if f, ok := in.(*os.File); ok && tty && terminal(f) {
		old, err := term.MakeRaw(int(f.Fd()))
		if err != nil {
			return 0, err
		}
		defer func() { _ = term.Restore(int(f.Fd()), old) }()
		stop := watchSize(ctx, f, sizes)
		defer stop()
	}
	alloc := &api.Allocation{ID: s.Alloc, NodeID: s.NodeID, Namespace: s.Namespace}
	return client.Allocations().Exec(ctx, alloc, s.Task, tty, command, ioReader{in}, out, errs, sizes, &api.QueryOptions{Namespace: s.Namespace})
}

// ioReader hides everything of a stream but Read.
type ioReader struct{ io.Reader }

// watchSize sends the size of a terminal now and whenever it changes.
func watchSize(ctx context.Context, f *os.File, sizes chan<- api.TerminalSize) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	changed := make(chan os.Signal, 1)
	signal.Notify(changed, syscall.SIGWINCH)
	changed <- syscall.SIGWINCH
	go func() {
		defer signal.Stop(changed)
		for {
			select {
			case <-ctx.Done():
				return
			case <-changed:
			}
			width, height, err := term.GetSize(int(f.Fd()))
			if err != nil {
				continue
			}
			select {
			case sizes <- api.TerminalSize{Height: height, Width: width}:
			case <-ctx.Done():
				return
			}
		}
	}()
	return cancel
}
