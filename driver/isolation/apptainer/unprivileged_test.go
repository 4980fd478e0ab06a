// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"errors"
	"io"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/isolationtest"
	"github.com/botscreen/botscreen/driver/isolation/namespace"
	"github.com/botscreen/botscreen/shared/screen"
)

// unprivilegedVariable gives the driver's binary, and then the image, to a test that runs
// as a user without privilege by now.
const unprivilegedVariable = "BOTSCREEN_TEST_UNPRIVILEGED"

// P9, X7, X23: a driver that runs as an ordinary user launches screens as that user, as
// confined as root's: with our seccomp profile, its own namespaces and no capability.
func TestP9UnprivilegedUser(t *testing.T) {
	if given := os.Getenv(unprivilegedVariable); given != "" {
		binary, image, _ := strings.Cut(given, "\n")
		launchUnprivileged(t, binary, image)
		return
	}
	boundary(t) // the same needs
	_, image := emptyRoot(t)
	given := isolationtest.Driver(t) + "\n" + image
	home := folder(t, 0o755)
	account, err := user.Lookup("games") // apptainer wants a name; Debian has this one, and nobody is it
	if err != nil {
		t.Skipf("needs a user that runs nothing: %v", err)
	}
	uid, err := strconv.Atoi(account.Uid)
	must(t, err)
	must(t, os.Chown(home, uid, uid))
	program := filepath.Join(folder(t, 0o755), "test") // go keeps its own where only root may look
	own, err := os.Open(os.Args[0])
	must(t, err)
	defer own.Close()
	copied, err := os.OpenFile(program, os.O_CREATE|os.O_WRONLY, 0o755)
	must(t, err)
	_, err = io.Copy(copied, own)
	must(t, errors.Join(err, copied.Close()))
	cmd := exec.CommandContext(t.Context(), program, "-test.run", "^TestP9UnprivilegedUser$", "-test.v")
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "TMPDIR=" + home, unprivilegedVariable + "=" + given}
	cmd.Dir = home
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid)}}
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("as an ordinary user it ends with %v", err)
	}
	if left := pidsOf(uint32(uid)); len(left) > 0 {
		t.Errorf("processes are left: %v", left)
	}
}

// launchUnprivileged is the test as an ordinary user.
func launchUnprivileged(t *testing.T, binary, image string) {
	path, err := exec.LookPath("apptainer")
	must(t, err)
	b := New(Options{Path: path, ImageDirs: []string{filepath.Dir(image)}, StateDir: t.TempDir()})
	if reason := b.Refusal(t.Context()); reason != "" {
		t.Fatalf("refused: %s", reason)
	}
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	must(t, err)
	defer null.Close()
	order := isolation.Order{
		ID: screen.ID{Namespace: "tests", Profile: "ordinary"}, Instance: isolationtest.NewInstance(), Binary: binary, Image: image,
		Account: isolation.Account{UID: uint32(os.Getuid()), GID: uint32(os.Getgid()), Name: "ordinary", Inherited: true},
		Log:     null, ErrorLog: null,
	}
	for _, dir := range []*string{&order.DialDir, &order.XDir, &order.Home, &order.Scratch} {
		*dir, err = os.MkdirTemp("", "d")
		must(t, err)
	}
	s := launched(t, b, order)
	status, err := namespace.Status(s.Session().PID)
	must(t, err)
	if s.unfiltered && len(s.Warnings()) == 0 || !s.unfiltered && status["Seccomp"] != "2" {
		t.Errorf("seccomp is %q, the status says %v", status["Seccomp"], s.Warnings())
	}
	if status["NoNewPrivs"] != "1" || status["CapPrm"] != "0000000000000000" {
		t.Errorf("no new privileges %q, capabilities %q", status["NoNewPrivs"], status["CapPrm"])
	}
	info, err := os.Stat("/proc/self")
	must(t, err)
	theirs, err := os.Stat("/proc/" + status["Pid"])
	must(t, err)
	if info.Sys().(*syscall.Stat_t).Uid != theirs.Sys().(*syscall.Stat_t).Uid {
		t.Errorf("the session runs as %+v", theirs.Sys())
	}
	must(t, s.Kill(bounded(t)))
	must(t, s.Remove(bounded(t)))
	if s.Session().Alive() {
		t.Error("the session is left")
	}
	if _, err := os.Stat(order.Scratch); err == nil {
		t.Errorf("%s is left", order.Scratch)
	}
	order.Volumes = []isolation.Volume{{Base: order.Home, Path: ".", Target: "/data"}}
	order.Instance = isolationtest.NewInstance()
	var refused *RefusedError
	if _, err := b.Launch(bounded(t), order); !errors.As(err, &refused) || !strings.Contains(refused.Sentence(), "runs as root") {
		t.Errorf("binds as an ordinary user: %v", err)
	}
}
