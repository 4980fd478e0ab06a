// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"io"
	"net"
	"runtime"
	"testing"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// X34: of a thousand callers that begin a request and say no more a door keeps few, and
// whoever asks is answered; a caller that waits for its answer is not sent away.
func TestX34HalfOpenCallers(t *testing.T) {
	backend := newEverything()
	_, path := openSocket(t, backend, screen.RoleAgent)
	waiting := control.NewClient(control.Unix(path))
	defer waiting.Close()
	picture := make(chan error, 1)
	go func() {
		_, err := waiting.Screenshot(t.Context(), control.ScreenshotRequest{Scale: 0.5})
		picture <- err
	}()
	for taking := 0; taking == 0; runtime.Gosched() {
		backend.mu.Lock()
		taking = backend.taking
		backend.mu.Unlock()
	}
	var silent []net.Conn
	for range 1000 {
		conn, err := net.Dial("unix", path)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if _, err := io.WriteString(conn, "GET /v1/status HTTP/1.1\r\nHos"); err != nil {
			t.Fatal(err)
		}
		silent = append(silent, conn)
	}
	for range 20 {
		client := control.NewClient(control.Unix(path))
		if _, err := client.Status(t.Context()); err != nil {
			t.Error(err)
		}
		client.Close()
	}
	for _, conn := range silent[:1000-maxCallers] {
		if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
			t.Fatal("a silent caller was answered")
		}
	}
	close(backend.release)
	if err := <-picture; err != nil {
		t.Errorf("who waited for a picture: %v", err)
	}
}
