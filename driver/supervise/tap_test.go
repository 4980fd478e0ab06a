// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/rfb"
	"github.com/botscreen/botscreen/shared/screen"
)

// xvnc is a real server.
type xvnc struct {
	socket  string
	process *os.Process
}

// startXvnc runs Xvnc for one test; where it is not installed the test is skipped,
// except in CI.
func startXvnc(t *testing.T) xvnc {
	t.Helper()
	program, err := exec.LookPath("Xvnc")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("Xvnc is not installed")
	}
	socket := filepath.Join(filepath.Dir(serverPath(t)), "rfb")
	for n := range 10 { // a taken number makes Xvnc exit
		display := fmt.Sprintf(":%d", 10000+(os.Getpid()+n*997)%40000)
		if cmd := runXvnc(t, program, display, socket); cmd != nil {
			t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
			return xvnc{socket, cmd.Process}
		}
	}
	t.Fatal("no display number is free")
	return xvnc{}
}

// runXvnc returns nil when the server does not come up.
func runXvnc(t *testing.T, program, display, socket string) *exec.Cmd {
	t.Helper()
	ready, tell, err := os.Pipe()
	must(t, err)
	defer ready.Close()
	cmd := exec.Command(program, display, "-geometry", "1440x900", "-depth", "24", "-rfbport", "-1", "-rfbunixpath", socket,
		"-rfbunixmode", "0600", "-SecurityTypes", "None", "-AlwaysShared", "-UseBlacklist=0", "-SendCutText=0", "-AcceptCutText=0",
		"-nolisten", "tcp", "-extension", "GLX", "-displayfd", "3")
	cmd.ExtraFiles = []*os.File{tell}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	err = cmd.Start()
	_ = tell.Close()
	must(t, err)
	must(t, ready.SetReadDeadline(time.Now().Add(limit)))
	if said, _ := io.ReadAll(ready); strings.HasSuffix(string(said), "\n") {
		return cmd
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	t.Logf("Xvnc %s: %s", display, &log)
	return nil
}

// newRealScreen supervises a ready screen with a real X server; with tap the server is
// reached through the helper of that role.
func newRealScreen(t *testing.T, tapped bool) (r *rig, server xvnc, tap *helper) {
	t.Helper()
	server = startXvnc(t)
	path := server.socket
	identity, err := process.Observe(server.process.Pid)
	must(t, err)
	if tapped {
		path = serverPath(t)
		tap = startHelper(t, "tap", "SERVER="+path, "XVNC="+server.socket)
		tap.says("listening")
		identity = tap.identity
	}
	r = newRig(t, nil)
	f := r.session(dialhome.Desktop{State: dialhome.Running, Display: 77, XPID: identity.PID, XStart: identity.Start})
	r.awaitState(screen.Ready)
	go f.serveDials(path)
	return r, server, tap
}

// serveDials answers a dial with a connection to the server, and everything else with
// yes, until the link ends.
func (f *fake) serveDials(path string) {
	for {
		p, passed, err := f.Receive()
		dialhome.CloseAll(passed)
		if err != nil {
			return
		}
		if p.Op != dialhome.OpDial {
			if f.Send(dialhome.Packet{ID: p.ID, OK: true}) != nil {
				return
			}
			continue
		}
		server, err := connectServer(path)
		if err != nil {
			return
		}
		err = f.Send(dialhome.Packet{ID: p.ID, OK: true}, server)
		_ = server.Close()
		if err != nil {
			return
		}
	}
}

// tap stands before an X server and says which keys it is sent, and in between, asked
// for a mark on its standard input, that mark: all that was sent before it was asked
// has been said then.
type tap struct {
	xvnc string
	out  *bufio.Writer

	mu    sync.Mutex // guards all below, and the order of what is said
	conns []*tapped
}

// tapped is one connection through it.
type tapped struct {
	tap      *tap
	raw      syscall.RawConn
	server   net.Conn
	pending  []byte
	greeting int // bytes of the handshake that have not come
	buf      []byte
}

func beTap() error {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: os.Getenv("SERVER"), Net: "unix"})
	if err != nil {
		return err
	}
	t := &tap{xvnc: os.Getenv("XVNC"), out: bufio.NewWriter(os.Stdout)}
	fmt.Println("listening")
	go func() {
		for {
			c, err := listener.AcceptUnix()
			if err != nil {
				return
			}
			t.serve(c)
		}
	}()
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		t.mark(lines.Text())
	}
	return nil
}

func (t *tap) serve(c *net.UnixConn) {
	server, err := net.Dial("unix", t.xvnc)
	if err != nil {
		_ = c.Close()
		return
	}
	raw, err := c.SyscallConn()
	if err != nil {
		return
	}
	conn := &tapped{tap: t, raw: raw, server: server, greeting: 14, buf: make([]byte, 64<<10)}
	t.mu.Lock()
	t.conns = append(t.conns, conn)
	t.mu.Unlock()
	go func() {
		_, _ = io.Copy(c, server)
		_ = c.Close()
	}()
	go func() {
		_ = raw.Read(func(fd uintptr) bool {
			t.mu.Lock()
			defer t.mu.Unlock()
			return conn.drain(int(fd))
		})
		_ = server.Close()
	}()
}

// mark says everything that has come, and then the mark.
func (t *tap) mark(text string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, c := range t.conns {
		_ = c.raw.Control(func(fd uintptr) { c.drain(int(fd)) })
	}
	fmt.Fprintln(t.out, "mark", text)
	_ = t.out.Flush()
}

// drain takes all there is and reports whether the connection has ended. It needs mu.
func (c *tapped) drain(fd int) (ended bool) {
	for {
		n, _, err := unix.Recvfrom(fd, c.buf, unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.EAGAIN):
			_ = c.tap.out.Flush()
			return false
		case n <= 0:
			return true
		}
		c.say(c.buf[:n])
		if _, err := c.server.Write(c.buf[:n]); err != nil {
			return true
		}
	}
}

func (c *tapped) say(b []byte) {
	skip := min(c.greeting, len(b))
	c.greeting -= skip
	c.pending = append(c.pending, b[skip:]...)
	for {
		n, err := rfb.Framing{}.Len(c.pending)
		if err != nil || n == 0 || n > len(c.pending) {
			return
		}
		if key, ok := rfb.Message(c.pending[:n]).Key(); ok {
			down := 0
			if key.Down {
				down = 1
			}
			fmt.Fprintf(c.tap.out, "key %d %c\n", down, rune(key.Keysym))
		}
		c.pending = c.pending[n:]
	}
}
