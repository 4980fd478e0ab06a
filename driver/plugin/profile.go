// SPDX-License-Identifier: MPL-2.0

package plugin

import (
	"cmp"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/docker"
	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/screen"
)

// removalLimit bounds a removal: homes are large.
const removalLimit = 10 * time.Minute

// profileRemoval is what `profile-rm` is asked for.
type profileRemoval struct {
	id            screen.ID
	dirs          defaultDirs
	endpoint      string
	yes, json     bool
	stdout, fails io.Writer
}

// RemoveProfile is the command that takes away what a profile has on this node. Its
// directories and its engine are the plugin's defaults unless it is told others: it runs
// beside the plugin, whose configuration only Nomad knows. The exit code is 0 when nothing
// is left, 1 on a failure or where nothing was removed for want of -yes, 2 on misuse.
func RemoveProfile(args []string, stdout, stderr io.Writer) int {
	r := profileRemoval{dirs: nodeDirs(), stdout: stdout, fails: stderr}
	flags := flag.NewFlagSet("profile-rm", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.StringVar(&r.id.Namespace, "namespace", "default", "the profile's `namespace`")
	flags.StringVar(&r.dirs.state, "state-dir", r.dirs.state, "the plugin's state_dir, a `directory`")
	flags.StringVar(&r.dirs.run, "run-dir", r.dirs.run, "the plugin's run_dir, a `directory`")
	flags.StringVar(&r.endpoint, "docker", docker.DefaultEndpoint, "the plugin's docker `endpoint`")
	flags.BoolVar(&r.yes, "yes", false, "remove it; otherwise it is only said what there is")
	flags.BoolVar(&r.json, "json", false, "print JSON")
	if err := flags.Parse(args); err != nil {
		return 2
	}
	r.id.Profile = screen.Profile(flags.Arg(0))
	if flags.NArg() != 1 || !r.id.Profile.Valid() {
		_, _ = fmt.Fprintln(stderr, "Give the name of one profile.")
		return 2
	}
	return r.run()
}

func (r profileRemoval) run() int {
	config := defaultConfig()
	config.StateDir, config.RunDir = r.dirs.state, r.dirs.run
	settings, err := config.settings("", r.dirs)
	if err != nil {
		return r.fail(err)
	}
	engine, err := docker.New(r.endpoint, settings.StateDir)
	if err != nil {
		return r.fail(err)
	}
	defer engine.Close()
	ctx, cancel := context.WithTimeout(context.Background(), removalLimit)
	defer cancel()
	manager := task.New(settings, []isolation.Boundary{engine}, nil, hclog.NewNullLogger())
	found, err := manager.RemoveProfile(ctx, r.id, !r.yes)
	if err != nil {
		return r.fail(err)
	}
	if err := r.print(found); err != nil {
		return r.fail(err)
	}
	if !r.yes && len(found.Paths)+len(found.Volumes) > 0 {
		return 1
	}
	return 0
}

func (r profileRemoval) fail(err error) int {
	_, _ = fmt.Fprintf(r.fails, "Cannot remove the profile %s: %v.\n", r.id.Profile, err)
	return 1
}

func (r profileRemoval) print(found task.ProfileData) error {
	if r.json {
		return json.NewEncoder(r.stdout).Encode(map[string]any{
			"profile": r.id.Profile, "namespace": r.id.Namespace, "removed": r.yes,
			"paths": append([]string{}, found.Paths...), "volumes": append([]string{}, found.Volumes...),
		})
	}
	if len(found.Paths)+len(found.Volumes) == 0 {
		_, err := fmt.Fprintf(r.stdout, "The profile %s has nothing in %s.\n", r.id.Profile, cmp.Or(r.dirs.state, "this node"))
		return err
	}
	verb := "has"
	if r.yes {
		verb = "had, and now it is gone"
	}
	if _, err := fmt.Fprintf(r.stdout, "What the profile %s %s:\n", r.id.Profile, verb); err != nil {
		return err
	}
	for _, path := range found.Paths {
		if _, err := fmt.Fprintf(r.stdout, "  %s\n", path); err != nil {
			return err
		}
	}
	for _, volume := range found.Volumes {
		if _, err := fmt.Fprintf(r.stdout, "  the docker volume %s\n", volume); err != nil {
			return err
		}
	}
	if !r.yes {
		_, err := fmt.Fprintln(r.stdout, "Nothing was removed. With --yes all of it is, its logins too, for good.")
		return err
	}
	return nil
}
