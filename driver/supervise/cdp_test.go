// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// beBrowsing is a session whose connections to the browser its test is: it says what comes
// over the newest, and sends what it is told.
func beBrowsing() error {
	lines := bufio.NewScanner(os.Stdin)
	conns := make(chan net.Conn, 10)
	var conn net.Conn
	for lines.Scan() {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		switch word {
		case "dial":
			go func() { fmt.Println("error:", serveBrowsing(rest, conns)) }()
		case "next":
			conn = <-conns
			go sayAll(conn)
		case "send":
			if _, err := io.WriteString(conn, rest); err != nil {
				fmt.Println("unsent", rest)
			}
		case "close":
			_ = conn.Close()
		}
	}
	return nil
}

// serveBrowsing passes the end of a pair for every dial; a second dial is told of first.
func serveBrowsing(path string, conns chan<- net.Conn) error {
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: path, Net: "unixpacket"})
	if err != nil {
		return err
	}
	home := dialhome.NewConn(c)
	self, err := process.Observe(os.Getpid())
	if err != nil {
		return err
	}
	err = home.Send(dialhome.Packet{Event: dialhome.EventHello, Body: dialhome.Encode(dialhome.Desktop{
		State: dialhome.Running, Display: 77, XPID: self.PID, XStart: self.Start,
	})})
	for err == nil {
		var p dialhome.Packet
		if p, _, err = home.Receive(); err != nil {
			break
		}
		if p.Op != dialhome.OpDial {
			err = home.Send(dialhome.Packet{ID: p.ID, OK: true, Body: dialhome.Encode(struct{}{})})
			continue
		}
		fmt.Printf("asked %s\n", p.Body)
		var pair [2]int
		if pair, err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			break
		}
		near, far := os.NewFile(uintptr(pair[0]), "near"), os.NewFile(uintptr(pair[1]), "far")
		conn, failure := net.FileConn(near)
		_ = near.Close()
		if failure != nil {
			return failure
		}
		conns <- conn
		err = home.Send(dialhome.Packet{ID: p.ID, OK: true}, far)
		_ = far.Close()
	}
	return err
}

func sayAll(conn net.Conn) {
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		if n > 0 {
			fmt.Printf("got %s\n", buf[:n])
		}
		if err != nil {
			fmt.Println("end")
			return
		}
	}
}

// newBrowsable supervises a ready screen whose session is a helper.
func newBrowsable(t *testing.T) (*rig, *helper) {
	t.Helper()
	h := startHelper(t, "browsing")
	r := newRig(t, func(c *Config) { c.Session = h.identity })
	h.tell("dial " + r.dial)
	r.awaitState(screen.Ready)
	return r, h
}

// browse is the agent's connection to the browser, and whether it was let in.
func (r *rig) browse() (net.Conn, error) {
	r.t.Helper()
	conn, err := r.client.Tunnel(r.t.Context(), control.CommandCDP)
	must(r.t, err)
	r.t.Cleanup(func() { _ = conn.Close() })
	return conn, control.OpenTunnel(r.t.Context(), conn, control.Hello{})
}

func (r *rig) browsed() net.Conn {
	r.t.Helper()
	conn, err := r.browse()
	must(r.t, err)
	return conn
}

func (r *rig) sends(conn net.Conn, text string) {
	r.t.Helper()
	_, err := io.WriteString(conn, text)
	must(r.t, err)
}

func (r *rig) reads(conn net.Conn, want string) {
	r.t.Helper()
	must(r.t, conn.SetReadDeadline(time.Now().Add(limit)))
	got := make([]byte, len(want))
	if _, err := io.ReadFull(conn, got); err != nil || string(got) != want {
		r.t.Fatalf("read %q, %v, want %q", got, err, want)
	}
}

// ends checks that nothing more comes.
func (r *rig) ends(conn net.Conn) {
	r.t.Helper()
	must(r.t, conn.SetReadDeadline(time.Now().Add(limit)))
	if rest, err := io.ReadAll(conn); len(rest) > 0 || errors.Is(err, os.ErrDeadlineExceeded) {
		r.t.Errorf("there came %q, %v", rest, err)
	}
}

// L15, W5, BRW-09: a takeover cuts the agent off from the browser before the person has the
// screen: what it sent before is over by then, of what comes from the browser afterwards it
// hears nothing, and new connections are refused. After the hand-back it may come again.
func TestBRW09TakeoverCutsCDP(t *testing.T) {
	r, h := newBrowsable(t)
	r.mu.Lock()
	r.cutLimit = limit // however slow this machine is
	r.mu.Unlock()
	conn := r.browsed()
	if peer := h.says("asked "); peer != `{"peer":"cdp"}` {
		t.Errorf("the session was asked for %s", peer)
	}
	h.tell("next")
	r.sends(conn, "evaluate")
	if got := h.says("got "); got != "evaluate" {
		t.Errorf("the browser got %q", got)
	}
	h.tell("send event")
	r.reads(conn, "event")

	taken := make(chan struct{})
	go func() { defer close(taken); r.take("ann") }()
	h.says("end")
	r.ends(conn)
	if held := r.leaseNow(); held.Holder != "agent" {
		t.Errorf("the screen is the person's while the agent is attached: %+v", held)
	}
	if _, err := r.browse(); !isKind(err, control.LeaseChanged) && !isKind(err, control.HumanHasControl) {
		t.Errorf("while hands change: %v", err)
	}
	h.tell("send late answer")
	h.tell("close")
	select {
	case <-taken:
	case <-time.After(limit):
		t.Fatal("nobody gets the screen")
	}
	_, err := r.browse()
	var refusal *control.Error
	if !errors.As(err, &refusal) || refusal.Kind != control.HumanHasControl || refusal.Next == "" || refusal.Since.IsZero() {
		t.Errorf("under a person: %v", err)
	}
	r.release("ann")
	again := r.browsed()
	h.says("asked ")
	h.tell("next")
	r.sends(again, "hello")
	if got := h.says("got "); got != "hello" {
		t.Errorf("the browser got %q", got)
	}
	h.tell("send welcome")
	r.reads(again, "welcome")
	if _, err := conn.Write([]byte("x")); err == nil {
		r.ends(conn)
	}
}

// X18: a browser, or a session, that does not end what the agent attached does not keep the
// screen from a person.
func TestX18CutIsBounded(t *testing.T) {
	r, h := newBrowsable(t)
	conn := r.browsed()
	h.says("asked ")
	began := time.Now()
	r.take("ann")
	if took := time.Since(began); took > limit/2 {
		t.Errorf("the takeover took %s", took)
	}
	r.ends(conn)
	r.await("it is forgotten", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.browsing) == 0
	})
	h.tell("next")
	h.says("end")
}

// A client that leaves is not waited for by the next, nor is one that nobody came for.
func TestBrowsingLeaves(t *testing.T) {
	r, h := newBrowsable(t)
	conn := r.browsed()
	h.tell("next")
	h.says("asked ")
	must(t, conn.Close())
	h.says("end")
	h.tell("close")
	conn = r.browsed()
	h.tell("next")
	h.says("asked ")
	h.tell("close") // the browser has ended
	r.ends(conn)
	r.await("both are forgotten", func() bool {
		r.mu.Lock()
		defer r.mu.Unlock()
		return len(r.browsing) == 0 && len(r.passed) == 0
	})
}

// I1: what the agent sends to the browser is a use of the screen, and what the browser says
// by itself is none.
func TestI1BrowsingIsUse(t *testing.T) {
	r, h := newBrowsable(t)
	conn := r.browsed()
	h.says("asked ")
	h.tell("next")
	long := time.Now().Add(-time.Hour)
	r.mu.Lock()
	r.use.last = long
	r.mu.Unlock()
	used := func() time.Time {
		r.mu.Lock()
		defer r.mu.Unlock()
		return r.use.last
	}
	h.tell("send event")
	r.reads(conn, "event")
	if at := used(); !at.Equal(long) || r.use.current != 0 {
		t.Errorf("an event is a use at %s", at)
	}
	r.sends(conn, "click")
	h.says("got ")
	r.await("the click is a use", func() bool { return time.Since(used()) < limit })
}
