// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/coder/websocket"

	"github.com/botscreen/botscreen/shared/rfb"
)

// peer is the other process: a server that says as much as it is asked for, and a
// viewer that counts.
type peer struct {
	socket string
	in     io.Writer
	out    *bufio.Reader
}

const peerVariable = "BOTSCREEN_BENCH_PEER"

func TestMain(m *testing.M) {
	if socket := os.Getenv(peerVariable); socket != "" {
		if err := bePeer(socket); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

func startPeer(b *testing.B) *peer {
	b.Helper()
	p := &peer{socket: filepath.Join(b.TempDir(), "rfb")}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), peerVariable+"="+p.socket)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		b.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { in.Close(); cmd.Wait() })
	p.in, p.out = in, bufio.NewReader(out)
	if _, err := p.out.ReadString('\n'); err != nil { // it listens
		b.Fatal(err)
	}
	return p
}

func (p *peer) ask(b *testing.B, v visit) result {
	b.Helper()
	if err := json.NewEncoder(p.in).Encode(v); err != nil {
		b.Fatal(err)
	}
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		b.Fatal(err)
	}
	var r result
	if err := json.Unmarshal(line, &r); err != nil {
		b.Fatal(err)
	}
	return r
}

func bePeer(socket string) error {
	ln, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	go func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			go beServer(conn)
		}
	}()
	fmt.Println("ready")
	asked := json.NewDecoder(os.Stdin)
	for {
		var v visit
		if err := asked.Decode(&v); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return err
		}
		r, err := beViewer(v)
		if err != nil {
			return err
		}
		if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
			return err
		}
	}
}

// floodMark is the place whose pixels are so many MiB as the area is wide.
const floodMark = 77

// beServer answers a request for pixels with 8 bytes, at the mark with many.
func beServer(conn net.Conn) {
	defer conn.Close()
	if _, err := rfb.Welcome(conn, rfb.ServerInit{Size: rfb.Size{WidthPx: 1440, HeightPx: 900}, Format: rfb.RGBX, Name: "x"}); err != nil {
		return
	}
	answer, buf := make([]byte, 8), make([]byte, 64<<10)
	messages := rfb.NewMessageReader(conn)
	for {
		m, err := messages.Next()
		if err != nil {
			return
		}
		u, ok := m.UpdateRequest()
		if !ok {
			continue
		}
		if u.Area.Min.X != floodMark {
			_, err = conn.Write(answer)
		}
		for i := 0; u.Area.Min.X == floodMark && err == nil && i < u.Area.Dx()*16; i++ {
			_, err = conn.Write(buf)
		}
		if err != nil {
			return
		}
	}
}

func beViewer(v visit) (result, error) {
	ctx := context.Background()
	conn, _, err := websocket.Dial(ctx, v.URL, &websocket.DialOptions{Subprotocols: v.Subprotocols})
	if err != nil {
		return result{}, err
	}
	defer conn.CloseNow()
	conn.SetReadLimit(-1)
	stream := websocket.NetConn(ctx, conn, websocket.MessageBinary)
	if _, _, err := rfb.Join(stream, rfb.MaxSize); err != nil {
		return result{}, err
	}
	if v.MiB > 0 {
		return flood(stream, v.MiB)
	}
	return trips(stream, v.Trips)
}

func flood(stream io.ReadWriter, mib int) (result, error) {
	request := rfb.UpdateRequest{Area: image.Rect(floodMark, 0, floodMark+mib, 1)}.Append(nil)
	buf := make([]byte, 64<<10)
	begin := time.Now()
	if _, err := stream.Write(request); err != nil {
		return result{}, err
	}
	for left := mib << 20; left > 0; {
		n, err := stream.Read(buf)
		if err != nil {
			return result{}, err
		}
		left -= n
	}
	return result{Rate: float64(mib<<20) / 1e6 / time.Since(begin).Seconds()}, nil
}

func trips(stream io.ReadWriter, n int) (result, error) {
	request := rfb.UpdateRequest{Incremental: true, Area: image.Rect(0, 0, 1, 1)}.Append(nil)
	answer := make([]byte, 8)
	times := make([]float64, n)
	for i := range times {
		begin := time.Now()
		if _, err := stream.Write(request); err != nil {
			return result{}, err
		}
		if _, err := io.ReadFull(stream, answer); err != nil {
			return result{}, err
		}
		times[i] = float64(time.Since(begin).Microseconds())
	}
	slices.Sort(times)
	return result{P50: times[n/2], P99: times[n*99/100]}, nil
}
