// SPDX-License-Identifier: MPL-2.0

package task_test

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/task"
)

func startSleep(t *testing.T) *exec.Cmd {
	t.Helper()
	cmd := exec.Command("sleep", "600")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return cmd
}

// X1: the desktop's own uid can neither read nor replace anything of the control tree.
func TestX1ControlTree(t *testing.T) {
	n := newNode(t)
	k := n.start(n.request("thief"))
	v := k.View()
	walked := 0
	err := filepath.WalkDir(filepath.Join(n.settings.StateDir, "control"), func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		walked++
		checkOwner(t, path, v)
		for _, attack := range []string{
			"cat %s", "ls %s", "echo x >%s", "mv %s /tmp/x", "rm -rf %s", "ln -sf /etc/passwd %s", "touch %s/x", "chmod 777 %s",
		} {
			script := fmt.Sprintf(attack, "'"+path+"'")
			// The parents may be searched, but only their owner's names are worth anything.
			if result, out := run(t, k, script); result.ExitCode == 0 {
				t.Errorf("%s succeeded: %s", script, out)
			}
		}
		return nil
	})
	if err != nil || walked < 4 {
		t.Fatalf("walked %d entries, %v", walked, err)
	}
	for _, path := range []string{v.OperatorSocket, filepath.Join(n.settings.StateDir, "runs"), filepath.Join(n.settings.StateDir, "profiles"), filepath.Join(n.settings.RunDir, "node")} {
		if result, out := run(t, k, "cat '"+path+"' '"+path+"'/*"); result.ExitCode == 0 {
			t.Errorf("the desktop reads %s: %s", path, out)
		}
	}
	if !xserver(t, v).Alive() {
		t.Fatal("the attacks ended the screen")
	}
}

// checkOwner holds the tree to its table: parents are root's 0711, the leaf and what is
// in it the supervisor's alone.
func checkOwner(t *testing.T, path string, v task.View) {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	uid := info.Sys().(*syscall.Stat_t).Uid
	switch {
	case path == v.ControlDir:
		if uid != v.SupervisorAccount || info.Mode().Perm() != 0o700 {
			t.Errorf("%s: uid %d mode %04o", path, uid, info.Mode().Perm())
		}
	case strings.HasPrefix(path, v.ControlDir):
		if uid != v.SupervisorAccount || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: uid %d mode %04o", path, uid, info.Mode().Perm())
		}
	default:
		if uid != 0 || info.Mode().Perm() != 0o711 {
			t.Errorf("%s: uid %d mode %04o", path, uid, info.Mode().Perm())
		}
	}
}

// X14: the process that touches hostile bytes has no uid 0, no capability, no way to
// gain one, and no way to an engine.
func TestX14SupervisorIsUnprivileged(t *testing.T) {
	n := newNode(t)
	v := n.start(n.request("humble")).View()
	for field, want := range map[string]string{
		"Uid": fourTimes(v.SupervisorAccount), "Gid": fourTimes(v.SupervisorAccount), "Groups": " ", "CapEff": "0000000000000000",
		"CapPrm": "0000000000000000", "NoNewPrivs": "1",
	} {
		if got := statusField(v.SupervisorPID, field); strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("%s is %q, want %q", field, got, want)
		}
	}
	if v.SupervisorAccount == 0 || v.SupervisorAccount == v.Account.UID {
		t.Errorf("supervisor uid %d, session uid %d", v.SupervisorAccount, v.Account.UID)
	}
	for field, want := range map[string]string{"Uid": fourTimes(v.Account.UID), "Groups": "", "CapEff": "0000000000000000"} {
		if got := statusField(v.SessionPID, field); strings.TrimSpace(got) != want {
			t.Errorf("session: %s is %q, want %q", field, got, want)
		}
	}
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", v.SupervisorPID))
	if err != nil || strings.Trim(string(environ), "\x00") != "PATH=/usr/bin:/bin" {
		t.Errorf("supervisor's environment %q, %v", environ, err) // X8
	}
}

func fourTimes(id uint32) string { return fmt.Sprintf("%d\t%d\t%d\t%d", id, id, id, id) }

// X13: nobody but the session can be the session, whoever may connect.
func TestX13Impersonation(t *testing.T) {
	n := newNode(t)
	k := n.start(n.request("real"))
	v := k.View()
	dial := filepath.Join(filepath.Dir(v.OperatorSocket), "dial", "s")
	for range 50 {
		c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: dial, Net: "unixpacket"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := c.Read(make([]byte, 1)); err == nil {
			t.Fatal("the supervisor spoke to a stranger")
		}
		_ = c.Close()
	}
	if result, out := run(t, k, "echo still here"); result.ExitCode != 0 || out != "still here\n" {
		t.Fatalf("%+v %q", result, out)
	}
	for _, pid := range []int{v.SessionPID, v.SupervisorPID} {
		if words := strings.Join(commandLine(pid), " "); strings.Contains(words, v.Instance) {
			t.Errorf("a secret stands in the arguments of pid %d: %s", pid, words)
		}
	}
}

// X21, S5, SEC-05, DSP-15: neither the node's environment nor the task's secrets reach
// the desktop, its arguments or its logs; what the job sets does.
func TestX21Secrets(t *testing.T) {
	n := newNode(t)
	n.environ = []string{"AWS_SECRET_ACCESS_KEY=CANARY-1", "PATH=/node/bin", "SAME=CANARY-2", "DBUS_SESSION_BUS_ADDRESS=unix:path=/CANARY-3"}
	n.restart()
	request := n.request("sealed")
	alloc := filepath.Join(n.dir, "alloc")
	secrets := filepath.Join(alloc, "sealed", "secrets")
	if err := os.MkdirAll(secrets, 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(secrets, "nomad_token"), []byte("CANARY-4"), 0o644); err != nil {
		t.Fatal(err)
	}
	request.SecretDirs = []string{secrets}
	request.Env = map[string]string{
		"AWS_SECRET_ACCESS_KEY": "CANARY-1", "PATH": "/node/bin", "SAME": "CANARY-2", "DBUS_SESSION_BUS_ADDRESS": "unix:path=/CANARY-3",
		"NOMAD_TOKEN": "CANARY-5", "VAULT_TOKEN": "CANARY-6", "NOMAD_UNIX_ADDR": "CANARY-7", "NOMAD_SECRETS_DIR": secrets,
		"NOMAD_ALLOC_ID": "alloc", "GREETING": "from the job", "SESSION_MANAGER": "CANARY-8", "DISPLAY": ":CANARY-9",
	}
	k := n.start(request)
	_, out := run(t, k, "env; cat '"+secrets+"/nomad_token'; ls '"+secrets+"'; cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline 2>/dev/null | tr '\\0' '\\n'")
	if strings.Contains(out, "CANARY") {
		for line := range strings.Lines(out) {
			if strings.Contains(line, "CANARY") {
				t.Errorf("the desktop sees %s", line)
			}
		}
	}
	if !strings.Contains(out, "GREETING=from the job") || !strings.Contains(out, "NOMAD_ALLOC_ID=alloc") {
		t.Errorf("what the job set is missing in %s", out)
	}
}

// X29: who a screen may run as.
func TestX29Accounts(t *testing.T) {
	policy := task.AccountPolicy{MinUID: 1000, DeniedGroups: []string{"disk"}}
	for name, want := range map[string]*isolation.Account{
		"root": nil, "0": nil, "+0": nil, "0:0": nil, " 0": nil, "00": nil, "-1": nil, "4294967295": nil, "4294967296": nil, "nomad-0": nil,
		"nomad-00": nil, "nomad-99999999999": nil, "daemon": nil, "nosuchuser": nil, "1000:0": nil, "1000:disk": nil, "1000:nosuchgroup": nil,
		"": nil, ":": nil, "1000:": nil, "0x1000": nil, "1e3": nil, "nomad-": nil, "../x": nil, "1000 ": nil, "nobody:root": nil,
		"nomad-80001": {UID: 80001, GID: 80001, Name: "nomad-80001"},
		"61234":       {UID: 61234, GID: 61234, Name: "botscreen-61234"},
		"61234:61235": {UID: 61234, GID: 61235, Name: "botscreen-61234"},
		"nobody":      {UID: 65534, GID: 65534, Name: "nobody"},
	} {
		got, err := policy.Resolve(name)
		if want == nil {
			if err == nil {
				t.Errorf("%q was accepted as %+v", name, got)
			} else if !strings.Contains(err.Error(), "user:") {
				t.Errorf("%q: the fault does not name its field: %v", name, err)
			}
			continue
		}
		if err != nil || got.UID != want.UID || got.GID != want.GID || got.Name != want.Name || len(got.Groups) != 0 {
			t.Errorf("%q is %+v, %v; want %+v", name, got, err, want)
		}
	}
	policy.AllowedUsers = []string{"bot"}
	if _, err := policy.Resolve("nobody"); err == nil {
		t.Error("a user outside of allowed_users was accepted")
	}
}

// X28: a home whose profile changes uid is re-owned by descriptors: links and files
// with a second name are left alone.
func TestX28Reown(t *testing.T) {
	n := newNode(t)
	request := n.request("mover")
	k := n.start(request)
	v := k.View()
	if result, out := run(t, k, "mkdir -p deep/er; echo x >deep/er/file; ln -s /etc/shadow link"); result.ExitCode != 0 {
		t.Fatalf("%+v %s", result, out)
	}
	if err := k.Destroy(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	home := filepath.Join(n.settings.StateDir, "data", "default", "mover")
	outside := filepath.Join(n.dir, "outside")
	if err := os.WriteFile(outside, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(outside, filepath.Join(home, "hardlink")); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(outside, int(v.Account.UID), int(v.Account.UID)); err != nil {
		t.Fatal(err)
	}
	moved := n.request("mover")
	other := n.settings.LastUID + 1
	moved.User = fmt.Sprint(other)
	n.start(moved)
	for path, want := range map[string]uint32{
		home: other, filepath.Join(home, "deep/er/file"): other, filepath.Join(home, "link"): other,
		filepath.Join(home, "hardlink"): v.Account.UID, "/etc/shadow": 0,
	} {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		if got := info.Sys().(*syscall.Stat_t).Uid; got != want {
			t.Errorf("%s belongs to uid %d, want %d", path, got, want)
		}
	}
}
