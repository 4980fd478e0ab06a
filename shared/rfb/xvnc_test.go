// SPDX-License-Identifier: MPL-2.0

package rfb

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/color"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// xvnc is a real server on a Unix socket.
type xvnc struct{ socket, display string }

// startXvnc runs Xvnc for one test; where it is not installed the test is skipped,
// except in CI.
func startXvnc(t testing.TB, size Size, more ...string) xvnc {
	t.Helper()
	program, err := exec.LookPath("Xvnc")
	if err != nil {
		if os.Getenv("CI") != "" {
			t.Fatal(err)
		}
		t.Skip("Xvnc is not installed")
	}
	// Any free number far from those that others use; a taken one makes Xvnc exit.
	for range 10 {
		server := xvnc{filepath.Join(t.TempDir(), "rfb"), fmt.Sprintf(":%d", 300+rand.IntN(4000))}
		if server.run(t, program, size, more) {
			return server
		}
	}
	t.Fatal("no display number is free")
	return xvnc{}
}

func (x xvnc) run(t testing.TB, program string, size Size, more []string) bool {
	ready, tell, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer ready.Close()
	args := []string{x.display, "-geometry", size.String(), "-depth", "24", "-rfbport", "-1",
		"-rfbunixpath", x.socket, "-rfbunixmode", "0600", "-SecurityTypes", "None", "-AlwaysShared", "-UseBlacklist=0",
		"-SendCutText=0", "-AcceptCutText=0", "-nolisten", "tcp", "-extension", "GLX", "-displayfd", "3"}
	cmd := exec.Command(program, append(args, more...)...)
	cmd.ExtraFiles = []*os.File{tell}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	err = cmd.Start()
	tell.Close()
	if err != nil {
		t.Fatal(err)
	}
	ready.SetReadDeadline(time.Now().Add(15 * time.Second))
	if said, _ := io.ReadAll(ready); !strings.HasSuffix(string(said), "\n") {
		cmd.Process.Kill()
		cmd.Wait()
		t.Logf("Xvnc %s: %s", x.display, log.String())
		return false
	}
	t.Cleanup(func() {
		cmd.Process.Kill()
		cmd.Wait()
	})
	return true
}

func (x xvnc) dial(t testing.TB) net.Conn {
	t.Helper()
	conn, err := net.Dial("unix", x.socket)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return conn
}

func (x xvnc) paint(t testing.TB, colour string) {
	t.Helper()
	cmd := exec.Command("xsetroot", "-display", x.display, "-solid", colour, "-cursor_name", "left_ptr")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("xsetroot: %v %s", err, out)
	}
}

func TestScreenshotOfXvnc(t *testing.T) {
	server := startXvnc(t, Size{801, 603})
	c, err := Connect(t.Context(), server.dial(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if c.Size() != (Size{801, 603}) || c.Init().Name == "" {
		t.Fatalf("%+v", c.Init())
	}
	for _, colour := range []color.RGBA{blue, {0xfe, 0x01, 0x80, 0xff}} {
		server.paint(t, fmt.Sprintf("#%02x%02x%02x", colour.R, colour.G, colour.B))
		img, err := c.Screenshot(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// The pointer is drawn into the picture, in the middle of the screen.
		allOf(t, Crop(img, image.Rect(0, 0, 801, 250)), colour)
		if cursor := Crop(img, image.Rect(390, 290, 412, 314)); Hash(cursor) == Hash(Crop(img, image.Rect(0, 0, 22, 24))) {
			t.Error("no pointer in the picture")
		}
		part, err := c.ScreenshotOf(t.Context(), image.Rect(700, 500, 900, 700))
		if err != nil || part.Rect != image.Rect(700, 500, 801, 603) {
			t.Fatalf("%v, %v", part, err)
		}
		allOf(t, part, colour)
	}
}

// A desktop that changes its size under an open connection is still one picture.
func TestScreenshotAfterResize(t *testing.T) {
	server := startXvnc(t, Size{640, 480})
	viewer, err := Connect(t.Context(), server.dial(t), Options{Encodings: []Encoding{Raw, ExtendedDesktopSize, QEMUKey}})
	if err != nil {
		t.Fatal(err)
	}
	watcher, err := Connect(t.Context(), server.dial(t), Options{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := watcher.Screenshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	// The first answer names the screens and the extensions; then a resize counts.
	viewer.Send(UpdateRequest{Area: image.Rect(0, 0, 1, 1)}.Append(nil))
	first, err := viewer.Read(t.Context())
	if err != nil || first.Resized == nil || len(first.Resized.Screens) != 1 || len(first.Acknowledged) != 1 {
		t.Fatalf("%+v, %v", first, err)
	}
	layout := Resize{Size{800, 600}, []Screen{{first.Resized.Screens[0].ID, image.Rect(0, 0, 800, 600), 0}}}
	viewer.Send(UpdateRequest{Area: image.Rect(0, 0, 1, 1), Incremental: true}.Append(layout.Append(nil)))
	for done := false; !done; {
		msg, err := viewer.Read(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		done = msg.Resized != nil && msg.Resized.Size == layout.Size
	}
	img, err := watcher.Screenshot(t.Context())
	if err != nil || sizeOf(img) != layout.Size {
		t.Fatalf("%v, %v", img, err)
	}
}

// R9, differential: what the framing accepts keeps a real Xvnc in step, and what
// it refuses for its type Xvnc refuses too.
func TestR9LikeXvnc(t *testing.T) {
	server := startXvnc(t, Size{640, 480})
	for _, s := range streams(t) {
		data := s.bytes(t)
		switch {
		case strings.HasPrefix(s.ID, "setdesktopsize"), strings.HasPrefix(s.ID, "split-in-header"), s.ID == "encodings-65535":
			continue // these change or kill the server; their lengths are in the other tests
		case s.ID == "extmouse-scroll":
			continue // Xvnc 1.12 does not know the extension
		}
		_, err := readAll(bytes.NewReader(data), s.framing())
		accepted := err == io.EOF
		if s.ID == "fence-200" {
			accepted = true // Xvnc skips it; we keep to the 64 bytes of rfbproto
		}
		if inStep := staysInStep(t, server, data); inStep != accepted {
			t.Errorf("%s: Xvnc in step: %v, framing: %v", s.ID, inStep, err)
		}
	}
}

// staysInStep sends data and asks for a pixel: is there one?
func staysInStep(t *testing.T, server xvnc, data []byte) bool {
	// Fences and continuous updates are legal only once announced.
	c, err := Connect(t.Context(), server.dial(t), Options{Encodings: []Encoding{
		Raw, DesktopSize, ExtendedDesktopSize, Fence, ContinuousUpdates, QEMUKey,
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	sent := make(chan error, 1)
	// A whole encoding list at the end makes what comes back readable again.
	tail := AppendSetEncodings(AppendSetPixelFormat(nil, RGBX), []Encoding{Raw, DesktopSize, ExtendedDesktopSize, Fence, ContinuousUpdates, QEMUKey})
	probe := FenceMessage{Flags: FenceRequest | FenceBlockBefore, Payload: []byte("in step")}
	go func() { sent <- c.Send(append(bytes.Clone(data), probe.Append(tail)...)) }()
	answered := findInStream(ctx, c.conn, probe.Reply().Append(nil))
	c.Close()
	<-sent
	if answered != nil && !errors.Is(answered, io.EOF) && !strings.Contains(answered.Error(), "reset") {
		t.Fatalf("%v", answered)
	}
	return answered == nil
}

// findInStream reads until the bytes have come.
func findInStream(ctx context.Context, conn net.Conn, want []byte) error {
	deadline, _ := ctx.Deadline()
	conn.SetReadDeadline(deadline)
	var tail []byte
	buf := make([]byte, 64<<10)
	for {
		n, err := conn.Read(buf)
		tail = append(tail, buf[:n]...)
		if bytes.Contains(tail, want) {
			return nil
		}
		if err != nil {
			return err
		}
		tail = tail[max(0, len(tail)-len(want)):]
	}
}

// BenchmarkScreenshotOfXvnc is one picture over a new connection.
func BenchmarkScreenshotOfXvnc(b *testing.B) {
	server := startXvnc(b, Size{1440, 900})
	for b.Loop() {
		conn, err := net.Dial("unix", server.socket)
		if err != nil {
			b.Fatal(err)
		}
		c, err := Connect(b.Context(), conn, Options{})
		if err != nil {
			b.Fatal(err)
		}
		if _, err := c.Screenshot(b.Context()); err != nil {
			b.Fatal(err)
		}
		c.Close()
	}
}
