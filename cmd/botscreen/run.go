// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"

	"github.com/botscreen/botscreen/shared/devagent/jobfile"
)

type runFlags struct {
	vars    []string
	detach  bool
	timeout time.Duration
}

func (c *cli) runCommand() *cobra.Command {
	var f runFlags
	cmd := &cobra.Command{
		Use:   "run JOBFILE",
		Short: "Run a job and wait until its screens are ready",
		Long: `Submit a Nomad job file (HCL) and wait until every screen in it is ready, every other task runs.
"-" reads the file from standard input.

When a screen fails, or there is no node for it, the reasons are shown and the command ends with 4. The
job stays as it was submitted: Nomad places it when there is room.`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return c.runJob(cmd.Context(), args[0], f) },
	}
	cmd.Flags().StringArrayVar(&f.vars, "var", nil, "`NAME=VALUE` of a variable of the job file; may be repeated")
	cmd.Flags().BoolVar(&f.detach, "detach", false, "do not wait for the screens")
	cmd.Flags().DurationVar(&f.timeout, "timeout", 15*time.Minute, "how long to wait")
	return cmd
}

func (c *cli) runJob(ctx context.Context, path string, f runFlags) error {
	text, err := c.readJobFile(path)
	if err != nil {
		return err
	}
	vars, err := assignments(f.vars)
	if err != nil {
		return err
	}
	client, err := c.nomad()
	if err != nil {
		return err
	}
	job, variables, err := c.parseJob(client, path, text, vars)
	if err != nil {
		return err
	}
	resp, _, err := client.Jobs().RegisterOpts(job, &api.RegisterOptions{
		Submission: &api.JobSubmission{Source: string(text), Format: "hcl2", Variables: variables},
	}, (&api.WriteOptions{}).WithContext(ctx))
	if err != nil {
		return c.nomadError(err)
	}
	if resp.Warnings != "" {
		c.say("%s", clean(resp.Warnings))
	}
	for _, warning := range shortKills(job) {
		c.say("%s", clean(warning))
	}
	if f.detach {
		return c.printRun(job, resp.EvalID, nil)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, f.timeout, errTimeout)
	defer cancel()
	w := &watcher{c: c, ctx: ctx, client: client, job: job, shown: map[string]int64{}}
	allocs, err := w.wait(resp.EvalID)
	if err != nil {
		return err
	}
	return c.printRun(job, resp.EvalID, allocs)
}

// maxJobFile bounds a job file, in bytes.
const maxJobFile = jobfile.MaxBytes

func (c *cli) readJobFile(path string) ([]byte, error) {
	in := c.in
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, failf(exitUsage, "Cannot read the job file: %v.", err)
		}
		defer func() { _ = f.Close() }()
		in = f
	}
	text, err := io.ReadAll(io.LimitReader(in, maxJobFile+1))
	if err != nil {
		return nil, failf(exitUsage, "Cannot read the job file: %v.", err)
	}
	if len(text) > maxJobFile {
		return nil, failf(exitUsage, "%s:1,1-1: The job file is too large: more than %d bytes.", path, maxJobFile)
	}
	return text, nil
}

func assignments(list []string) (map[string]string, error) {
	out := map[string]string{}
	for _, one := range list {
		name, value, ok := strings.Cut(one, "=")
		if !ok || name == "" {
			return nil, failf(exitUsage, "-var %q is not NAME=VALUE.", one)
		}
		out[name] = value
	}
	return out, nil
}

// parseJob has Nomad read the file, so that what is run is what Nomad understands.
func (c *cli) parseJob(client *api.Client, path string, text []byte, vars map[string]string) (*api.Job, string, error) {
	variables, err := jobfile.VariableFile(text, vars)
	if err != nil {
		return nil, "", failf(exitUsage, "Cannot use -var: %v.", err)
	}
	job, err := client.Jobs().ParseHCLOpts(&api.JobsParseRequest{JobHCL: string(text), Variables: variables, Canonicalize: true})
	if err != nil {
		return nil, "", c.parseError(path, vars, err)
	}
	return job, variables, nil
}

// parseError puts the name of the file where Nomad says input.hcl.
func (c *cli) parseError(path string, vars map[string]string, err error) error {
	failed := c.nomadError(err)
	text := failed.Error()
	_, faults, ok := strings.Cut(text, "Failed to parse job: ")
	if !ok {
		return failed
	}
	name := path
	if path == "-" {
		name = "standard input"
	}
	faults = strings.ReplaceAll(faults, "input.hcl:", filepath.Base(name)+":")
	hint := ""
	if len(vars) == 0 && strings.Contains(faults, "Unset variable") {
		hint = "\nGive the value with -var NAME=VALUE."
	}
	return failf(exitUsage, "The job file %s cannot be used; nothing was submitted.\n%s%s", name, strings.TrimSpace(faults), hint)
}

func (c *cli) printRun(job *api.Job, eval string, allocs []*api.AllocationListStub) error {
	if c.json {
		ids := []string{}
		for _, a := range allocs {
			ids = append(ids, a.ID)
		}
		return c.printJSON(map[string]any{"job": *job.ID, "eval": eval, "ready": allocs != nil, "allocs": ids})
	}
	if allocs == nil {
		_, err := fmt.Fprintf(c.out, "Submitted job %s. See `botscreen status`.\n", line(*job.ID))
		return err
	}
	for _, a := range allocs {
		for _, task := range slices.Sorted(maps.Keys(a.TaskStates)) {
			if _, err := fmt.Fprintf(c.out, "%s/%s/%s is ready (alloc %s).\n", line(a.JobID), line(a.TaskGroup), line(task), a.ID[:8]); err != nil {
				return err
			}
		}
	}
	_, err := fmt.Fprintf(c.out, "Look: botscreen screenshot -o screen.png %s\nStop: botscreen stop %s\n", line(*job.ID), line(*job.ID))
	return err
}

// say tells of progress, on standard error; not with -json.
func (c *cli) say(format string, args ...any) {
	if !c.json {
		_, _ = fmt.Fprintf(c.errs, format+"\n", args...)
	}
}
