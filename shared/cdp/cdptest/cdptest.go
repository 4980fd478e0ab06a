// SPDX-License-Identifier: MPL-2.0

// Package cdptest starts a real browser for the tests of what drives one.
package cdptest

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/botscreen/botscreen/shared/testkit/chromium"
)

// pipes is the near end of a browser's two.
type pipes struct{ in, out *os.File }

func (p pipes) Read(b []byte) (int, error)  { return p.out.Read(b) }
func (p pipes) Write(b []byte) (int, error) { return p.in.Write(b) }
func (p pipes) Close() error                { return errors.Join(p.in.Close(), p.out.Close()) }

// Chromium starts one without a window, until the test ends, and returns its pipe. It runs
// as an account that is not root's: its sandbox is on.
func Chromium(t testing.TB) io.ReadWriteCloser {
	t.Helper()
	path := chromium.Need(t)
	toRead, in, err := os.Pipe()
	must(t, err)
	out, toWrite, err := os.Pipe()
	must(t, err)
	home, err := os.MkdirTemp("", "bsc-")
	must(t, err)
	cmd := exec.Command(path, "--headless", "--remote-debugging-pipe", "--no-first-run", "--disable-gpu", "--disable-dev-shm-usage",
		"--user-data-dir="+filepath.Join(home, "profile"), "about:blank")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home}
	cmd.ExtraFiles = []*os.File{toRead, toWrite} // 3 and 4
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 {
		const nobody = 23456
		must(t, os.Chown(home, nobody, nobody))
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: nobody, Gid: nobody}
	}
	log := &strings.Builder{}
	cmd.Stderr = log
	must(t, cmd.Start())
	_, _ = toRead.Close(), toWrite.Close()
	p := pipes{in, out}
	t.Cleanup(func() {
		_ = p.Close() // which ends it
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		_ = cmd.Wait()
		_ = os.RemoveAll(home)
		if t.Failed() {
			t.Logf("the browser's log:\n%s", log)
		}
	})
	return p
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
