// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// Version is set when a release is built.
var Version = "0.1.0-dev"

// Exit codes. Scripts depend on them.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitNotFound = 3
	exitNotReady = 4
	exitNoNomad  = 5
	exitStopped  = 130
)

const exitCodes = `Exit codes:
  0    done
  1    failed; the message says why
  2    wrong use of the command
  3    no screen, or several screens, of that name
  4    the job was submitted, but its screen did not come up (or has no node to run on)
  5    Nomad cannot be reached, or refused
  130  interrupted
  exec passes on the exit code of the command it ran.`

// cli is one call of the program.
type cli struct {
	streams
	json bool
	// address, namespace and region are flags; empty ones come from the environment.
	address, namespace, region string
}

// exitError ends the program with a code. Its message is for people.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return ""
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

// failf makes an error with a code: what could not be done, why, what next.
func failf(code int, format string, args ...any) error {
	return &exitError{code: code, err: fmt.Errorf(format, args...)}
}

// run runs one command and gives its exit code.
func run(ctx context.Context, args []string, s streams) int {
	c := &cli{streams: s}
	root := c.root()
	root.SetArgs(longFlags(root, args))
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.errs)
	err := root.ExecuteContext(ctx)
	return c.finish(ctx, err)
}

// finish tells of an error and gives the exit code.
func (c *cli) finish(ctx context.Context, err error) int {
	if err == nil {
		return exitOK
	}
	code := exitFailed
	var exit *exitError
	var usage *usageError
	switch {
	case errors.As(err, &exit):
		code = exit.code
	case errors.As(err, &usage):
		code = exitUsage
	case errors.Is(err, context.Canceled) && ctx.Err() != nil:
		code = exitStopped
	}
	if text := err.Error(); text != "" {
		if c.json {
			_ = json.NewEncoder(c.errs).Encode(map[string]any{"error": clean(text), "code": code})
		} else {
			_, _ = fmt.Fprintln(c.errs, "Error:", clean(text))
		}
	}
	return code
}

// usageError is a command line that cannot be understood.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

func (c *cli) root() *cobra.Command {
	root := &cobra.Command{
		Use:   "botscreen",
		Short: "Desktops for bots on a Nomad cluster",
		Long: `botscreen gives every bot its own Linux desktop on a Nomad cluster, and people a way to see it.

The cluster is that of NOMAD_ADDR with NOMAD_TOKEN, NOMAD_NAMESPACE, NOMAD_REGION, NOMAD_CACERT,
NOMAD_CAPATH, NOMAD_CLIENT_CERT, NOMAD_CLIENT_KEY, NOMAD_TLS_SERVER_NAME and NOMAD_SKIP_VERIFY, as
for Nomad's own command. Without a token the one of this machine's embedded agent is used for it.

SCREEN is a profile, else a job, else job/group/task, else at least 8 hex digits of an allocation.

` + exitCodes,
		SilenceUsage:  true,
		SilenceErrors: true,
		Version:       Version,
	}
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return &usageError{fmt.Errorf("%w. See `%s --help`", err, cmd.CommandPath())}
	})
	f := root.PersistentFlags()
	f.BoolVar(&c.json, "json", false, "print JSON")
	f.StringVar(&c.address, "address", "", "address of Nomad (NOMAD_ADDR)")
	f.StringVar(&c.namespace, "namespace", "", "namespace (NOMAD_NAMESPACE); * is all")
	f.StringVar(&c.region, "region", "", "region (NOMAD_REGION)")
	root.AddCommand(c.agentCommand(), c.runCommand(), c.statusCommand(), c.stopCommand(), c.screenshotCommand(), c.viewCommand(), c.ticketCommand(),
		c.leaseCommand(), c.takeCommand(), c.releaseCommand(), c.mcpCommand(), c.cdpCommand(), c.handoffCommand(), c.logsCommand(), c.execCommand(), c.sleepCommand(), c.wakeCommand(), c.browserCommand(), c.profileCommand(), c.imageCommand(), c.metricsCommand(), c.auditCommand(), c.doctorCommand())
	for _, cmd := range root.Commands() {
		cmd.Args = usageArgs(cmd.Args)
		for _, sub := range cmd.Commands() {
			sub.Args = usageArgs(sub.Args)
		}
	}
	return root
}

// usageArgs makes a wrong number of arguments a usage error.
func usageArgs(check cobra.PositionalArgs) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if check == nil {
			return nil
		}
		if err := check(cmd, args); err != nil {
			return &usageError{fmt.Errorf("%w. See `%s --help`", err, cmd.CommandPath())}
		}
		return nil
	}
}

// longFlags accepts Nomad's way of writing flags: -dev is --dev. Only names of flags
// are rewritten, and nothing behind -- or behind the screen of exec.
func longFlags(root *cobra.Command, args []string) []string {
	names := map[string]bool{"help": true, "version": true}
	for _, cmd := range append(root.Commands(), root) {
		for _, set := range []*pflag.FlagSet{cmd.Flags(), cmd.PersistentFlags()} {
			set.VisitAll(func(f *pflag.Flag) { names[f.Name] = true })
		}
	}
	out := slices.Clone(args)
	words := 0
	for i, arg := range out {
		if arg == "--" || words > 1 && out[0] == "exec" {
			break
		}
		if !strings.HasPrefix(arg, "-") {
			words++
			continue
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(arg, "-"), "=")
		if len(name) > 1 && names[name] {
			out[i] = "-" + arg
		}
	}
	return out
}
