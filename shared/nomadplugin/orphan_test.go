// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/botscreen/botscreen/shared/nomadplugin/proto/basepb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

const orphanRole = "BOTSCREEN_TEST_ORPHAN"

// idler is a driver that has nothing to do.
type idler struct{ badDriver }

func (*idler) Idle() bool { return true }

// TestOrphanHelper is no test: it is the agent and the plugin of the ones below.
func TestOrphanHelper(t *testing.T) {
	switch os.Getenv(orphanRole) {
	case "agent":
		plugin := pluginCommand("plugin")
		// As with an agent, what is read of the plugin is read by the agent itself.
		plugin.Stdout = struct{ io.Writer }{os.Stdout}
		if err := plugin.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Println("pid", plugin.Process.Pid)
		_ = plugin.Wait()
	case "plugin":
		Serve(&badDriver{}, NewLogger("bad"))
		os.Exit(0)
	case "idle plugin":
		serveUntil(&idler{}, NewLogger("idle"), 100*time.Millisecond)
		os.Exit(0)
	default:
		t.Skip("it serves other tests")
	}
}

func pluginCommand(role string) *exec.Cmd {
	plugin := exec.Command(os.Args[0], "-test.run=^TestOrphanHelper$")
	plugin.Env = append(os.Environ(), orphanRole+"="+role, Handshake.MagicCookieKey+"="+Handshake.MagicCookieValue)
	plugin.Stderr = os.Stderr
	return plugin
}

// orphan starts an agent with a plugin, lets something be called, and kills the agent. The
// pidfd is the plugin's.
func orphan(t *testing.T, call func(conn *grpc.ClientConn) error) (pidfd int) {
	t.Helper()
	agent := exec.Command(os.Args[0], "-test.run=^TestOrphanHelper$")
	agent.Env = append(os.Environ(), orphanRole+"=agent")
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	var pid int
	var socket string
	for lines := bufio.NewScanner(out); (socket == "" || pid == 0) && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "pid %d", &pid)
		// The handshake: core version, protocol version, network, address, protocol.
		if parts := strings.Split(lines.Text(), "|"); len(parts) > 4 {
			socket = parts[3]
		}
	}
	pidfd = pidfdOf(t, pid)
	conn, err := grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err == nil {
		defer conn.Close()
		err = call(conn)
	}
	if err != nil {
		t.Fatalf("call of the plugin at %q: %v", socket, err)
	}
	_ = agent.Process.Kill()
	_, _ = agent.Process.Wait()
	return pidfd
}

func pidfdOf(t *testing.T, pid int) int {
	t.Helper()
	pidfd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("plugin %d: %v", pid, err)
	}
	t.Cleanup(func() {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		_ = unix.Close(pidfd)
	})
	return pidfd
}

// ended waits for a process; it is false when that takes longer.
func ended(t *testing.T, pidfd int, limit time.Duration) bool {
	t.Helper()
	for deadline := time.Now().Add(limit); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(max(0, time.Until(deadline)).Milliseconds()))
		if err == nil {
			return n == 1
		}
		if err != unix.EINTR {
			t.Fatal(err)
		}
	}
}

// Issue 7: a plugin of which no agent has written down where it is ends with its agent, which
// had no time to end it.
func TestOrphanEnds(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, conn *grpc.ClientConn) error{
		"looked at": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := basepb.NewBasePluginClient(conn).PluginInfo(ctx, &basepb.PluginInfoRequest{})
			return err
		},
		"configured": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := basepb.NewBasePluginClient(conn).SetConfig(ctx, &SetConfigRequest{})
			return err
		},
		"initialised": func(ctx context.Context, conn *grpc.ClientConn) error {
			_, err := driverpb.NewDriverClient(conn).Init(ctx, &driverpb.InitRequest{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			pidfd := orphan(t, func(conn *grpc.ClientConn) error { return call(testContext(t), conn) })
			if !ended(t, pidfd, 30*time.Second) {
				t.Error("a plugin that nobody knows lives on")
			}
		})
	}
}

// Issue 7: an agent may be dead before the plugin has come to look for it.
func TestOrphanOfADeadAgent(t *testing.T) {
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	_ = reader.Close()
	defer writer.Close()
	plugin := pluginCommand("plugin")
	plugin.Stdout = writer
	if err := plugin.Start(); err != nil {
		t.Fatal(err)
	}
	pidfd := pidfdOf(t, plugin.Process.Pid)
	go func() { _ = plugin.Wait() }()
	if !ended(t, pidfd, 30*time.Second) {
		t.Error("it lives on, and nobody has read where it is")
	}
}

// N1: a plugin that is in use outlives its agent; the next one takes it over.
func TestOrphanInUseLivesOn(t *testing.T) {
	pidfd := orphan(t, func(conn *grpc.ClientConn) error {
		_, err := driverpb.NewDriverClient(conn).Capabilities(testContext(t), &driverpb.CapabilitiesRequest{})
		return err
	})
	if ended(t, pidfd, time.Second) {
		t.Error("it ended with its agent")
	}
}

// Issue 7: a plugin that no agent comes back to ends, and leaves no socket behind.
func TestForsakenPluginEnds(t *testing.T) {
	dir, err := os.MkdirTemp("", "npf") // short: a socket's path has at most 107 bytes
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	plugin := pluginCommand("idle plugin")
	plugin.Env = append(plugin.Env, "TMPDIR="+dir)
	if out, err := plugin.Output(); err != nil || !strings.Contains(string(out), dir) {
		t.Fatalf("%v: %s", err, out)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left: %v, %v", left, err)
	}
}
