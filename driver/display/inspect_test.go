// SPDX-License-Identifier: MPL-2.0

package display

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// fakeHost is a host with an empty /tmp and a /proc that knows the processes given.
func fakeHost(t *testing.T, procs map[int]string) Host {
	t.Helper()
	h := Host{ProcFS: t.TempDir(), TmpDir: t.TempDir()}
	mkdir(t, filepath.Join(h.ProcFS, "net"))
	mkdir(t, filepath.Join(h.TmpDir, socketDir))
	setNetUnix(t, h)
	for pid, cmdline := range procs {
		addProcess(t, h, pid, "S", cmdline)
	}
	return h
}

func mkdir(t *testing.T, path string) {
	t.Helper()
	if err := os.Mkdir(path, 0o755); err != nil {
		t.Fatal(err)
	}
}

func writeFile(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func addProcess(t *testing.T, h Host, pid int, state, cmdline string) {
	t.Helper()
	dir := filepath.Join(h.ProcFS, strconv.Itoa(pid))
	mkdir(t, dir)
	writeFile(t, dir+"/stat", fmt.Sprintf("%d (a ) b) %s 1 1 1 0", pid, state))
	writeFile(t, dir+"/cmdline", strings.ReplaceAll(cmdline, " ", "\x00")+"\x00")
}

func setNetUnix(t *testing.T, h Host, names ...string) {
	t.Helper()
	text := "Num       RefCount Protocol Flags    Type St Inode Path\n"
	for i, name := range names {
		text += fmt.Sprintf("00000000ca18ba85: 00000002 00000000 00010000 0001 01 %5d %s\n", 1586+i, name)
	}
	writeFile(t, filepath.Join(h.ProcFS, "net/unix"), text)
}

func inspect(t *testing.T, h Host, n Number) Status {
	t.Helper()
	s, err := h.Inspect(n)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestDSP04LockFixtures(t *testing.T) {
	h := fakeHost(t, map[int]string{1: "/sbin/init splash"})
	for fixture, want := range map[string]struct {
		state State
		pid   int
		words string
	}{
		"dead-pid.lock":                {Stale, 999999, "gone"},
		"empty.lock":                   {Stale, 0, "names no process"},
		"garbage.lock":                 {Stale, 0, "names no process"},
		"live-but-unrelated-pid1.lock": {Blocked, 1, "lives and is no X server"},
		"pid-max.lock":                 {Stale, 4194304, "gone"},
		"unpadded-dead.lock":           {Stale, 999999, "gone"},
	} {
		t.Run(fixture, func(t *testing.T) {
			data, err := os.ReadFile("testdata/locks/" + fixture)
			if err != nil {
				t.Fatal(err)
			}
			writeFile(t, Number(40).LockPath(h.TmpDir), string(data))
			got := inspect(t, h, 40)
			if got.State != want.state || got.PID != want.pid || !strings.Contains(got.Reason, want.words) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

func TestD2InUse(t *testing.T) {
	lock := func(pid int) string { return fmt.Sprintf("%10d\n", pid) }
	for name, tc := range map[string]struct {
		lock string
		unix []string
		want State
	}{
		"nothing":                         {want: Free},
		"DSP-01 cleaned tmp, abstract":    {unix: []string{"@/tmp/.X11-unix/X40"}, want: InUse},
		"path socket only":                {unix: []string{"/tmp/.X11-unix/X40"}, want: InUse},
		"other number's socket":           {unix: []string{"@/tmp/.X11-unix/X4", "@/tmp/.X11-unix/X400", "/tmp/.X11-unix/X40x"}, want: Free},
		"somebody else's name":            {unix: []string{"/home/a/tmp/.X11-unix/X40", "@/home/.X11-unix/X40"}, want: Free},
		"name with a newline":             {unix: []string{"@/tmp/.X11-unix/X4\n0"}, want: Free},
		"Xvnc with its number":            {lock: lock(200), want: InUse},
		"X by displayfd":                  {lock: lock(201), want: InUse},
		"Xvnc of another number":          {lock: lock(202), want: Blocked},
		"no X server":                     {lock: lock(203), want: Blocked},
		"D5 zombie":                       {lock: lock(204), want: Blocked},
		"kernel thread without arguments": {lock: lock(205), want: Blocked},
		"dead, but the socket lives":      {lock: lock(999999), unix: []string{"@/tmp/.X11-unix/X40"}, want: InUse},
		"unrelated, but the socket lives": {lock: lock(203), unix: []string{"@/tmp/.X11-unix/X40"}, want: InUse},
		"40 digits":                       {lock: strings.Repeat("9", 40), want: Stale},
		"negative":                        {lock: "        -1\n", want: Stale},
		"zero":                            {lock: "         0\n", want: Stale},
	} {
		t.Run(name, func(t *testing.T) {
			h := fakeHost(t, map[int]string{
				200: "/usr/bin/Xtigervnc :40 -depth 24",
				201: "Xorg -displayfd 5",
				202: "/usr/bin/Xvnc :41",
				203: "bash :40",
				205: "",
			})
			addProcess(t, h, 204, "Z", "")
			if tc.lock != "" {
				writeFile(t, Number(40).LockPath(h.TmpDir), tc.lock)
			}
			setNetUnix(t, h, tc.unix...)
			got := inspect(t, h, 40)
			if got.State != tc.want {
				t.Errorf("got %+v, want %s", got, tc.want)
			}
			if (got.Reason == "") != (got.State == Free) {
				t.Errorf("state %s with reason %q", got.State, got.Reason)
			}
		})
	}
}

func TestX6PlantedFilesBlockTheNumberOnly(t *testing.T) {
	secret := filepath.Join(t.TempDir(), "secret")
	writeFile(t, secret, "    999999\n")
	for name, plant := range map[string]func(h Host) error{
		"lock is a link":        func(h Host) error { return os.Symlink(secret, Number(40).LockPath(h.TmpDir)) },
		"lock is a dead link":   func(h Host) error { return os.Symlink("/nonexistent", Number(40).LockPath(h.TmpDir)) },
		"lock is a FIFO":        func(h Host) error { return syscall.Mkfifo(Number(40).LockPath(h.TmpDir), 0o666) },
		"lock is a directory":   func(h Host) error { return os.Mkdir(Number(40).LockPath(h.TmpDir), 0o777) },
		"socket is a link":      func(h Host) error { return os.Symlink(secret, filepath.Join(h.TmpDir, socketDir, "X40")) },
		"socket is a file":      func(h Host) error { return os.WriteFile(filepath.Join(h.TmpDir, socketDir, "X40"), nil, 0o666) },
		"socket is a directory": func(h Host) error { return os.Mkdir(filepath.Join(h.TmpDir, socketDir, "X40"), 0o777) },
	} {
		t.Run(name, func(t *testing.T) {
			h := fakeHost(t, nil)
			if err := plant(h); err != nil {
				t.Fatal(err)
			}
			if got := inspect(t, h, 40); got.State != Blocked {
				t.Errorf("got %+v, want blocked", got)
			}
			if got := inspect(t, h, 41); got.State != Free {
				t.Errorf("the next number: %+v, want free", got)
			}
		})
	}
	if data, err := os.ReadFile(secret); err != nil || len(data) == 0 {
		t.Errorf("the link's target was touched: %q, %v", data, err)
	}
}

// A container that shares /tmp binds its path socket in another network namespace; ours knows nothing of it.
func TestSocketFileOfAnotherNetworkNamespace(t *testing.T) {
	h := fakeHost(t, nil)
	path := filepath.Join(h.TmpDir, socketDir, "X40")
	l, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	l.(*net.UnixListener).SetUnlinkOnClose(false)
	if got := inspect(t, h, 40); got.State != InUse {
		t.Errorf("listening: %+v, want in use", got)
	}
	l.Close()
	if got := inspect(t, h, 40); got.State != Stale {
		t.Errorf("closed: %+v, want stale", got)
	}
}

func TestD5RealZombieBlocks(t *testing.T) {
	h := Host{TmpDir: t.TempDir()}
	child := exec.Command("true")
	out, err := child.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = child.Wait() }()
	// End of file: it has exited; nobody has reaped it.
	if _, err := out.Read(make([]byte, 1)); err == nil {
		t.Fatal("true wrote something")
	}
	waitForState(t, child.Process.Pid, 'Z')
	writeFile(t, Number(40).LockPath(h.TmpDir), fmt.Sprintf("%10d\n", child.Process.Pid))
	if got := inspect(t, h, 40); got.State != Blocked || !strings.Contains(got.Reason, "not yet reaped") {
		t.Errorf("got %+v, want blocked by a zombie", got)
	}
}

// waitForState waits by waitid(2), which reports an exit without reaping it.
func waitForState(t *testing.T, pid int, state byte) {
	t.Helper()
	const pPID, wExited, wNoWait = 1, 4, 0x01000000
	if _, _, errno := syscall.Syscall6(syscall.SYS_WAITID, pPID, uintptr(pid), 0, wExited|wNoWait, 0, 0); errno != 0 {
		t.Fatal(errno)
	}
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil || data[bytes.LastIndexByte(data, ')')+2] != state {
		t.Fatalf("process %d: %s, %v, want state %c", pid, data, err, state)
	}
}

// With /proc mounted hidepid, other users' processes are not listed but live.
func TestS10HiddenProcess(t *testing.T) {
	h := Host{TmpDir: t.TempDir()}
	if !h.process(os.Getpid()).alive || !h.process(os.Getppid()).alive {
		t.Error("we and our parent should live")
	}
	if h.process(maxPID).alive {
		t.Error("no process has the greatest pid")
	}
	hidden := Host{ProcFS: t.TempDir()}
	if hidden.process(os.Getpid()).alive {
		t.Error("a foreign /proc must not be completed from our own kernel")
	}
}

func TestInspectSaysWhenProcIsMissing(t *testing.T) {
	_, err := Host{ProcFS: t.TempDir(), TmpDir: t.TempDir()}.Inspect(40)
	if err == nil || !strings.Contains(err.Error(), "look for X sockets") {
		t.Errorf("got %v", err)
	}
}

func FuzzParseLock(f *testing.F) {
	for _, s := range []string{"         1\n", "999999\n", "", "garbage\n", "-1", "4194305", "+1", "1 2", strings.Repeat("9", 40)} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		pid, ok := parseLock(data)
		if ok != (pid > 0) || pid > maxPID {
			t.Fatalf("%q gave %d, %v", data, pid, ok)
		}
		if ok && strings.TrimLeft(strings.TrimSpace(string(data)), "0") != strconv.Itoa(pid) {
			t.Fatalf("%q gave %d", data, pid)
		}
	})
}

func FuzzParseNetUnix(f *testing.F) {
	f.Add([]byte("Num       RefCount Protocol Flags    Type St Inode Path\n00000000ca18ba85: 00000002 00000000 00010000 0001 01 1586 @/tmp/.X11-unix/X20\n"))
	f.Add([]byte("a b c d e f g /tmp/.X11-unix/X99999\n\n\x00 @/tmp/.X11-unix/X"))
	f.Add([]byte("a  b c  d e f g @/tmp/.X11-unix/X20@@@"))
	f.Fuzz(func(t *testing.T, data []byte) {
		found, err := parseNetUnix(bytes.NewReader(data), "/tmp")
		if err != nil {
			t.Fatal(err)
		}
		for n, b := range found {
			if n < 0 || n > 99999 || b == (bound{}) {
				t.Fatalf("%q gave %d %+v", data, n, b)
			}
			if !bytes.Contains(data, []byte(".X11-unix/X")) {
				t.Fatalf("%q gave %d without its name", data, n)
			}
		}
	})
}
