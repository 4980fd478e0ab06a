// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/jezek/xgb/xproto"

	"github.com/botscreen/botscreen/driver/display"
)

// DSP-07: the X server has no network socket, listening or other. Root sees its
// descriptors.
func TestDSP07NoInetSocket(t *testing.T) {
	r := newRig(t)
	pid := r.start().XServer
	names, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", pid))
	must(t, err)
	sockets := 0
	inet := inetInodes(t)
	for _, name := range names {
		target, err := os.Readlink(fmt.Sprintf("/proc/%d/fd/%s", pid, name.Name()))
		if err != nil || !strings.HasPrefix(target, "socket:[") {
			continue
		}
		sockets++
		if inet[strings.Trim(target, "socket:[]")] {
			t.Errorf("descriptor %s is a network socket", name.Name())
		}
	}
	if sockets < 3 { // abstract, path, RFB
		t.Errorf("only %d sockets seen: the test looks at the wrong process", sockets)
	}
}

func inetInodes(t *testing.T) map[string]bool {
	inodes := map[string]bool{}
	for _, table := range []string{"tcp", "tcp6", "udp", "udp6", "raw", "raw6"} {
		text, err := os.ReadFile("/proc/net/" + table)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		must(t, err)
		for _, line := range strings.Split(string(text), "\n")[1:] {
			if fields := strings.Fields(line); len(fields) > 9 {
				inodes[fields[9]] = true
			}
		}
	}
	return inodes
}

// vncConnect is a minor opcode of VNC-EXTENSION, see vncExtProto.h of TigerVNC.
const vncConnect = 7

// vncDoes sends a request that carries a string and returns whether the
// server says that it did it.
func vncDoes(t *testing.T, x *xclient, minor byte, text string) bool {
	t.Helper()
	extension, err := xproto.QueryExtension(x.conn, uint16(len(extensionVNC)), extensionVNC).Reply()
	must(t, err)
	if !extension.Present {
		t.Skipf("this Xvnc has no %s", extensionVNC)
	}
	cookie := x.conn.NewCookie(true, true)
	x.conn.NewRequest(vncRequest(extension.MajorOpcode, minor, text), cookie)
	reply, err := cookie.Reply()
	if isXError(err) {
		return false
	}
	must(t, err)
	return len(reply) > 1 && reply[1] != 0
}

// vncDialsOut asks the server to connect to a listener of ours and reports
// whether it did. The server answers the request after its attempt.
func vncDialsOut(t *testing.T, x *xclient) bool {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	defer listener.Close()
	vncDoes(t, x, vncConnect, listener.Addr().String())
	must(t, listener.(*net.TCPListener).SetDeadline(time.Now().Add(300*time.Millisecond)))
	conn, err := listener.Accept()
	if err != nil {
		return false
	}
	_ = conn.Close()
	return true
}

// X0: no X client makes the X server dial out or changes its parameters but the one that
// is no secret and no right (comparing.go), and the screen still answers afterwards.
func TestX0NoConnectNoSetParam(t *testing.T) {
	r := newRig(t)
	r.start()
	x := r.x()
	if vncDialsOut(t, x) {
		t.Error("Xvnc dialled out")
	}
	for _, parameter := range []string{
		"SendCutText=1", "AcceptCutText=1", "SendPrimary=1", "SetPrimary=1", "AcceptPointerEvents=0", "AcceptKeyEvents=0",
		"AllowOverride=SendCutText", "SecurityTypes=VncAuth", "desktop=x", "FrameRate=1",
	} {
		if vncDoes(t, x, vncSetParam, parameter) {
			t.Errorf("an X client set %s", parameter)
		}
	}
	if n := r.order(order{Op: "dial"}); n.Err != "" || n.Greets != 100 {
		t.Errorf("RFB connections greeted afterwards: %d, %s", n.Greets, n.Err)
	}
}

// The same requests work on an Xvnc without our flags and filter: the test above
// can fail.
func TestX0ControlPlainServerConnects(t *testing.T) {
	x, number := plainServer(t)
	if !vncDialsOut(t, x) {
		t.Error("a plain Xvnc did not dial out: the request is wrong")
	}
	layout := exec.Command("setxkbmap", "-display", fmt.Sprintf(":%d", number), "de")
	if out, err := layout.CombinedOutput(); err != nil || sixthLetter(t, x) != 'z' {
		t.Errorf("a plain Xvnc did not change its layout: %v, %s", err, out)
	}
	if !vncDoes(t, x, vncSetParam, "SendCutText=1") {
		t.Error("a plain Xvnc did not set a parameter: the request is wrong")
	}
}

// plainServer is an Xvnc without our flags, our filter and a desktop, and a connection to it.
func plainServer(t *testing.T) (x *xclient, number int) {
	t.Helper()
	require(t)
	number = freeDisplay(t)
	dir := t.TempDir()
	ready, signalReady, err := os.Pipe()
	must(t, err)
	defer ready.Close()
	cmd := exec.Command(nameXServer, fmt.Sprintf(":%d", number), "-displayfd", "3", "-rfbport", "-1",
		"-rfbunixpath", filepath.Join(dir, "rfb.sock"), "-SecurityTypes", "None", "-nolisten", "tcp", "-ac")
	cmd.ExtraFiles = []*os.File{signalReady}
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		_ = os.Remove(fmt.Sprintf("/tmp/.X11-unix/X%d", number))
	})
	must(t, signalReady.Close())
	must(t, ready.SetReadDeadline(time.Now().Add(10*time.Second)))
	line := make([]byte, 16)
	for !strings.Contains(string(line), "\n") {
		n, err := ready.Read(line)
		must(t, err)
		line = line[:n]
	}
	x, err = dialX(t.Context(), display.Number(number), display.NewCookie(), cmd.Process.Pid)
	must(t, err)
	t.Cleanup(x.close)
	return x, number
}

// X3: input can be neither recorded nor faked by extensions; SECURITY is there.
func TestX3Extensions(t *testing.T) {
	r := newRig(t)
	r.start()
	x := r.x()
	for name, want := range map[string]bool{"RECORD": false, "XTEST": false, "GLX": false, "SECURITY": true, "MIT-SHM": true, "DAMAGE": true} {
		reply, err := xproto.QueryExtension(x.conn, uint16(len(name)), name).Reply()
		must(t, err)
		if reply.Present != want {
			t.Errorf("extension %s present: %v, want %v", name, reply.Present, want)
		}
	}
}

// X2: a program of the desktop's uid gets at neither Xvnc nor the session.
func TestX2FenceEnforced(t *testing.T) {
	r := newRig(t)
	r.start()
	if n := r.order(order{Op: "fence"}); n.Err != "" || !n.Fence.Enforced {
		t.Errorf("fence: %+v %s", n.Fence, n.Err)
	}
	if _, err := os.Lstat(filepath.Join(r.options.XDir, fileRFB)); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("rfb.sock still has a path: %v", err)
	}
}

// X2: a session that can be traced makes the fence advisory, and says so.
func TestX2DumpableSessionIsAdvisory(t *testing.T) {
	r := newRig(t)
	r.options.Dumpable = true
	r.start()
	n := r.order(order{Op: "fence"})
	if n.Fence.Enforced || !strings.Contains(n.Fence.Reason, "trace the session") || strings.Contains(n.Fence.Reason, "of Xvnc") {
		t.Errorf("fence: %+v %s", n.Fence, n.Err)
	}
}

// X2: where nothing may be traced Xvnc cannot be hidden. The desktop comes up
// and the fence is advisory.
func TestX2WithoutTracingIsAdvisory(t *testing.T) {
	r := newRig(t)
	r.options.NoTrace = true
	r.start()
	n := r.order(order{Op: "fence"})
	if n.Fence.Enforced || !strings.Contains(n.Fence.Reason, "could not be hidden") ||
		!strings.Contains(n.Fence.Reason, "list descriptors of Xvnc") {
		t.Errorf("fence: %+v %s", n.Fence, n.Err)
	}
}

// X2: a self-test that does not run proves nothing.
func TestX2FailedProbeIsAdvisory(t *testing.T) {
	r := newRig(t)
	r.options.Executable = "/bin/true"
	r.start()
	if n := r.order(order{Op: "fence"}); n.Fence.Enforced || n.Fence.Reason == "" {
		t.Errorf("fence: %+v %s", n.Fence, n.Err)
	}
}

// X2: somebody who connected before the path was gone is noticed.
func TestX2EarlyConnectionIsNoticed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rfb.sock")
	listener, err := net.Listen("unix", path)
	must(t, err)
	defer listener.Close()
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	thief, err := net.Dial("unix", path) // not even accepted yet
	must(t, err)
	defer thief.Close()
	var intruder *intruderError
	if _, err := closeDoorBehind(path, os.Getpid()); !errors.As(err, &intruder) {
		t.Errorf("got %v, want an intruder", err)
	}
}

// A desktop that nobody has ended is named as what it is.
func TestEarlierServerIsNamed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rfb.sock")
	for range 2 {
		listener, err := net.Listen("unix", path)
		must(t, err)
		defer listener.Close()
		listener.(*net.UnixListener).SetUnlinkOnClose(false)
		viewer, err := net.Dial("unix", path)
		must(t, err)
		defer viewer.Close()
		must(t, os.Rename(path, path+".kept")) // makes room for the next
	}
	must(t, os.Rename(path+".kept", path))
	var earlier *earlierServerError
	if _, err := closeDoorBehind(path, os.Getpid()); !errors.As(err, &earlier) || !strings.Contains(err.Error(), "an earlier desktop") {
		t.Errorf("got %v", err)
	}
}

func TestDoorRefusesAnotherListener(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rfb.sock")
	listener, err := net.Listen("unix", path)
	must(t, err)
	defer listener.Close()
	listener.(*net.UnixListener).SetUnlinkOnClose(false)
	door, err := closeDoorBehind(path, 1)
	must(t, err)
	defer door.close()
	if conn, err := door.dial(t.Context()); err == nil {
		_ = conn.Close()
		t.Error("connected to a listener that is not Xvnc")
	}
	door.server = os.Getpid()
	conn, err := door.dial(t.Context())
	must(t, err)
	_ = conn.Close()
}

// S3: neither the core screen saver nor a client that forces it hides the picture.
func TestS3NeverBlank(t *testing.T) {
	r := newRig(t)
	r.start()
	x := r.x()
	saver, err := xproto.GetScreenSaver(x.conn).Reply()
	must(t, err)
	if saver.Timeout != 0 {
		t.Errorf("screen saver after %d s", saver.Timeout)
	}
	must(t, xproto.ForceScreenSaverChecked(x.conn, xproto.ScreenSaverActive).Check())
	if got := rgb(r.screenshot(), pointInWallpaper); got == ([3]uint8{}) {
		t.Error("the picture is black under a forced screen saver")
	}
	for _, name := range []string{"DPMS", "MIT-SCREEN-SAVER"} {
		reply, err := xproto.QueryExtension(x.conn, uint16(len(name)), name).Reply()
		must(t, err)
		if reply.Present {
			t.Errorf("extension %s is there", name)
		}
	}
}

// R13, X42: the layout that the job asks for is the server's when the desktop is
// ready, and can be changed.
func TestKeyboardLayout(t *testing.T) {
	r := newRig(t)
	r.options.KeyboardLayout = "de(nodeadkeys)"
	r.start()
	x := r.x()
	if got := sixthLetter(t, x); got != 'z' {
		t.Errorf("the sixth letter key gives %q under de, want z", got)
	}
	for layout, want := range map[string]rune{"us": 'y', "ch(fr)": 'z', "us,de": 'y'} {
		if n := r.order(order{Op: "layout", Layout: layout}); n.Err != "" {
			t.Errorf("set %s: %s", layout, n.Err)
		}
		if got := sixthLetter(t, x); got != want {
			t.Errorf("the sixth letter key gives %q under %s, want %q", got, layout, want)
		}
	}
	for _, layout := range []string{"", "nosuchlayout", "us;id"} {
		if n := r.order(order{Op: "layout", Layout: layout}); n.Err == "" {
			t.Errorf("layout %q was accepted", layout)
		}
	}
}

// sixthLetter is what key 29, the sixth of the upper letter row, gives.
func sixthLetter(t *testing.T, x *xclient) rune {
	t.Helper()
	reply, err := xproto.GetKeyboardMapping(x.conn, 29, 1).Reply()
	must(t, err)
	if len(reply.Keysyms) == 0 {
		return 0
	}
	return rune(reply.Keysyms[0])
}

// X2: no X client makes Xvnc run a program, which would inherit its RFB sockets
// and could be robbed of them.
func TestX2ServerRunsNothing(t *testing.T) {
	r := newRig(t)
	r.start()
	x := r.x()
	_ = r.command("setxkbmap", "de").Run() // asks the server to run xkbcomp
	if got := sixthLetter(t, x); got != 'y' {
		t.Errorf("the server ran xkbcomp for a client: the key gives %q", got)
	}
	if n := r.order(order{Op: "dial"}); n.Greets != 100 {
		t.Errorf("RFB connections greeted afterwards: %d, %s", n.Greets, n.Err)
	}
}
