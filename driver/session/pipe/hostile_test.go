// SPDX-License-Identifier: MPL-2.0

package pipe

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
)

var process0 = process.Identity{PID: 1, Start: 1}

// played is a node's half whose inside the test plays, with a supervisor behind it.
func played(t *testing.T) (write func(frame), supervisor *dialhome.Conn, over chan error) {
	t.Helper()
	dir := t.TempDir()
	l := listen(t, dir+"/s")
	r, w := io.Pipe()
	n := newNode(io.Discard, dir+"/s", process0, t.Output())
	over = make(chan error, 1)
	go func() { over <- n.serve(r); _ = r.Close() }()
	t.Cleanup(func() { _ = w.Close() })
	write = func(f frame) { _, _ = w.Write(f.append(nil)) } // fails when the half has ended
	write(frame{kindOpen, 1, nil})
	c, err := l.AcceptUnix()
	must(t, err)
	supervisor = dialhome.NewConn(c)
	t.Cleanup(func() { _ = supervisor.Close() })
	return write, supervisor, over
}

// P10a: whatever comes from inside is bounded, and what breaks the form ends the pipe.
func TestP10aBrokenPipe(t *testing.T) {
	answer := dialhome.Encode(dialhome.Packet{V: 1, ID: 1, OK: true})
	socket := frame{kindPacket, 1, appendPacket(nil, []riding{{shapeSocket, 2}}, answer)}
	for name, frames := range map[string][]frame{
		"more data than there is credit for": append([]frame{socket}, many(frame{kindData, 2, make([]byte, maxData)}, 64)...),
		"data after the end":                 {socket, {kindEnd, 2, nil}, {kindData, 2, []byte("x")}},
		"more credit than the window":        {socket, {kindCredit, 2, number(1)}},
		"a number twice":                     {{kindPacket, 1, appendPacket(nil, []riding{{shapeSocket, 2}, {shapeSocket, 2}}, answer)}},
		"a number of ours":                   {{kindPacket, 1, appendPacket(nil, []riding{{shapeSocket, 3}}, answer)}},
		"a file":                             {{kindPacket, 1, appendPacket(nil, []riding{{shapeFile, 2}}, answer)}},
		"an unknown shape":                   {{kindPacket, 1, appendPacket(nil, []riding{{'x', 2}}, answer)}},
		"more rides than there are":          {{kindPacket, 1, []byte{3, 's', 0, 0, 0, 2}}},
		"no packet":                          {{kindPacket, 1, []byte("\x00RFB 003.008\n")}},
		"a greeting":                         {{kindHello, 0, []byte{version}}},
	} {
		t.Run(name, func(t *testing.T) {
			write, _, over := played(t)
			go func() {
				for _, f := range frames {
					write(f)
				}
			}()
			err := await(t, over)
			var broken *brokenError
			var breach *dialhome.ProtocolError
			if !errors.As(err, &broken) && !errors.As(err, &breach) {
				t.Errorf("it ends with %v", err)
			}
			if err != nil && strings.Contains(err.Error(), "RFB") {
				t.Errorf("the error repeats what came: %v", err)
			}
		})
	}
}

// An engine that cannot start the half inside says why in its place.
func TestRefusalOfTheEngine(t *testing.T) {
	const refusal = "OCI runtime exec failed: exec failed: unable to start container process\r\n"
	n := newNode(io.Discard, "", process.Identity{}, io.Discard)
	err := n.serve(strings.NewReader(refusal))
	if err == nil || !strings.Contains(err.Error(), "the engine says \"OCI runtime exec failed: exec failed: unable to start") {
		t.Errorf("it ends with %v", err)
	}
	n = newNode(io.Discard, "", process.Identity{}, io.Discard)
	if err := n.serve(strings.NewReader("")); err != nil {
		t.Errorf("without a word: %v", err)
	}
}

func many(f frame, n int) []frame {
	all := make([]frame, n)
	for i := range all {
		all[i] = f
	}
	return all
}

// A session that passes more descriptors than anybody uses ends its own pipe.
func TestX12TooManyStreams(t *testing.T) {
	write, supervisor, over := played(t)
	go func() {
		for { // a supervisor that takes all of them
			if _, passed, err := supervisor.Receive(); err != nil {
				return
			} else {
				t.Cleanup(func() { dialhome.CloseAll(passed) })
			}
		}
	}()
	answer := dialhome.Encode(dialhome.Packet{V: 1, ID: 1, OK: true})
	go func() {
		id := uint32(0)
		for range 2 * maxStreams / maxRiding {
			var rides []riding
			for range maxRiding {
				id += 2
				rides = append(rides, riding{shapeSocket, id})
			}
			write(frame{kindPacket, 1, appendPacket(nil, rides, answer)})
		}
	}()
	if err := await(t, over); !errors.Is(err, errTooMany) {
		t.Errorf("it ends with %v", err)
	}
}

// What an engine says beside the output goes aside, and what it cannot say ends the pipe.
func TestDemultiplexer(t *testing.T) {
	var aside bytes.Buffer
	input := framed([]byte("one"))
	input = append(input, []byte{streamErrors, 0, 0, 0, 0, 0, 0, 5}...)
	input = append(append(input, "aside"...), framed(nil)...)
	input = append(input, framed([]byte("two"))...)
	got, err := io.ReadAll(&demultiplexer{r: bytes.NewReader(input), aside: &aside})
	if string(got) != "onetwo" || aside.String() != "aside" || err != nil {
		t.Errorf("%q, aside %q, %v", got, &aside, err)
	}
	var broken *brokenError
	for _, bad := range [][]byte{{9, 0, 0, 0, 0, 0, 0, 1, 'x'}, {streamErrors, 0, 0, 0, 0xff, 0, 0, 0}} {
		if _, err := io.ReadAll(&demultiplexer{r: bytes.NewReader(bad), aside: &aside}); !errors.As(err, &broken) {
			t.Errorf("%v: %v", bad, err)
		}
	}
}

// S8a: a log that is full holds the pipe up for no moment.
func TestS8aFullLog(t *testing.T) {
	r, w := newPipe(t)
	log := newUnheard(int(w.Fd()))
	line := bytes.Repeat([]byte("x"), 4096)
	for range 64 { // more than a pipe holds
		if n, err := log.Write(line); n != len(line) || err != nil {
			t.Fatalf("%d, %v", n, err)
		}
	}
	buffer := make([]byte, len(line))
	if _, err := io.ReadFull(r, buffer); err != nil || !bytes.Equal(buffer, line) {
		t.Errorf("what fitted is not there: %v", err)
	}
}
