// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/spf13/cobra"
)

// diagnosis is what the driver's doctor prints.
type diagnosis struct {
	Isolations []string `json:"isolations"`
	Checks     []struct {
		Name  string `json:"name"`
		OK    bool   `json:"ok"`
		Found string `json:"found"`
		Why   string `json:"why,omitempty"`
		Fix   string `json:"fix,omitempty"`
	} `json:"checks"`
}

func (c *cli) doctorCommand() *cobra.Command {
	var pluginDir string
	cmd := &cobra.Command{
		Use:   "doctor",
		Short: "Say what this node lacks for screens, and how to get it",
		Long: `Look at everything a screen needs on this node and say what is missing, with the command that installs
it here. The driver itself looks, so the answer is the one that Nomad's node attributes give.

Exit code 0: at least one isolation is ready. 1: none is.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.doctor(cmd.Context(), pluginDir) },
	}
	cmd.Flags().StringVar(&pluginDir, "plugin-dir", "", "`DIR` with the driver (default: where this program is, else PATH)")
	return cmd
}

func (c *cli) doctor(ctx context.Context, pluginDir string) error {
	driver, err := findDriver(pluginDir)
	if err != nil {
		return failf(exitFailed, "Cannot look at this node: %v. Put %s beside this program, or name its directory with -plugin-dir.", err, pluginName)
	}
	var out, errs bytes.Buffer
	run := exec.CommandContext(ctx, driver, "doctor", "-json")
	run.Stdout, run.Stderr = &out, &errs
	err = run.Run()
	var ended *exec.ExitError
	if err != nil && !errors.As(err, &ended) {
		return failf(exitFailed, "Cannot run %s: %v.", driver, err)
	}
	var d diagnosis
	if jsonErr := json.Unmarshal(out.Bytes(), &d); jsonErr != nil {
		return failf(exitFailed, "%s doctor gave no answer that this release understands: %v. Its last words: %s", driver, jsonErr, line(errs.String()))
	}
	if c.json {
		if err := c.printJSON(d); err != nil {
			return err
		}
	} else if err := c.printDiagnosis(d); err != nil {
		return err
	}
	if len(d.Isolations) == 0 {
		return &exitError{code: exitFailed}
	}
	return nil
}

func (c *cli) printDiagnosis(d diagnosis) error {
	var rows [][]string
	for _, check := range d.Checks {
		mark := "ok"
		if !check.OK {
			mark = "MISSING"
		}
		rows = append(rows, []string{mark, line(check.Name), line(check.Found)})
	}
	if err := c.table([]string{"", "CHECK", "FOUND"}, rows); err != nil {
		return err
	}
	for _, check := range d.Checks {
		if check.OK || check.Why == "" && check.Fix == "" {
			continue
		}
		if _, err := fmt.Fprintf(c.out, "\n%s: %s\n  %s\n", line(check.Name), clean(check.Why), clean(check.Fix)); err != nil {
			return err
		}
	}
	return nil
}

// findDriver gives the driver's program: in the named directory, beside this program,
// or on PATH.
func findDriver(dir string) (string, error) {
	if dir == "" {
		beside, err := programDir()
		if err == nil && executable(filepath.Join(beside, pluginName)) {
			return filepath.Join(beside, pluginName), nil
		}
		path, err := exec.LookPath(pluginName)
		if err != nil {
			return "", errNoPlugin
		}
		return path, nil
	}
	if path := filepath.Join(dir, pluginName); executable(path) {
		return path, nil
	}
	return "", errNoPlugin
}

func executable(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}
