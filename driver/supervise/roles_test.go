// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/session/dialhome"
)

func playRole(role string) int {
	var err error
	switch role {
	case "stranger":
		err = beStranger()
	case "session":
		err = beSession()
	case "holder":
		err = beHolder()
	case "server":
		err = beServer()
	case "browsing":
		err = beBrowsing()
	case "supervisor":
		return Main()
	case "tap":
		err = beTap()
	case "hostile":
		err = beHostile()
	case "agent":
		err = callAsAgent()
	case "alone":
		err = beAloneForEver()
	case "hardened":
		err = beHardened()
	default:
		err = fmt.Errorf("no such role: %s", role)
	}
	if err != nil {
		fmt.Println("error:", err)
		return 1
	}
	return 0
}

// beAloneForEver is a supervisor that nobody knows; with STUBBORN it ignores TERM.
func beAloneForEver() error {
	if os.Getenv("STUBBORN") != "" {
		signal.Ignore(unix.SIGTERM)
	}
	dir, err := os.OpenRoot(os.Getenv("DIR"))
	if err != nil {
		return err
	}
	f, err := beAlone(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	fmt.Println("alone")
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

func dialUnixpacket() (*net.UnixConn, error) {
	return net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: os.Getenv("DIAL"), Net: "unixpacket"})
}

// beStranger connects over and over; each connection must be closed on it.
func beStranger() error {
	count, err := strconv.Atoi(os.Getenv("COUNT"))
	if err != nil {
		return err
	}
	for range count {
		c, err := dialUnixpacket()
		if err != nil {
			return err
		}
		conn := dialhome.NewConn(c)
		if _, _, err := conn.Receive(); !dialhome.IsClosed(err) {
			return fmt.Errorf("not refused: %w", err)
		}
		_ = conn.Close()
	}
	fmt.Println("refused", count)
	return nil
}

// beSession is a session whose behaviour its test chooses, line by line.
func beSession() error {
	lines := bufio.NewScanner(os.Stdin)
	var conn *dialhome.Conn
	var raw *net.UnixConn
	for lines.Scan() {
		switch lines.Text() {
		case "dial":
			var err error
			if raw, err = dialUnixpacket(); err != nil {
				return err
			}
			conn = dialhome.NewConn(raw)
		case "die":
			// The last word stands behind another one.
			err := conn.Send(dialhome.Packet{Event: dialhome.EventRestarted, Body: dialhome.Encode(dialhome.Note{Text: "x"})})
			if err != nil {
				return err
			}
			err = conn.Send(dialhome.Packet{Event: dialhome.EventDied, Body: dialhome.Encode(dialhome.Note{Text: "Xvnc exited 1"})})
			if err != nil {
				return err
			}
			os.Exit(1) // at once: what it said last is still on its way
		case "refuse start":
			p, _, err := conn.Receive()
			if err != nil {
				return err
			}
			failure := &dialhome.Error{Kind: dialhome.KindDisplayTaken, Message: "display is \x1b[31mtaken"}
			if err := conn.Send(dialhome.Packet{ID: p.ID, Err: failure}); err != nil {
				return err
			}
			os.Exit(1)
		case "obey stop":
			p, _, err := conn.Receive()
			for err == nil && granted[p.Op] {
				if err = conn.Send(dialhome.Packet{ID: p.ID, OK: true, Body: dialhome.Encode(struct{}{})}); err == nil {
					p, _, err = conn.Receive()
				}
			}
			if err != nil || p.Op != dialhome.OpStop {
				return fmt.Errorf("asked to %s: %w", p.Op, err)
			}
			fmt.Printf("stop %s\n", p.Body)
			if err := conn.Send(dialhome.Packet{ID: p.ID, OK: true}); err != nil {
				return err
			}
			os.Exit(0)
		case "fork":
			// A child inherits the connection and outlives us.
			f, err := raw.File()
			if err != nil {
				return err
			}
			child := exec.Command("/proc/self/exe")
			child.Env = append(os.Environ(), roleVariable+"=holder")
			child.ExtraFiles = []*os.File{f}
			child.Stdout = os.Stdout
			if err := child.Start(); err != nil {
				return err
			}
			fmt.Println("forked", child.Process.Pid)
			os.Exit(0)
		}
		fmt.Println("done", lines.Text())
	}
	return nil
}

// beHolder goes on with a connection that its dead parent made.
func beHolder() error {
	f := os.NewFile(3, "inherited")
	c, err := net.FileConn(f)
	if err != nil {
		return err
	}
	conn := dialhome.NewConn(c.(*net.UnixConn))
	for {
		fence := dialhome.Encode(dialhome.Fence{Enforced: true})
		_ = conn.Send(dialhome.Packet{Event: dialhome.EventFence, Body: fence})
		if _, _, err := conn.Receive(); err != nil {
			fmt.Println("ended", dialhome.IsClosed(err))
			return nil
		}
	}
}

// beServer listens at SERVER. It plays Xvnc: everything it reads it sends back.
func beServer() error {
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: os.Getenv("SERVER"), Net: "unix"})
	if err != nil {
		return err
	}
	fmt.Println("listening")
	for {
		c, err := listener.AcceptUnix()
		if err != nil {
			return err
		}
		if grey := os.Getenv("PICTURE"); grey != "" {
			level, err := strconv.ParseUint(grey, 10, 8)
			if err != nil {
				return err
			}
			go showPicture(c, byte(level))
			continue
		}
		if os.Getenv("PASSCRED") != "" {
			go reportSender(c)
			continue
		}
		go func() {
			defer c.Close()
			if os.Getenv("GREET") != "" {
				_, _ = c.Write([]byte("RFB 003.008\n"))
			}
			_, _ = io.Copy(c, c)
		}()
	}
}

// showPicture speaks as much of RFB 3.8 as screenshots and viewers need: a screen of one
// grey that never changes, and says what is typed and clicked.
func showPicture(c *net.UnixConn, grey byte) {
	defer c.Close()
	in := bufio.NewReader(c)
	send := func(parts ...any) {
		for _, part := range parts {
			_ = binary.Write(c, binary.BigEndian, part)
		}
	}
	const width, height = 8, 6
	send([]byte("RFB 003.008\n"))
	_, _ = in.Discard(12)
	send([]byte{1, 1}) // one security type: none
	_, _ = in.Discard(1)
	send(uint32(0))
	_, _ = in.Discard(1)
	format := []byte{32, 24, 0, 1, 0, 255, 0, 255, 0, 255, 16, 8, 0, 0, 0, 0}
	send([]uint16{width, height}, format, uint32(1), []byte("x"))
	for {
		kind, err := in.ReadByte()
		switch {
		case err != nil:
			return
		case kind == 0: // SetPixelFormat
			_, _ = in.Discard(19)
		case kind == 2: // SetEncodings
			var head struct {
				_     byte
				Count uint16
			}
			_ = binary.Read(in, binary.BigEndian, &head)
			_, _ = in.Discard(4 * int(head.Count))
		case kind == 3: // FramebufferUpdateRequest: one raw rectangle
			incremental, _ := in.ReadByte()
			_, _ = in.Discard(8)
			if incremental != 0 {
				continue
			}
			send([]byte{0, 0}, []uint16{1, 0, 0, width, height}, int32(0), bytes.Repeat([]byte{grey}, width*height*4))
		case kind == 4: // KeyEvent
			var key struct {
				Down   uint8
				_      uint16
				Keysym uint32
			}
			_ = binary.Read(in, binary.BigEndian, &key)
			fmt.Printf("key %d %c\n", key.Down, rune(key.Keysym))
		case kind == 5: // PointerEvent
			buttons, _ := in.ReadByte()
			_, _ = in.Discard(4)
			fmt.Printf("buttons %d\n", buttons)
		}
	}
}

// reportSender is a service that believes who the kernel says is writing to it.
func reportSender(c *net.UnixConn) {
	defer c.Close()
	raw, err := c.SyscallConn()
	if err == nil {
		err = raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_PASSCRED, 1) })
	}
	if err != nil {
		fmt.Println("error:", err)
		return
	}
	fmt.Println("ready")
	oob := make([]byte, 256)
	data := make([]byte, 256)
	for {
		n, oobn, _, _, err := c.ReadMsgUnix(data, oob)
		if n == 0 || err != nil {
			fmt.Println("end")
			return
		}
		messages, err := unix.ParseSocketControlMessage(oob[:oobn])
		if err != nil || len(messages) == 0 {
			fmt.Println("bytes without credentials")
			continue
		}
		cred, err := unix.ParseUnixCredentials(&messages[0])
		fmt.Println("uid", cred.Uid, err)
	}
}

// beHardened hardens itself and tells what the kernel says of it then.
func beHardened() error {
	if err := harden(); err != nil {
		return err
	}
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	tasks, err := os.ReadDir("/proc/self/task")
	if err != nil {
		return err
	}
	for _, task := range tasks {
		text, err := os.ReadFile("/proc/self/task/" + task.Name() + "/status")
		if err != nil {
			return err
		}
		fmt.Println("thread", field(text, "NoNewPrivs"))
	}
	for _, name := range []string{"CapEff", "CapPrm", "Groups", "Uid"} {
		fmt.Println(name, field(status, name))
	}
	dumpable, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	fmt.Println("dumpable", dumpable, err)
	var files unix.Rlimit
	err = unix.Getrlimit(unix.RLIMIT_NOFILE, &files)
	fmt.Println("files", files.Cur, files.Max, err)
	fmt.Println("hardened")
	_, _ = io.Copy(io.Discard, os.Stdin) // until its test is done
	return nil
}

func field(status []byte, name string) string {
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, name+":"); ok {
			return strings.TrimSpace(rest)
		}
	}
	return ""
}
