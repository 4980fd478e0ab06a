// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// sandboxImage is what docker screens of the bench run; scripts/with-engine.sh has it.
const sandboxImage = "botscreen-desktop:test"

// What names an image and a directory with a browser in it.
const (
	browserImage = "BOTSCREEN_TEST_BROWSER_IMAGE"
	browserRoot  = "BOTSCREEN_TEST_BROWSER_ROOT"
)

// engineConfig is the part of the driver's configuration that finds this machine's
// engines: scripts/with-engine.sh says where its docker is and makes apptainer's image.
func engineConfig(config map[string]any) map[string]any {
	if endpoint := os.Getenv("BOTSCREEN_TEST_DOCKER"); endpoint != "" {
		config["docker"] = []any{map[string]any{"endpoint": endpoint}}
	}
	var dirs []any
	for _, variable := range []string{"BOTSCREEN_TEST_ROOT", browserRoot} {
		if root := os.Getenv(variable); root != "" && !slices.Contains(dirs, any(filepath.Dir(root))) {
			dirs = append(dirs, filepath.Dir(root))
		}
	}
	if path, err := exec.LookPath("apptainer"); err == nil && len(dirs) > 0 {
		config["apptainer"] = []any{map[string]any{"path": path, "image_dirs": dirs}}
	}
	return config
}

// sandbox is one isolation as the bench compares it.
type sandbox struct {
	target      int
	kind, image string
	// run starts a container of the image in which a shell says "up" and stays until its
	// input ends. It has the options without which no screen may be in one.
	run []string
}

// sandboxes measures targets 3 and 4: StartTask until ready in a sandbox, in turn with the
// engine's own time to the first instruction in the same image, and the best bare script.
func (b *bench) sandboxes(runs int) ([]row, error) {
	deskwatch, err := b.build("deskwatch")
	if err != nil {
		return nil, err
	}
	var rows []row
	for _, s := range b.available() {
		var ours, reference, share []float64
		for i := range runs + 1 {
			took, end, err := b.startScreenIn(2000+10*s.target+i, map[string]any{"isolation": s.kind, "image": s.image})
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.kind, err)
			}
			if err := end(); err != nil {
				return nil, err
			}
			up, err := firstInstruction(s.run)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", s.kind, err)
			}
			best, err := watch(deskwatch, bestScript)
			if err != nil {
				return nil, err
			}
			if i == 0 {
				continue // warms the page cache
			}
			ms := float64(took) / float64(time.Millisecond)
			ours, reference = append(ours, ms), append(reference, up+best["best.sh"])
			share = append(share, up)
		}
		rows = append(rows,
			beside(s.target, "StartTask to ready, "+s.kind+", beside its run to the first instruction and the best bare script", "ms", ours, reference).atMost(1.10),
			alone(s.target, s.kind+" run to the first instruction", "ms", share))
	}
	return rows, nil
}

// available are the sandboxes of this machine; what is missing is said.
func (b *bench) available() []sandbox {
	var found []sandbox
	if endpoint := os.Getenv("BOTSCREEN_TEST_DOCKER"); endpoint != "" {
		found = append(found, sandbox{3, "docker", sandboxImage, []string{
			"docker", "--host", endpoint, "run", "--rm", "--interactive", "--network", "none", "--user", "61000:61000", "--cap-drop", "ALL",
			"--security-opt", "no-new-privileges", "--shm-size", "1g", "--pids-limit", "2048", sandboxImage, "sh", "-c", "echo up; read line",
		}})
	} else {
		fmt.Fprintln(os.Stderr, "target 3 is left out: no docker engine; make bench starts one")
	}
	path, err := exec.LookPath("apptainer")
	if root := os.Getenv("BOTSCREEN_TEST_ROOT"); err == nil && root != "" {
		found = append(found, sandbox{4, "apptainer", filepath.Base(root), []string{
			"setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups",
			path, "--silent", "exec", "--userns", "--pid", "--ipc", "--containall", "--no-home", "--no-privs", "--no-init", root, "sh", "-c", "echo up; read line",
		}})
	} else {
		fmt.Fprintln(os.Stderr, "target 4 is left out: apptainer is not on PATH")
	}
	return found
}

// firstInstruction is how long a sandbox takes until a shell in it has spoken.
func firstInstruction(command []string) (milliseconds float64, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env, cmd.Stderr = []string{"PATH=" + os.Getenv("PATH"), "HOME=/tmp"}, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	took := float64(time.Since(began)) / float64(time.Millisecond)
	_ = in.Close()
	err = errors.Join(err, ignoreExit(cmd.Wait()))
	if err == nil && line != "up\n" {
		err = fmt.Errorf("it said %q", line)
	}
	return took, err
}

// ignoreExit: a shell whose input ends in the middle of read has the status 1.
func ignoreExit(err error) error {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return nil
	}
	return err
}
