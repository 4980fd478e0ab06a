// SPDX-License-Identifier: MPL-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"

	"github.com/spf13/cobra"
)

// profileRemoval are the flags of `botscreen profile rm`.
type profileRemoval struct {
	yes                                 bool
	pluginDir, stateDir, runDir, docker string
}

func (c *cli) profileRemoveCommand() *cobra.Command {
	var r profileRemoval
	cmd := &cobra.Command{
		Use: "rm PROFILE", Short: "Remove what a bot has on this node: home, logins, lease and audit",
		Long: `Remove for good what a profile has on this node, and its home on a docker engine that is not on this node. Run it as the
plugin runs, on each node that had the profile. A profile whose screen is there is refused. Without --yes it only says what there
is, with exit code 1.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.removeProfile(cmd.Context(), args[0], r) },
	}
	f := cmd.Flags()
	f.BoolVar(&r.yes, "yes", false, "remove it")
	f.StringVar(&r.stateDir, "state-dir", "", "the plugin's state_dir, if it is not the default `DIR`")
	f.StringVar(&r.runDir, "run-dir", "", "the plugin's run_dir, if it is not the default `DIR`")
	f.StringVar(&r.docker, "docker", "", "the plugin's docker `ENDPOINT`, if it is not the default")
	f.StringVar(&r.pluginDir, "plugin-dir", "", "`DIR` with the driver (default: where this program is, else PATH)")
	return cmd
}

// removeProfile leaves it to the driver, which has the node's locks and knows its places.
func (c *cli) removeProfile(ctx context.Context, profile string, r profileRemoval) error {
	driver, err := findDriver(r.pluginDir)
	if err != nil {
		return failf(exitFailed, "Cannot remove anything: %v. Put %s beside this program, or name its directory with --plugin-dir.", err, pluginName)
	}
	args := []string{"profile-rm"}
	for flag, value := range map[string]string{"namespace": cmp.Or(c.namespace, os.Getenv("NOMAD_NAMESPACE")), "state-dir": r.stateDir, "run-dir": r.runDir, "docker": r.docker} {
		if value != "" {
			args = append(args, "-"+flag+"="+value)
		}
	}
	if r.yes {
		args = append(args, "-yes")
	}
	if c.json {
		args = append(args, "-json")
	}
	run := exec.CommandContext(ctx, driver, append(args, "--", profile)...)
	run.Stdout, run.Stderr = c.out, c.errs
	err = run.Run()
	var ended *exec.ExitError
	switch {
	case errors.As(err, &ended):
		return &exitError{code: ended.ExitCode()} // it has said why
	case err != nil:
		return failf(exitFailed, "Cannot run %s: %v.", driver, err)
	}
	return nil
}
