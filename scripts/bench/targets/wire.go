// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
)

const (
	// wireTime is how long pictures are read in one run.
	wireTime = 2 * time.Second
	// wireWidth and wireHeight are of the desktop whose pictures are read.
	wireWidth, wireHeight = 1440, 900
)

// wire measures target 5: whole pictures, raw and one after the other, over a connection
// that a session in a sandbox has passed out, in turn with the same client and the same
// desktop without one. Both are connections to Xvnc's Unix socket; a bare Xvnc is no
// measure, because a picture of nothing comes out of the processor's cache. The CPU is the
// client's and Xvnc's.
func (b *bench) wire(runs int) (rows []row, err error) {
	reference, end, err := b.sessionIn(sandbox{kind: "host"})
	if err != nil {
		return nil, fmt.Errorf("host: %w", err)
	}
	defer func() { err = errors.Join(err, end()) }()
	for _, s := range b.available() {
		inside, stop, err := b.sessionIn(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", s.kind, err)
		}
		var ours, bare wireFigures
		for range runs {
			if err = errors.Join(ours.add(inside), bare.add(reference)); err != nil {
				break
			}
		}
		if err := errors.Join(err, stop()); err != nil {
			return nil, fmt.Errorf("%s: %w", s.kind, err)
		}
		rows = append(rows,
			beside(5, "RFB out of "+s.kind+", beside the same without a sandbox", "MB/s", ours.rate, bare.rate).atLeast(0.95),
			beside(5, "RFB out of "+s.kind+", CPU of client and Xvnc", "s/GB", ours.cpu, bare.cpu).atMost(1.05))
	}
	return rows, nil
}

// wireFigures are those of several runs.
type wireFigures struct{ rate, cpu []float64 }

// add measures one connection that dial opens.
func (f *wireFigures) add(dial func() (net.Conn, error)) error {
	conn, err := dial()
	if err != nil {
		return err
	}
	defer conn.Close()
	rate, cpu, err := readPictures(conn)
	if err != nil {
		return err
	}
	f.rate, f.cpu = append(f.rate, rate), append(f.cpu, cpu)
	return nil
}

// readPictures reads whole pictures as fast as they come.
func readPictures(conn net.Conn) (megabytesPerSecond, cpuPerGB float64, err error) {
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, 0, err
	}
	server, err := peerPID(conn)
	if err != nil {
		return 0, 0, err
	}
	r := bufio.NewReaderSize(conn, 64<<10)
	if err := shakeHands(conn, r); err != nil {
		return 0, 0, fmt.Errorf("handshake: %w", err)
	}
	if _, err := onePicture(conn, r); err != nil { // the first one finds nothing warm
		return 0, 0, err
	}
	before, err := cpuOf(server)
	if err != nil {
		return 0, 0, err
	}
	began, total := time.Now(), int64(0)
	for time.Since(began) < wireTime {
		n, err := onePicture(conn, r)
		if err != nil {
			return 0, 0, err
		}
		total += n
	}
	took := time.Since(began)
	after, err := cpuOf(server)
	return float64(total) / 1e6 / took.Seconds(), (after - before) / (float64(total) / 1e9), err
}

// shakeHands is RFC 6143, 7.1 to 7.3, with security type None; then raw pixels are asked for.
func shakeHands(w io.Writer, r io.Reader) error {
	var version [12]byte
	if _, err := io.ReadFull(r, version[:]); err != nil {
		return err
	}
	if _, err := w.Write([]byte("RFB 003.008\n")); err != nil {
		return err
	}
	var count [1]byte
	if _, err := io.ReadFull(r, count[:]); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, r, int64(count[0])); err != nil {
		return err
	}
	if _, err := w.Write([]byte{1}); err != nil {
		return err
	}
	var result [4]byte
	if _, err := io.ReadFull(r, result[:]); err != nil || binary.BigEndian.Uint32(result[:]) != 0 {
		return errors.Join(err, fmt.Errorf("security result %d", result))
	}
	if _, err := w.Write([]byte{1}); err != nil { // shared
		return err
	}
	var init [24]byte
	if _, err := io.ReadFull(r, init[:]); err != nil {
		return err
	}
	if _, err := io.CopyN(io.Discard, r, int64(binary.BigEndian.Uint32(init[20:]))); err != nil {
		return err
	}
	if width, height, bits := binary.BigEndian.Uint16(init[:]), binary.BigEndian.Uint16(init[2:]), init[4]; width != wireWidth || height != wireHeight || bits != 32 {
		return fmt.Errorf("a desktop of %dx%d at %d bits a pixel", width, height, bits)
	}
	_, err := w.Write([]byte{2, 0, 0, 1, 0, 0, 0, 0}) // SetEncodings: raw
	return err
}

// onePicture asks for the whole desktop and reads it; RFC 6143, 7.5.3 and 7.6.1.
func onePicture(w io.Writer, r io.Reader) (size int64, err error) {
	request := []byte{3, 0, 0, 0, 0, 0}
	request = binary.BigEndian.AppendUint16(request, wireWidth)
	request = binary.BigEndian.AppendUint16(request, wireHeight)
	if _, err := w.Write(request); err != nil {
		return 0, err
	}
	for pixels := 0; pixels < wireWidth*wireHeight; {
		var head [4]byte
		if _, err := io.ReadFull(r, head[:]); err != nil {
			return 0, err
		}
		if head[0] != 0 {
			return 0, fmt.Errorf("message %d where an update was asked for", head[0])
		}
		size += int64(len(head))
		for range binary.BigEndian.Uint16(head[2:]) {
			var rect [12]byte
			if _, err := io.ReadFull(r, rect[:]); err != nil {
				return 0, err
			}
			area := int(binary.BigEndian.Uint16(rect[4:])) * int(binary.BigEndian.Uint16(rect[6:]))
			if encoding := binary.BigEndian.Uint32(rect[8:]); encoding != 0 {
				return 0, fmt.Errorf("encoding %d where raw was asked for", encoding)
			}
			if _, err := io.CopyN(io.Discard, r, int64(4*area)); err != nil {
				return 0, err
			}
			pixels += area
			size += int64(len(rect) + 4*area)
		}
	}
	return size, nil
}

// peerPID is the server at the other end of a connection, by the kernel's word.
func peerPID(conn net.Conn) (int, error) {
	c, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, errors.New("it is no Unix socket")
	}
	cred, err := process.Peer(c)
	if err != nil {
		return 0, err
	}
	return int(cred.Pid), nil
}

// cpuOf is what this process and pid have used, in seconds; see getrusage(2) and
// proc_pid_stat(5), fields 14 and 15.
func cpuOf(pid int) (seconds float64, err error) {
	var own unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &own); err != nil {
		return 0, err
	}
	text, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	const ticks = 100 // USER_HZ of every Linux that Go runs on
	user, errU := strconv.ParseFloat(fields[11], 64)
	system, errS := strconv.ParseFloat(fields[12], 64)
	return float64(own.Utime.Nano()+own.Stime.Nano())/1e9 + (user+system)/ticks, errors.Join(errU, errS)
}

// within bounds what a session is asked.
func within() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), patience)
}
