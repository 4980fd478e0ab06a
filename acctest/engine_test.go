// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// engine is a docker engine of the test's own, which may die.
type engine struct {
	t             *testing.T
	dir, endpoint string
	cmd           *exec.Cmd
	done          chan struct{}
}

// newEngine starts one with an image of the engine that scripts/with-engine.sh has. It is
// nil, and the reason is said, where there is none.
func newEngine(t *testing.T, image string) (e *engine, why string) {
	t.Helper()
	from := os.Getenv("BOTSCREEN_TEST_DOCKER")
	if from == "" {
		return nil, "no docker engine: run by scripts/with-engine.sh"
	}
	if _, err := exec.LookPath("dockerd"); err != nil {
		return nil, "no dockerd, to start an engine that may die"
	}
	if out, err := docker(from, "image", "inspect", image); err != nil {
		return nil, "no image " + image + ": " + out
	}
	dir, err := os.MkdirTemp("", "bse") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	e = &engine{t: t, dir: dir, endpoint: "unix://" + dir + "/sock"}
	t.Cleanup(e.remove)
	e.start(true)
	load := exec.Command("sh", "-c", `docker -H "$1" save "$3" | docker -H "$2" load --quiet`, "load", from, e.endpoint, image)
	if out, err := load.CombinedOutput(); err != nil {
		t.Fatalf("copy %s: %v: %s", image, err, out)
	}
	return e, ""
}

// start runs the engine. What runs already in its containers lives on only with live.
func (e *engine) start(live bool) {
	e.t.Helper()
	log, err := os.OpenFile(e.dir+"/log", os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		e.t.Fatal(err)
	}
	defer log.Close()
	// No bridge and no firewall rules: screens have no network, and the node keeps its own.
	e.cmd = exec.Command("dockerd", "--data-root", e.dir+"/data", "--exec-root", e.dir+"/exec", "--pidfile", e.dir+"/pid", "--host", e.endpoint,
		"--bridge", "none", "--iptables=false", "--ip6tables=false", "--log-level", "warn", fmt.Sprintf("--live-restore=%t", live))
	e.cmd.Stdout, e.cmd.Stderr = log, log
	if err := e.cmd.Start(); err != nil {
		e.t.Fatal(err)
	}
	e.done = make(chan struct{})
	go func(cmd *exec.Cmd, done chan struct{}) { _ = cmd.Wait(); close(done) }(e.cmd, e.done)
	for deadline := time.Now().Add(startLimit); ; time.Sleep(100 * time.Millisecond) {
		if _, err := docker(e.endpoint, "version"); err == nil {
			return
		}
		if time.Now().After(deadline) {
			text, _ := os.ReadFile(e.dir + "/log")
			e.t.Fatalf("the engine does not answer:\n%s", text)
		}
	}
}

// end ends the engine; what runs in its containers lives on when it had no time for them.
func (e *engine) end(sig syscall.Signal) {
	endWithin(30*time.Second, e.cmd.Process, sig, e.done)
	e.endContainerd()
}

// endContainerd waits for the part that dies with its engine, a moment later: the next
// engine would wait for that one. One that is left by something else is ended.
func (e *engine) endContainerd() {
	path := e.dir + "/exec/containerd/containerd.pid"
	text, err := os.ReadFile(path)
	if err != nil {
		return
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	runs := func() bool {
		return slices.ContainsFunc(processes(), func(p process) bool { return p.pid == pid && strings.Contains(strings.Join(p.words, " "), e.dir) })
	}
	for deadline := time.Now().Add(10 * time.Second); err == nil && runs(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			_ = syscall.Kill(pid, syscall.SIGKILL)
			break
		}
	}
	_ = os.Remove(path) // a zombie counts as running
}

// remove ends what is left of the engine and takes its files away.
func (e *engine) remove() {
	e.end(syscall.SIGTERM)
	for _, p := range processes() {
		if strings.Contains(strings.Join(p.words, " "), e.dir+"/") {
			_ = syscall.Kill(p.pid, syscall.SIGKILL) // what watched over a container, where no engine came back
		}
	}
	mounts, _ := os.ReadFile("/proc/self/mountinfo")
	for _, line := range slices.Backward(strings.Split(string(mounts), "\n")) {
		if fields := strings.Fields(line); len(fields) > 4 && strings.HasPrefix(fields[4], e.dir+"/") {
			_ = syscall.Unmount(fields[4], syscall.MNT_DETACH)
		}
	}
	if err := os.RemoveAll(e.dir); err != nil {
		e.t.Error(err)
	}
}
