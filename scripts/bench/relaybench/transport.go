// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/shared/relay"
)

// sample is one round of one subject.
type sample struct {
	Subject string  `json:"subject"`
	Rate    float64 `json:"mb_per_s"`
	CPU     float64 `json:"cpu_s_per_gb,omitempty"` // of the relaying process alone
	P50     float64 `json:"p50_us"`
	P99     float64 `json:"p99_us"`
}

const (
	floodMiB   = 512
	roundTrips = 2000
)

// subject is one way from the server to the viewer.
type subject struct {
	name  string
	url   string
	token func() (subprotocol string, err error)
	group *cgroup.Group // nil: no process stands between
	stop  func()
}

// benchTransport measures the subjects in turns. The server and the viewer are one
// process and each subject is another, in a control group that counts its time.
func benchTransport(rounds int) error {
	dir, err := os.MkdirTemp("", "relaybench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "rfb")
	peer, err := startPeer(socket)
	if err != nil {
		return err
	}
	defer peer.stop()
	subjects := []subject{{name: "direct", url: "unix", stop: func() {}}}
	defer func() {
		for _, s := range subjects {
			s.stop()
		}
	}()
	for _, kind := range []string{"bare", "relay", "websockify"} {
		s, err := startSubject(kind, socket)
		if errors.Is(err, exec.ErrNotFound) {
			fmt.Fprintln(os.Stderr, "relaybench: without websockify, which is not installed")
			continue
		}
		if err != nil {
			return fmt.Errorf("start %s: %w", kind, err)
		}
		subjects = append(subjects, s)
	}
	for range rounds {
		for _, s := range subjects {
			found, err := s.measure(peer)
			if err != nil {
				return fmt.Errorf("measure %s: %w", s.name, err)
			}
			if err := say(found); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s subject) measure(p *peer) (sample, error) {
	v := visit{URL: s.url, MiB: floodMiB, Trips: 1}
	flooded, cpu, err := s.visit(p, v)
	if err != nil {
		return sample{}, err
	}
	v.MiB, v.Trips = 1, roundTrips
	tripped, _, err := s.visit(p, v)
	return sample{Subject: s.name, Rate: flooded.Rate, CPU: cpu.Seconds() / (floodMiB * 1.048576 / 1000), P50: tripped.P50, P99: tripped.P99}, err
}

// visit sends the peer's viewer through the subject and says what that cost it.
func (s subject) visit(p *peer, v visit) (outcome, time.Duration, error) {
	if s.token != nil {
		protocol, err := s.token()
		if err != nil {
			return outcome{}, 0, err
		}
		v.Subprotocols = []string{relay.ProtocolBinary, protocol}
	}
	before, err := s.used()
	if err != nil {
		return outcome{}, 0, err
	}
	found, err := p.ask(v)
	if err != nil {
		return outcome{}, 0, err
	}
	after, err := s.used()
	return found, after - before, err
}

func (s subject) used() (time.Duration, error) {
	if s.group == nil {
		return 0, nil
	}
	stats, err := s.group.Stats()
	if err == nil && stats.CPU == nil {
		err = errors.New("this machine's control groups count no processor time")
	}
	if err != nil {
		return 0, err
	}
	return stats.CPU.Total, nil
}

// startSubject runs a subject in a control group of its own, from its first
// instruction that matters on.
func startSubject(kind, socket string) (subject, error) {
	if kind != "websockify" {
		c, err := startChild("serve", kind, socket)
		if err != nil {
			return subject{}, err
		}
		url, err := c.line()
		if err != nil {
			return subject{}, errors.Join(err, c.cmd.Process.Kill())
		}
		return c.subject(kind, url, func() (string, error) {
			if _, err := fmt.Fprintln(c.in); err != nil {
				return "", err
			}
			return c.line()
		})
	}
	program, err := exec.LookPath("websockify")
	if err != nil {
		return subject{}, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return subject{}, err
	}
	addr := ln.Addr().String()
	_ = ln.Close()
	c, err := start(exec.Command(program, "--unix-target="+socket, addr))
	if err != nil {
		return subject{}, err
	}
	s, err := c.subject(kind, "ws://"+addr, nil)
	if err != nil {
		return subject{}, err
	}
	s.token = func() (string, error) { return relay.ProtocolBinary, nil }
	return s, awaitListener(addr)
}

func awaitListener(addr string) error {
	for deadline := time.Now().Add(20 * time.Second); ; {
		conn, err := net.Dial("tcp", addr)
		if err == nil {
			return conn.Close()
		}
		if time.Now().After(deadline) {
			return err
		}
	}
}

// child is another process of the bench.
type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func startChild(args ...string) (*child, error) {
	return start(exec.Command("/proc/self/exe", args...))
}

func start(cmd *exec.Cmd) (*child, error) {
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	return &child{cmd, in, bufio.NewReader(out)}, cmd.Start()
}

func (c *child) line() (string, error) {
	line, err := c.out.ReadString('\n')
	return strings.TrimSpace(line), err
}

func (c *child) stop() {
	_ = c.in.Close()
	if c.cmd.Process.Signal(os.Interrupt) != nil {
		_ = c.cmd.Process.Kill()
	}
	_ = c.cmd.Wait()
}

// subject counts what the child uses from now on.
func (c *child) subject(name, url string, token func() (string, error)) (subject, error) {
	tree, err := cgroup.Open(cgroup.Host{}, "")
	if err != nil {
		return subject{}, err
	}
	group, err := tree.Create(fmt.Sprintf("relaybench-%d", c.cmd.Process.Pid), cgroup.Limits{})
	if err != nil {
		return subject{}, err
	}
	stop := func() {
		c.stop()
		_ = group.Remove()
	}
	return subject{name: name, url: url, token: token, group: group, stop: stop}, group.Add(c.cmd.Process.Pid)
}

// peer is the process with both ends.
type peer struct{ *child }

func startPeer(socket string) (*peer, error) {
	c, err := startChild("peer", socket)
	if err != nil {
		return nil, err
	}
	_, err = c.line() // it listens
	return &peer{c}, err
}

func (p *peer) ask(v visit) (outcome, error) {
	if err := json.NewEncoder(p.in).Encode(v); err != nil {
		return outcome{}, err
	}
	line, err := p.line()
	if err != nil {
		return outcome{}, fmt.Errorf("the viewer ended: %w", err)
	}
	var found outcome
	return found, json.Unmarshal([]byte(line), &found)
}
