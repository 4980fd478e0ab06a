// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/docker/docker/api/types/network"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/isolation/namespace"
	"github.com/botscreen/botscreen/shared/screen"
)

// inNetwork calls f on a thread that is in the network of pid.
func inNetwork(pid int, f func() error) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := namespace.EnterNetwork("/proc/" + strconv.Itoa(pid) + "/ns/net")
		if err == nil {
			err = f()
		}
		result <- err
	}()
	return <-result
}

// answers accepts whoever connects, in the network that it is called in.
func answers(t *testing.T, address string) error {
	l, err := net.Listen("tcp4", address)
	if err != nil {
		return err
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_ = c.Close()
		}
	}()
	return nil
}

func tool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
		t.Fatalf("%v: %v %s", args, err, out)
	}
}

// metadata is a machine beside the node that answers as a cloud's metadata service does.
func metadata(t *testing.T) {
	t.Helper()
	machine := exec.Command("unshare", "--net", "sleep", "300")
	must(t, machine.Start())
	t.Cleanup(func() { _ = machine.Process.Kill(); _ = machine.Wait() })
	pid := machine.Process.Pid
	ours, err := os.Readlink("/proc/self/ns/net")
	must(t, err)
	for end := time.Now().Add(limit); ; runtime.Gosched() {
		its, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/net")
		if err == nil && its != ours {
			break
		}
		if time.Now().After(end) {
			t.Fatal("the other machine has no network of its own")
		}
	}
	inside := []string{"nsenter", "--net=/proc/" + strconv.Itoa(pid) + "/ns/net"}
	tool(t, "ip", "link", "set", "lo", "up")
	tool(t, "ip", "link", "add", "m0", "type", "veth", "peer", "name", "m1", "netns", strconv.Itoa(pid))
	tool(t, "ip", "address", "add", "169.254.169.253/30", "dev", "m0")
	tool(t, "ip", "link", "set", "m0", "up")
	tool(t, append(inside, "ip", "address", "add", "169.254.169.254/30", "dev", "m1")...)
	tool(t, append(inside, "ip", "link", "set", "m1", "up")...)
	tool(t, append(inside, "ip", "route", "add", "default", "via", "169.254.169.253")...)
	must(t, inNetwork(pid, func() error { return answers(t, "169.254.169.254:80") }))
}

// X37: from a screen on the bridge neither the metadata service nor the node answers; where
// the rules are gone both do, and the next screen brings them back.
func TestX37MetadataDropped(t *testing.T) {
	if !again(t, "network", unix.CLONE_NEWNET) {
		return
	}
	program, err := iptables()
	if err != nil {
		t.Skipf("needs iptables: %v", err)
	}
	metadata(t)
	must(t, answers(t, "0.0.0.0:8080")) // the node's own services
	e := startEngine(t, engine{network: true})
	b := boundaryAt(t, e.endpoint)
	launch := func() *sandbox {
		t.Helper()
		order := newOrder(t, emptyImage(t, b))
		order.Network = screen.NetworkBridge
		s := launched(t, b, order)
		if left := s.Warnings(); len(left) > 0 {
			t.Fatalf("warned of %v", left)
		}
		return s
	}
	s := launch()
	bridge, err := b.ensureBridge(bounded(t))
	must(t, err)
	gateway := bridge.IPAM.Config[0].Gateway
	connect := func(address string) error {
		return inNetwork(s.record.Session.PID, func() error {
			c, err := net.DialTimeout("tcp4", address, 2*time.Second)
			if err == nil {
				_ = c.Close()
			}
			return err
		})
	}
	addresses := []string{"169.254.169.254:80", "169.254.169.253:8080", gateway + ":8080"}
	for _, address := range addresses {
		var late net.Error
		if err := connect(address); !errors.As(err, &late) || !late.Timeout() {
			t.Errorf("%s from the screen: %v", address, err)
		}
	}
	for _, rule := range shieldRules(deviceOf(bridge)) {
		must(t, run(t.Context(), program, "-D", rule))
	}
	for _, address := range addresses {
		if err := connect(address); err != nil {
			t.Errorf("without the rules %s does not answer, so they prove nothing: %v", address, err)
		}
	}
	launch()
	for _, rule := range shieldRules(deviceOf(bridge)) {
		if err := run(t.Context(), program, "-C", rule); err != nil {
			t.Errorf("%v is not there again: %v", rule, err)
		}
	}
}

// X37: where no rule can be made the status says what is reachable.
func TestX37ReachableIsSaid(t *testing.T) {
	b := boundaryAt(t, "unix:///nowhere")
	b.elsewhere.Store(true)
	if warned := fmt.Sprint(b.guard(t.Context(), network.Inspect{ID: "0123456789abcdef"})); warned != "[metadata: reachable (no rule keeps the screen's bridge from the node: the engine is not on this node)]" {
		t.Errorf("the warning is %s", warned)
	}
}
