// SPDX-License-Identifier: MPL-2.0

package devagenttest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent"
	"github.com/botscreen/botscreen/shared/devagent/drivers"
	"github.com/botscreen/botscreen/shared/devagent/node"
)

// agentCommand is the test binary's word for being an agent.
const agentCommand = "devagenttest-agent"

// Process is an agent in a process of its own, to be killed.
type Process struct {
	Client *api.Client
	cmd    *exec.Cmd
}

// StartProcess starts an agent in a process of its own. It is killed at the end of
// the test; its tasks are not.
func StartProcess(t testing.TB, d Dirs) *Process {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dirs, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(self, agentCommand, string(dirs))
	cmd.Stderr = testWriter{t}
	// The plugin is in the agent's process group: a group of its own keeps the test out.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &Process{cmd: cmd}
	t.Cleanup(p.Kill)
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatalf("the agent says nothing: %v", err)
	}
	token, err := devagent.ReadToken(d.Data)
	if err != nil {
		t.Fatal(err)
	}
	p.Client, err = api.NewClient(&api.Config{Address: "http://" + strings.TrimSpace(address), SecretID: token})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// Kill ends the agent as a crash does.
func (p *Process) Kill() { p.end(syscall.SIGKILL) }

// Terminate ends the agent as a service manager does.
func (p *Process) Terminate() { p.end(syscall.SIGTERM) }

func (p *Process) end(sig syscall.Signal) {
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Process.Signal(sig)
		_ = p.cmd.Wait()
	}
}

// agentMain is the agent's process.
func agentMain(text string) error {
	var d Dirs
	if err := json.Unmarshal([]byte(text), &d); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	a, err := devagent.New(ctx, devagent.Config{
		DataDir: d.Data, Bind: "127.0.0.1:0", PluginDir: d.Plugins,
		Plugins: []drivers.Block{{Name: PluginName, Config: map[string]any{"dir": d.Driver}}},
		Node:    node.Config{Datacenter: "dc1", Name: "test"},
		Logmon:  logmonCommand(self),
		Log:     hclog.New(&hclog.LoggerOptions{Output: os.Stderr, Level: hclog.Warn}),
	})
	if err != nil {
		return err
	}
	go func() {
		<-a.Ready()
		fmt.Println(a.Addr())
	}()
	return a.Run(ctx)
}

// AwaitGone waits until a process is gone.
func AwaitGone(t testing.TB, pid int) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for startOf(pid) != "" {
		if time.Now().After(deadline) {
			t.Fatalf("process %d lives", pid)
		}
		<-tick.C
	}
}

// StartTime tells one life of a pid from another; "" is none.
func StartTime(pid int) string { return startOf(pid) }
