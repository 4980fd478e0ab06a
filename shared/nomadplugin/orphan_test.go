// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"bufio"
	"fmt"
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

// TestOrphanHelper is no test: it is the agent and the plugin of the ones below.
func TestOrphanHelper(t *testing.T) {
	switch os.Getenv(orphanRole) {
	case "agent":
		plugin := exec.Command(os.Args[0], "-test.run=^TestOrphanHelper$")
		plugin.Env = append(os.Environ(), orphanRole+"=plugin", Handshake.MagicCookieKey+"="+Handshake.MagicCookieValue)
		plugin.Stdout, plugin.Stderr = os.Stdout, os.Stderr
		if err := plugin.Start(); err != nil {
			t.Fatal(err)
		}
		fmt.Println("pid", plugin.Process.Pid)
		_ = plugin.Wait()
	case "plugin":
		logger := NewLogger("bad")
		Serve(&badDriver{}, logger)
		os.Exit(0)
	default:
		t.Skip("it serves other tests")
	}
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
	for lines := bufio.NewScanner(out); socket == "" && lines.Scan(); {
		_, _ = fmt.Sscanf(lines.Text(), "pid %d", &pid)
		// The handshake: core version, protocol version, network, address, protocol.
		if parts := strings.Split(lines.Text(), "|"); len(parts) > 4 {
			socket = parts[3]
		}
	}
	if pidfd, err = unix.PidfdOpen(pid, 0); err != nil {
		t.Fatalf("plugin %d: %v", pid, err)
	}
	t.Cleanup(func() {
		_ = unix.PidfdSendSignal(pidfd, unix.SIGKILL, nil, 0)
		_ = unix.Close(pidfd)
	})
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

// Issue 7: a plugin that was only looked at ends with its agent, which had no time to end it.
func TestOrphanEnds(t *testing.T) {
	pidfd := orphan(t, func(conn *grpc.ClientConn) error {
		_, err := basepb.NewBasePluginClient(conn).PluginInfo(testContext(t), &basepb.PluginInfoRequest{})
		return err
	})
	if !ended(t, pidfd, 30*time.Second) {
		t.Error("a plugin that nobody knows lives on")
	}
}

// N1: a plugin that is in use outlives its agent; the next one takes it over.
func TestOrphanInUseLivesOn(t *testing.T) {
	pidfd := orphan(t, func(conn *grpc.ClientConn) error {
		_, err := driverpb.NewDriverClient(conn).Init(testContext(t), &driverpb.InitRequest{})
		return err
	})
	if ended(t, pidfd, time.Second) {
		t.Error("it ended with its agent")
	}
}
