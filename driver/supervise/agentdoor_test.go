// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/control"
)

// newDoorRig serves an agent's socket in a shared directory.
func newDoorRig(t *testing.T, uids ...uint32) (r *rig, shared, path string) {
	t.Helper()
	shared, err := os.MkdirTemp("", "bsd-")
	must(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(shared) })
	dir := filepath.Join(shared, agentDirName)
	must(t, os.Chmod(shared, 0o777))
	must(t, os.Mkdir(dir, 0o755))
	path = filepath.Join(dir, "desk.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	must(t, err)
	listener.SetUnlinkOnClose(false)
	must(t, os.Chmod(path, 0o666)) // the worst that a mode can do
	open := func(path string) *os.File { f, err := os.Open(path); must(t, err); return f }
	door := &agentDoor{listener: listener, dir: open(dir), shared: open(shared), name: "desk.sock"}
	r = newRigWith(t, func(c *Config) { c.AgentSocket.UIDs = uids }, func(d *doors) { d.agent = door })
	return r, shared, path
}

// asUID makes a call at the agent's door as another user of the node, and gives its answer.
func asUID(t *testing.T, uid uint32, path, call string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to be somebody else")
	}
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), roleVariable+"=agent", "SOCKET="+path, "CALL="+call)
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uid, Gid: 0}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// callAsAgent is the part of another user.
func callAsAgent() error {
	c := control.NewClient(control.Unix(os.Getenv("SOCKET")))
	defer c.Close()
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	var err error
	switch os.Getenv("CALL") {
	case "lease":
		_, err = c.Lease(ctx)
	case "take":
		_, err = c.Take(ctx, control.TakeRequest{Viewer: "me"})
	case "stop":
		err = c.Stop(ctx, control.StopRequest{Force: true})
	}
	fmt.Println(control.KindOf(err), err)
	return nil
}

// X33: whatever the mode of the socket lets in, only the uids of the job and root are
// accepted, and as agents alone.
func TestX33AcceptedUIDs(t *testing.T) {
	_, _, path := newDoorRig(t, 4001)
	for _, tc := range []struct {
		uid        uint32
		call, want string
	}{
		{4001, "lease", "<nil>"}, {0, "lease", "<nil>"},
		{4002, "lease", "forbidden This is the door of the screen's agent, and uid 4002"},
		{4001, "take", "forbidden This door has the role \"agent\""}, {0, "stop", "forbidden This door has the role"},
	} {
		if got := asUID(t, tc.uid, path, tc.call); !strings.HasPrefix(got, tc.want) {
			t.Errorf("uid %d, %s: %q, want %q", tc.uid, tc.call, got, tc.want)
		}
	}
}

// X33: a task that renames the directory and puts its own there is noticed within five
// seconds, in an event and in the status; the door that agents already use stays.
func TestX33ReplacedDoor(t *testing.T) {
	r, shared, path := newDoorRig(t)
	agent := control.NewClient(control.Unix(path))
	defer agent.Close()
	_, err := agent.Lease(t.Context())
	must(t, err)
	replaced := time.Now()
	must(t, os.Rename(filepath.Dir(path), filepath.Join(shared, "aside")))
	must(t, os.Mkdir(filepath.Dir(path), 0o755))
	for e, err := range r.client.Events(t.Context(), 0) {
		must(t, err)
		if e.Name == control.EventAgentDoor {
			break
		}
	}
	if took := time.Since(replaced); took > 5*time.Second {
		t.Errorf("noticed after %s", took)
	}
	warned := func() bool {
		status, err := r.client.Status(t.Context())
		must(t, err)
		return strings.Contains(strings.Join(status.Warnings, " "), "replaced by another task")
	}
	r.await("a warning", warned)
	_, err = agent.Lease(t.Context())
	must(t, err)
	must(t, os.Remove(filepath.Dir(path)))
	must(t, os.Rename(filepath.Join(shared, "aside"), filepath.Dir(path)))
	r.await("no warning any more", func() bool { return !warned() })
}
