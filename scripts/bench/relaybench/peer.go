// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"net"
	"os"
	"slices"
	"time"

	"github.com/coder/websocket"

	"github.com/botscreen/botscreen/shared/rfb"
)

// visit is what the peer's viewer is asked to do: read so many MiB, and then make so
// many round trips of 8 bytes.
type visit struct {
	URL          string // of a WebSocket; "unix": the server itself
	Subprotocols []string
	MiB          int
	Trips        int
}

// outcome is what it found.
type outcome struct {
	Rate     float64 // MB/s
	P50, P99 float64 // of the round trips, in µs
}

// bePeer is both ends of what is measured: a server that says as much as it is asked
// for, and a viewer that counts. It takes visits on its standard input.
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
		found, err := beViewer(v, socket)
		if err != nil {
			return err
		}
		if err := say(found); err != nil {
			return err
		}
	}
}

// floodMark is the place whose pixels are so many MiB as the area is wide.
const floodMark = 77

const answerBytes = 8

// beServer answers a request for pixels with 8 bytes, at the mark with many.
func beServer(conn net.Conn) {
	defer conn.Close()
	if _, err := rfb.Welcome(conn, rfb.ServerInit{Size: rfb.Size{WidthPx: 1440, HeightPx: 900}, Format: rfb.RGBX, Name: "x"}); err != nil {
		return
	}
	answer, buf := make([]byte, answerBytes), make([]byte, 64<<10)
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

func beViewer(v visit, socket string) (outcome, error) {
	stream, err := v.open(socket)
	if err != nil {
		return outcome{}, err
	}
	defer stream.Close()
	if _, _, err := rfb.Join(stream, rfb.MaxSize); err != nil {
		return outcome{}, err
	}
	var found outcome
	if found.Rate, err = flood(stream, v.MiB); err != nil {
		return outcome{}, err
	}
	found.P50, found.P99, err = trips(stream, v.Trips)
	return found, err
}

func (v visit) open(socket string) (net.Conn, error) {
	if v.URL == "unix" {
		return net.Dial("unix", socket)
	}
	ctx := context.Background()
	conn, _, err := websocket.Dial(ctx, v.URL, &websocket.DialOptions{Subprotocols: v.Subprotocols})
	if err != nil {
		return nil, err
	}
	conn.SetReadLimit(-1)
	return websocket.NetConn(ctx, conn, websocket.MessageBinary), nil
}

func flood(stream io.ReadWriter, mib int) (rate float64, err error) {
	request := rfb.UpdateRequest{Area: image.Rect(floodMark, 0, floodMark+mib, 1)}.Append(nil)
	buf := make([]byte, 256<<10)
	begin := time.Now()
	if _, err := stream.Write(request); err != nil {
		return 0, err
	}
	for left := mib << 20; left > 0; {
		n, err := stream.Read(buf)
		if err != nil {
			return 0, err
		}
		left -= n
	}
	return float64(mib<<20) / 1e6 / time.Since(begin).Seconds(), nil
}

func trips(stream io.ReadWriter, n int) (p50, p99 float64, err error) {
	request := rfb.UpdateRequest{Incremental: true, Area: image.Rect(0, 0, 1, 1)}.Append(nil)
	answer := make([]byte, answerBytes)
	times := make([]float64, n)
	for i := range times {
		begin := time.Now()
		if _, err := stream.Write(request); err != nil {
			return 0, 0, err
		}
		if _, err := io.ReadFull(stream, answer); err != nil {
			return 0, 0, err
		}
		times[i] = float64(time.Since(begin).Nanoseconds()) / 1e3
	}
	slices.Sort(times)
	return times[n/2], times[n*99/100], nil
}
