// SPDX-License-Identifier: MPL-2.0

package relay

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"testing"

	"github.com/coder/websocket"
	"golang.org/x/sys/unix"
)

// accepted is a WebSocket whose server end was accepted as the relay does.
func accepted(t *testing.T) (server, client *websocket.Conn, wire *net.TCPConn) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	wires, servers := make(chan *net.TCPConn, 1), make(chan *websocket.Conn, 1)
	hold := make(chan struct{})
	s := &http.Server{
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			conn, err := websocket.Accept(gatherer{w}, r, nil)
			if err != nil {
				t.Error(err)
			}
			servers <- conn
			<-hold
		}),
		ConnContext: func(ctx context.Context, c net.Conn) context.Context { wires <- c.(*net.TCPConn); return ctx },
	}
	go s.Serve(ln)
	t.Cleanup(func() { close(hold); s.Close() })
	client, _, err = websocket.Dial(t.Context(), "ws://"+ln.Addr().String(), nil)
	must(t, err)
	client.SetReadLimit(-1)
	server, wire = <-servers, <-wires
	t.Cleanup(func() { client.CloseNow(); server.CloseNow() })
	return server, client, wire
}

// Frames of every kind and size arrive as they were written, whatever the library's
// buffer cut them into.
func TestGatherFrames(t *testing.T) {
	server, client, _ := accepted(t)
	sizes := []int{0, 1, 5, 6, 7, 8, 9, 10, 11, 12, 124, 125, 126, 127, 4095, 4096, 65535, 65536, chunk, chunk + 1, 1 << 20}
	go func() {
		for _, n := range sizes {
			server.Write(context.Background(), websocket.MessageBinary, bytes.Repeat([]byte{byte(n)}, n))
			server.Write(context.Background(), websocket.MessageText, []byte("between"))
		}
		w, err := server.Writer(context.Background(), websocket.MessageBinary)
		for i := 0; err == nil && i < 3; i++ {
			_, err = w.Write(make([]byte, i*100)) // each a frame of a message
		}
		w.Close()
		server.Close(websocket.StatusNormalClosure, "the end, in words that are longer than the buffer")
	}()
	for _, n := range sizes {
		_, b, err := client.Read(t.Context())
		if err != nil || !bytes.Equal(b, bytes.Repeat([]byte{byte(n)}, n)) {
			t.Fatalf("%d bytes arrive as %d, %v", n, len(b), err)
		}
		if _, b, err = client.Read(t.Context()); err != nil || string(b) != "between" {
			t.Fatalf("after %d: %q, %v", n, b, err)
		}
	}
	if _, b, err := client.Read(t.Context()); err != nil || len(b) != 300 {
		t.Errorf("in three frames: %d bytes, %v", len(b), err)
	}
	if _, _, err := client.Read(t.Context()); websocket.CloseStatus(err) != websocket.StatusNormalClosure {
		t.Errorf("%v", err)
	}
}

// A chunk of the picture is at most two packets on loopback, its header included.
func TestGatherPackets(t *testing.T) {
	server, client, wire := accepted(t)
	raw, err := wire.SyscallConn()
	must(t, err)
	packets := func() (n uint32) {
		must(t, raw.Control(func(fd uintptr) {
			info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
			must(t, err)
			n = info.Data_segs_out
		}))
		return n
	}
	took := func() uint32 {
		before := packets()
		must(t, server.Write(t.Context(), websocket.MessageBinary, make([]byte, chunk)))
		_, r, err := client.Reader(t.Context())
		must(t, err)
		_, err = io.Copy(io.Discard, r)
		must(t, err)
		return packets() - before
	}
	for i := 0; took() > 2; i++ { // until the receiver's window has grown
		if i == 1000 {
			t.Fatal("no chunk fits into two packets")
		}
	}
	sum := uint32(0)
	const chunks = 100
	for range chunks {
		sum += took()
	}
	if sum > 2*chunks+chunks/2 { // a window may be small for a moment
		t.Errorf("%d chunks took %d packets", chunks, sum)
	}
}
