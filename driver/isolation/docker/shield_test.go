// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
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

// setting writes a kernel setting of the network that it is called in.
func setting(device, name, value string) error {
	return os.WriteFile("/proc/sys/net/ipv6/conf/"+device+"/"+name, []byte(value), 0)
}

// linkLocal is the IPv6 address that a device of the network it is called in gives itself.
// It waits for it.
func linkLocal(device string) (string, error) {
	for end := time.Now().Add(limit); ; runtime.Gosched() {
		dev, err := net.InterfaceByName(device)
		if err != nil {
			return "", err
		}
		addresses, err := dev.Addrs()
		if err != nil {
			return "", err
		}
		for _, a := range addresses {
			if network, ok := a.(*net.IPNet); ok && network.IP.To4() == nil && network.IP.IsLinkLocalUnicast() {
				return network.IP.String(), nil
			}
		}
		if time.Now().After(end) {
			return "", fmt.Errorf("%s has no address: %v", device, addresses)
		}
	}
}

// X37: the node does not hear IPv6 of a screen's bridge, although the container has it,
// and a network that has IPv6 is refused.
func TestX37NoIPv6(t *testing.T) {
	if !again(t, "network", unix.CLONE_NEWNET) {
		return
	}
	if _, err := iptables(); err != nil {
		t.Skipf("needs iptables: %v", err)
	}
	if _, err := os.Stat("/proc/sys/net/ipv6"); err != nil {
		t.Skip("needs a kernel with IPv6")
	}
	e := startEngine(t, engine{network: true})
	b := boundaryAt(t, e.endpoint)
	order := newOrder(t, emptyImage(t, b))
	order.Network = screen.NetworkBridge
	s := launched(t, b, order)
	bridge, err := b.ensureBridge(bounded(t))
	must(t, err)
	device := deviceOf(bridge)
	l, err := net.Listen("tcp6", "[::]:8080") // the node's own services
	must(t, err)
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_ = c.Close()
		}
	}()
	// A container that has IPv6 in spite of its network.
	must(t, inNetwork(s.record.Session.PID, func() error {
		err := errors.Join(setting("eth0", "accept_dad", "0"), setting("eth0", "disable_ipv6", "0"))
		if err == nil {
			_, err = linkLocal("eth0")
		}
		return err
	}))
	connect := func(address string, patience time.Duration) error {
		return inNetwork(s.record.Session.PID, func() error {
			c, err := net.DialTimeout("tcp6", "["+address+"%eth0]:8080", patience)
			if err == nil {
				_ = c.Close()
			}
			return err
		})
	}
	// Somebody takes the setting back: the node answers.
	must(t, errors.Join(setting(device, "accept_dad", "0"), setting(device, "disable_ipv6", "0")))
	address, err := linkLocal(device)
	must(t, err)
	// An address that has just come can be used a moment later.
	err = unix.EADDRNOTAVAIL
	for end := time.Now().Add(limit); errors.Is(err, unix.EADDRNOTAVAIL) && time.Now().Before(end); runtime.Gosched() {
		err = connect(address, limit)
	}
	if err != nil {
		t.Errorf("without the setting the node does not answer, so it proves nothing: %v", err)
	}
	if warned := b.guard(bounded(t), bridge); len(warned) > 0 {
		t.Fatalf("warned of %v", warned)
	}
	if err := connect(address, 2*time.Second); err == nil {
		t.Errorf("the node answers at %s", address)
	}

	b.bridge = "with-ipv6"
	on := true
	_, err = b.api.NetworkCreate(bounded(t), b.bridge, network.CreateOptions{
		Driver: "bridge", EnableIPv6: &on, Options: map[string]string{optionICC: "false"},
		IPAM: &network.IPAM{Config: []network.IPAMConfig{{Subnet: "fd00:b07::/64"}}},
	})
	must(t, err)
	var refused *RefusedError
	if _, err := b.ensureBridge(bounded(t)); !errors.As(err, &refused) || !strings.Contains(refused.Sentence(), "IPv6") {
		t.Errorf("a network with IPv6: %v", err)
	}
}

// X37: the rules go when their bridge is gone, and no other rule does.
func TestX37RulesGoWithTheBridge(t *testing.T) {
	if !again(t, "network", unix.CLONE_NEWNET) {
		return
	}
	program, err := iptables()
	if err != nil {
		t.Skipf("needs iptables: %v", err)
	}
	e := startEngine(t, engine{network: true})
	b := boundaryAt(t, e.endpoint)
	keep := func(string) bool { return true }
	lives, err := b.ensureBridge(bounded(t))
	must(t, err)
	b.bridge = "another"
	goes, err := b.ensureBridge(bounded(t))
	must(t, err)
	for _, found := range []network.Inspect{lives, goes, goes} {
		if warned := b.guard(bounded(t), found); len(warned) > 0 {
			t.Fatalf("warned of %v", warned)
		}
	}
	theirs := []string{"INPUT", "-i", deviceOf(goes), "-j", "DROP"}
	must(t, run(t.Context(), program, "-I", theirs))
	must(t, run(t.Context(), program, "-I", shieldRules(deviceOf(goes))[1])) // a second of one kind
	must(t, b.api.NetworkRemove(bounded(t), goes.ID))
	_, err = b.Sweep(bounded(t), keep, 0)
	must(t, err)
	for _, rule := range shieldRules(deviceOf(goes)) {
		if run(t.Context(), program, "-C", rule) == nil {
			t.Errorf("%v is left", rule)
		}
	}
	for _, rule := range append(shieldRules(deviceOf(lives)), theirs) {
		if err := run(t.Context(), program, "-C", rule); err != nil {
			t.Errorf("%v is gone: %v", rule, err)
		}
	}
	if warned := b.guard(bounded(t), goes); len(warned) != 1 || !strings.Contains(warned[0], "is not in this driver's network") {
		t.Errorf("a bridge that is not there is guarded: %v", warned)
	}
}

func TestShielded(t *testing.T) {
	const text = `-P INPUT ACCEPT
-N DOCKER-USER
-A INPUT -i br-0123456789ab -m comment --comment botscreen -j DROP
-A DOCKER-USER -d 169.254.0.0/16 -i br-0123456789ab -m comment --comment botscreen -j DROP
-A INPUT -i br-fedcba987654 -m comment --comment "botscreen of old" -j DROP
-A INPUT -i eth0 -j DROP
-A INPUT -m comment --comment botscreen -j DROP
`
	if got := shielded(text); !slices.Equal(got, []string{"br-0123456789ab"}) {
		t.Errorf("%v", got)
	}
}

func FuzzShielded(f *testing.F) {
	for _, text := range []string{"", "-A INPUT -i br-0 -m comment --comment botscreen -j DROP\n", "-i --comment botscreen", "--comment botscreen -i"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		for _, device := range shielded(text) {
			if device == "" || strings.ContainsAny(device, " \n") || !strings.Contains(text, ruleMark) {
				t.Errorf("%q of %q", device, text)
			}
		}
	})
}

// X37: where no rule can be made the status says what is reachable.
func TestX37ReachableIsSaid(t *testing.T) {
	b := boundaryAt(t, "unix:///nowhere")
	b.elsewhere.Store(true)
	if warned := fmt.Sprint(b.guard(t.Context(), network.Inspect{ID: "0123456789abcdef"})); warned != "[metadata: reachable (no rule keeps the screen's bridge from the node: the engine is not on this node)]" {
		t.Errorf("the warning is %s", warned)
	}
}
