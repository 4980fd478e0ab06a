// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"

	"github.com/botscreen/botscreen/scripts/bench/pss"
	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/hclconfig"
	"github.com/botscreen/botscreen/shared/nomadplugin/host"
)

const patience = time.Minute

// bench holds what the measurements share: a driver loaded as an agent does it, and a
// directory of its own.
type bench struct {
	dir  string
	host *host.Host
}

func newBench() (*bench, error) {
	if os.Geteuid() != 0 {
		return nil, errors.New("needs root: every screen gets a uid of its own")
	}
	dir, err := os.MkdirTemp("", "bsbench")
	if err != nil {
		return nil, err
	}
	if err := os.Chmod(dir, 0o711); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	h, err := host.Load(ctx, host.Options{Path: pluginPath, Logger: hclog.NewNullLogger(), Config: engineConfig(map[string]any{
		"allow_unsandboxed_host": true, "state_dir": filepath.Join(dir, "state"), "run_dir": filepath.Join(dir, "run"), "displays": "1000-1099",
	})})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	b := &bench{dir: dir, host: h}
	// An agent places nothing on a node before that, and the plugin knows the node from then on.
	instance, err := h.Instance(ctx)
	if err == nil {
		err = awaitHealthy(ctx, instance)
	}
	if err != nil {
		b.close()
		return nil, err
	}
	return b, nil
}

func (b *bench) close() {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	_ = b.host.Close(ctx)
	_ = os.RemoveAll(b.dir)
}

// rawExecMS is raw_exec's own share of a start in an agent, recorded on the same machine
// kind.
const rawExecMS = 150

const pluginPath = "bin/nomad-driver-botscreen"

// starts measures targets 1, 2 and 12: StartTask until the screen is ready, in turn with
// the desktop alone, the best bare script and the naive one.
func (b *bench) starts(runs int) ([]row, error) {
	deskwatch, err := b.build("deskwatch")
	if err != nil {
		return nil, err
	}
	var task, best, naive, overhead []float64
	for i := range runs + 1 {
		started, err := b.startTask(i)
		if err != nil {
			return nil, err
		}
		alone, err := watch(deskwatch, "ours", bestScript, "scripts/bench/naive.sh")
		if err != nil {
			return nil, err
		}
		if i == 0 {
			continue // warms the page cache
		}
		task = append(task, started)
		best, naive = append(best, alone["best.sh"]), append(naive, alone["naive.sh"])
		overhead = append(overhead, started-alone["ours"])
	}
	return []row{
		beside(1, "StartTask to ready, host, beside the best bare script", "ms", task, best).atMost(1.10),
		beside(2, "StartTask to ready, host, beside the naive script", "ms", task, naive).atMost(0.35),
		besideRecorded(12, "StartTask without the desktop, beside raw_exec", "ms", overhead, rawExecMS).atMost(1),
	}, nil
}

// build makes one of the bench's own programs.
func (b *bench) build(name string) (path string, err error) {
	path = filepath.Join(b.dir, name)
	build := exec.Command("go", "build", "-o", path, "./scripts/bench/"+name)
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", name, err, out)
	}
	return path, nil
}

// startTask measures one StartTask of a new profile, whose home does not exist yet.
func (b *bench) startTask(n int) (milliseconds float64, err error) {
	took, end, err := b.startScreen(n)
	if err != nil {
		return 0, err
	}
	return float64(took) / float64(time.Millisecond), end()
}

// startScreen starts a screen on the host, which end stops.
func (b *bench) startScreen(n int) (took time.Duration, end func() error, err error) {
	return b.startScreenIn(n, map[string]any{"isolation": "host"})
}

func profileOf(n int) string { return fmt.Sprintf("bench-%d", n) }

// startScreenIn starts a screen with what job says.
func (b *bench) startScreenIn(n int, job map[string]any) (took time.Duration, end func() error, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), 5*patience) // many stand at the gate
	defer cancel()
	instance, err := b.host.Instance(ctx)
	if err != nil {
		return 0, nil, err
	}
	schema, err := instance.TaskConfigSchema(ctx)
	if err != nil {
		return 0, nil, err
	}
	job["profile"] = profileOf(n)
	config, err := schema.Encode(job, hclconfig.Variables{})
	if err != nil {
		return 0, nil, err
	}
	id := host.NewTaskID(fmt.Sprintf("bench-%d", n), "screen")
	began := time.Now()
	_, _, err = instance.StartTask(ctx, &nomadplugin.TaskConfig{
		Id: string(id), Name: "screen", AllocId: fmt.Sprintf("bench-%d", n), Namespace: "default", JobId: "bench",
		MsgpackDriverConfig: config, StdoutPath: os.DevNull, StderrPath: os.DevNull,
	})
	took = time.Since(began)
	if err != nil {
		return 0, nil, err
	}
	return took, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		return instance.DestroyTask(ctx, id, true)
	}, nil
}

// bestScript is what a start of ours is measured against.
const bestScript = "scripts/bench/best.sh"

// watch runs deskwatch once over the subjects and returns when each was ready.
func watch(deskwatch string, subjects ...string) (map[string]float64, error) {
	samples, err := readWatch(exec.Command(deskwatch, append([]string{"-n", "1", "-json"}, subjects...)...))
	if err != nil {
		return nil, err
	}
	ready := map[string]float64{}
	for _, s := range samples {
		ready[filepath.Base(s.Subject)] = s.Ready
	}
	for _, s := range subjects {
		if ready[filepath.Base(s)] == 0 {
			return nil, fmt.Errorf("deskwatch: no figure for %s", s)
		}
	}
	return ready, nil
}

// watchedDesktop is what deskwatch says of one.
type watchedDesktop struct {
	Subject string  `json:"subject"`
	Ready   float64 `json:"ready_ms"`
	PSS     float64 `json:"pss_mb"`
}

// readWatch runs deskwatch -json.
func readWatch(cmd *exec.Cmd) (all []watchedDesktop, err error) {
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("deskwatch: %w", err)
	}
	for in := json.NewDecoder(bytes.NewReader(out)); ; {
		var one watchedDesktop
		switch err := in.Decode(&one); {
		case errors.Is(err, io.EOF):
			return all, nil
		case err != nil:
			return nil, fmt.Errorf("read what deskwatch says: %w", err)
		}
		all = append(all, one)
	}
}

// Figures of the smaller of the two peers of target 10, recorded on the same machine kind.
const (
	peerBinaryMB    = 20.9
	peerPSSMB       = 21.2
	peerHandshakeMS = 43
	peerHealthyMS   = 81
)

// plugin measures target 10. The peers are not built here.
func (b *bench) plugin(runs int) ([]row, error) {
	info, err := os.Stat(pluginPath)
	if err != nil {
		return nil, err
	}
	var handshake, healthy, pss []float64
	for range runs {
		figures, err := launchPlugin()
		if err != nil {
			return nil, err
		}
		handshake, healthy, pss = append(handshake, figures.handshake), append(healthy, figures.healthy), append(pss, figures.pss)
	}
	return []row{
		besideRecorded(10, "plugin binary", "MB", []float64{float64(info.Size()) / 1e6}, peerBinaryMB).atMost(1),
		besideRecorded(10, "plugin memory, idle (PSS)", "MB", pss, peerPSSMB).atMost(1),
		besideRecorded(10, "plugin: exec to handshake", "ms", handshake, peerHandshakeMS).atMost(1),
		besideRecorded(10, "plugin: exec to healthy fingerprint", "ms", healthy, peerHealthyMS).atMost(1),
	}, nil
}

type pluginFigures struct{ handshake, healthy, pss float64 }

// launchPlugin starts the plugin as an agent does and looks at it.
func launchPlugin() (pluginFigures, error) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	handshake, err := timeHandshake(ctx)
	if err != nil {
		return pluginFigures{}, err
	}
	h, err := host.Load(ctx, host.Options{Path: pluginPath, Logger: hclog.NewNullLogger(), Config: map[string]any{"allow_unsandboxed_host": true}})
	if err != nil {
		return pluginFigures{}, err
	}
	defer func() { _ = h.Close(ctx) }()
	began := time.Now()
	instance, err := h.Instance(ctx)
	if err != nil {
		return pluginFigures{}, err
	}
	if err := awaitHealthy(ctx, instance); err != nil {
		return pluginFigures{}, err
	}
	took := float64(time.Since(began)) / float64(time.Millisecond)
	time.Sleep(settle) // idle is what it is when it has said how it is
	taken, err := pss.MB(instance.PID())
	return pluginFigures{handshake: handshake, healthy: took, pss: taken}, err
}

func awaitHealthy(ctx context.Context, instance *host.Instance) error {
	healthy := errors.New("healthy")
	err := instance.Fingerprint(ctx, func(f *nomadplugin.Fingerprint) error {
		if f.GetHealth() == nomadplugin.Healthy {
			return healthy
		}
		return nil
	})
	if !errors.Is(err, healthy) {
		return fmt.Errorf("fingerprint: %w", err)
	}
	return nil
}

// timeHandshake measures from exec to the line by which a plugin names its socket.
func timeHandshake(ctx context.Context) (float64, error) {
	cmd := exec.CommandContext(ctx, pluginPath)
	cmd.Env = append(os.Environ(), nomadplugin.Handshake.MagicCookieKey+"="+nomadplugin.Handshake.MagicCookieValue, "PLUGIN_PROTOCOL_VERSIONS=2")
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
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	if fields := strings.Split(line, "|"); err == nil && len(fields) > 3 {
		_ = os.Remove(fields[3]) // a killed plugin leaves its socket
	}
	return took, err
}
