// SPDX-License-Identifier: MPL-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"

	"github.com/coder/websocket"

	"github.com/botscreen/botscreen/shared/relay"
	"github.com/botscreen/botscreen/shared/relay/ticket"
)

// serve is the process of one subject: it prints its URL, and for each line of its
// standard input the subprotocol that opens it once.
func serve(kind, socket string) error {
	dial := func(ctx context.Context) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "unix", socket)
	}
	handler, mint := bare(dial), func() (string, error) { return relay.ProtocolBinary, nil }
	if kind == "relay" {
		w, err := newWorld(dial)
		if err != nil {
			return err
		}
		defer w.close()
		if handler, mint, err = ours(w); err != nil {
			return err
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	server := &http.Server{Handler: handler}
	go func() { _ = server.Serve(ln) }()
	defer server.Close()
	fmt.Println("ws://" + ln.Addr().String())
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		protocol, err := mint()
		if err != nil {
			return err
		}
		fmt.Println(protocol)
	}
	return nil
}

// bare is a loop over the WebSocket library with 64 KiB reads and nothing else.
func bare(dial relay.Dialer) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		conn, err := websocket.Accept(w, r, &websocket.AcceptOptions{Subprotocols: []string{relay.ProtocolBinary}})
		if err != nil {
			return
		}
		defer conn.CloseNow()
		upstream, err := dial(r.Context())
		if err != nil {
			return
		}
		defer upstream.Close()
		go func() {
			defer upstream.Close()
			for {
				_, frame, err := conn.Reader(r.Context())
				if err != nil {
					return
				}
				if _, err := io.Copy(upstream, frame); err != nil {
					return
				}
			}
		}()
		buf := make([]byte, 64<<10)
		for {
			n, err := upstream.Read(buf)
			if err != nil || conn.Write(r.Context(), websocket.MessageBinary, buf[:n]) != nil {
				return
			}
		}
	})
}

// ours is the relay with its gate, its lease and a human who holds.
func ours(w *world) (http.Handler, func() (string, error), error) {
	if err := w.take("viewer"); err != nil {
		return nil, nil, err
	}
	n := 0
	mint := func() (string, error) {
		n++
		m, err := w.tickets.Mint(strconv.Itoa(n), ticket.Grant{Viewer: "viewer", Mode: ticket.Control})
		return relay.ProtocolTicket + string(m.Secret), err
	}
	return w.relay, mint, nil
}
