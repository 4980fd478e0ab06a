// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
	"github.com/botscreen/botscreen/shared/relay"
	"github.com/botscreen/botscreen/shared/rfb"
)

// besieger is a process of hostile viewers.
type besieger struct {
	client *control.Client
	addr   string // of the viewer listener
	stop   chan struct{}

	mu sync.Mutex // guards what is said
}

// beHostile is all of them at once, from a line on its standard input until that ends. It is nicer than who
// it besieges: what they take is to be theirs, not the processor's.
func beHostile() error {
	threads, err := os.ReadDir("/proc/self/task") // those to come inherit it
	if err != nil {
		return err
	}
	for _, thread := range threads {
		id, _ := strconv.Atoi(thread.Name())
		if err := unix.Setpriority(unix.PRIO_PROCESS, id, 19); err != nil {
			return err
		}
	}
	b := &besieger{client: control.NewClient(control.Unix(os.Getenv("OPERATOR"))), addr: os.Getenv("VIEWERS"), stop: make(chan struct{})}
	if _, err := os.Stdin.Read(make([]byte, 16)); err != nil {
		return err
	}
	var group sync.WaitGroup
	for _, act := range []func(){b.neverReads, b.neverReads, b.declaresText, b.byteByByte, b.halfOpen, b.spraysTickets} {
		group.Go(act)
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	close(b.stop)
	group.Wait()
	fmt.Println("done")
	return nil
}

func (b *besieger) say(format string, values ...any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	fmt.Printf(format+"\n", values...)
}

func (b *besieger) wrong(format string, values ...any) { b.say("wrong: "+format, values...) }

func (b *besieger) stopped() bool {
	select {
	case <-b.stop:
		return true
	default:
		return false
	}
}

// join opens one viewer's stream up to the picture.
func (b *besieger) join(hello control.Hello) (net.Conn, error) {
	conn, err := b.client.Tunnel(context.Background(), control.CommandRFB)
	if err == nil {
		err = control.OpenTunnel(context.Background(), conn, hello)
	}
	if err == nil {
		_, _, err = rfb.Join(conn, rfb.MaxSize)
	}
	return conn, err
}

// closed reads until the other side ends the connection.
func (b *besieger) closed(conn net.Conn) {
	_ = conn.SetReadDeadline(time.Now().Add(limit))
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		b.wrong("the connection was not ended")
	}
	_ = conn.Close()
}

var (
	wholePicture = rfb.UpdateRequest{Area: image.Rect(0, 0, 1440, 900)}.Append(nil)
	rawOnly      = rfb.AppendSetEncodings(nil, []rfb.Encoding{rfb.Raw})
)

// neverReads asks for more than any buffer holds. It is ended after ten seconds.
func (b *besieger) neverReads() {
	conn, err := b.join(control.Hello{Viewer: "stuck-" + lease.ViewerID(strconv.Itoa(int(time.Now().UnixNano()))), Mode: control.Control})
	if err != nil {
		b.wrong("%v", err)
		return
	}
	begin := time.Now()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for { // until nobody reads any more
			if _, err := conn.Write(slices.Concat(rawOnly, slices.Repeat(wholePicture, 100))); err != nil {
				return
			}
		}
	}()
	select {
	case <-ended:
		b.say("a viewer that never reads was ended after %v", time.Since(begin).Round(time.Second))
	case <-time.After(2 * limit):
		b.wrong("a viewer that never reads is still there")
	}
	_ = conn.Close()
	<-ended
}

// declaresText sends headers of text that is never sent, in both forms.
func (b *besieger) declaresText() {
	for i := 0; i < 20 || !b.stopped(); i++ {
		conn, err := b.join(control.Hello{Viewer: "texter", Mode: control.Control})
		if err != nil {
			b.wrong("%v", err)
			return
		}
		length := [][]byte{{0x7f, 0xff, 0xff, 0xff}, {0x80, 0, 0, 0}}[i%2]
		if _, err := conn.Write(append([]byte{rfb.TypeClientCutText, 0, 0, 0}, length...)); err != nil {
			b.wrong("%v", err)
		}
		b.closed(conn)
	}
}

// byteByByte is slow and honest, so it is served.
func (b *besieger) byteByByte() {
	conn, err := b.join(control.Hello{Viewer: "slow"})
	if err != nil {
		b.wrong("%v", err)
		return
	}
	defer conn.Close()
	said := slices.Concat(rawOnly, rfb.UpdateRequest{Area: image.Rect(0, 0, 8, 8)}.Append(nil))
	const answer = 4 + 12 + 4*8*8
	for i := 0; i < 3 || !b.stopped(); i++ {
		for i := range said {
			if _, err := conn.Write(said[i : i+1]); err != nil {
				b.wrong("%v", err)
				return
			}
		}
		got := make([]byte, answer)
		if _, err := io.ReadFull(conn, got); err != nil || !bytes.Equal(got[:16], []byte{0, 0, 0, 1, 0, 0, 0, 0, 0, 8, 0, 8, 0, 0, 0, 0}) {
			b.wrong("byte by byte: %x, %v", got[:16], err)
			return
		}
	}
}

// halfOpen begins a thousand upgrades and ends none.
func (b *besieger) halfOpen() {
	conns := make([]net.Conn, 0, 1000)
	for range cap(conns) {
		conn, err := net.Dial("tcp", b.addr)
		if err != nil {
			b.wrong("%v", err)
			break
		}
		_, _ = io.WriteString(conn, "GET "+relay.PathView+" HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n")
		conns = append(conns, conn)
	}
	b.say("here")
	<-b.stop
	for _, conn := range conns {
		_ = conn.Close()
	}
}

// spraysTickets tries tickets that open nothing: each is refused in the same words, or
// told to come later.
func (b *besieger) spraysTickets() {
	transport := &http.Transport{DisableKeepAlives: true}
	var group sync.WaitGroup
	defer group.Wait()
	for range 5 {
		group.Go(func() {
			for i := 0; i < 10 || !b.stopped(); i++ {
				conn, resp, err := websocket.Dial(context.Background(), "ws://"+b.addr+relay.PathView, &websocket.DialOptions{
					HTTPClient: &http.Client{Transport: transport}, Subprotocols: []string{relay.ProtocolBinary, relay.ProtocolTicket + strconv.Itoa(i)},
				})
				if err != nil {
					if resp != nil && resp.StatusCode != http.StatusServiceUnavailable {
						b.wrong("a sprayed ticket: %v", err)
					}
					continue // or another one of the crowd took its place
				}
				_, _, err = conn.Read(context.Background())
				if code := websocket.CloseStatus(err); code != websocket.StatusCode(relay.BadTicket) {
					b.wrong("a sprayed ticket: %v", err)
				}
				_ = conn.CloseNow()
			}
		})
	}
}
