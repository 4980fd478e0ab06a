// SPDX-License-Identifier: MPL-2.0

package host

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/shared/nomadplugin"
)

// gapRole makes the test's binary the agent or the plugin of TestKilledBeforeTheRecord.
const gapRole = "BOTSCREEN_TEST_GAP"

// plain is a driver that can be loaded and no more.
type plain struct{ nomadplugin.Driver }

func (plain) Info() nomadplugin.Info {
	return nomadplugin.Info{Name: "plain", Version: "1.0.0"}
}
func (plain) ConfigSchema() *nomadplugin.Spec                                         { return nil }
func (plain) SetConfig(context.Context, *nomadplugin.SetConfigRequest) error          { return nil }
func (plain) Init(context.Context) error                                              { return nil }
func (plain) Fingerprint(context.Context, func(*nomadplugin.Fingerprint) error) error { return nil }

// TestGapHelper is no test: it is those two. The agent does not come to the end of writing down
// where its plugin is.
func TestGapHelper(t *testing.T) {
	switch os.Getenv(gapRole) {
	case "agent":
		t.Setenv(gapRole, "plugin")
		h, err := Load(t.Context(), Options{
			Path: os.Args[0], Args: []string{"-test.run=^TestGapHelper$"},
			StoreReattach: func(r *Reattach) {
				_ = json.NewEncoder(os.Stdout).Encode(r)
				select {}
			},
		})
		if err == nil {
			_, err = h.Instance(t.Context())
		}
		t.Fatal(err)
	case "plugin":
		nomadplugin.Serve(plain{}, nomadplugin.NewLogger("plain"))
		os.Exit(0)
	default:
		t.Skip("it serves another test")
	}
}

// Issue 7: an agent that is killed after the first call of its plugin, and before it has written
// down where that is, leaves no plugin behind that its successor does not know.
func TestKilledBeforeTheRecord(t *testing.T) {
	agent := exec.Command(os.Args[0], "-test.run=^TestGapHelper$")
	agent.Env = append(os.Environ(), gapRole+"=agent")
	agent.Stderr = os.Stderr
	out, err := agent.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := agent.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = agent.Wait() }()
	defer func() { _ = agent.Process.Kill() }()
	var r Reattach
	if err := json.NewDecoder(out).Decode(&r); err != nil {
		t.Fatalf("the agent's record: %v", err)
	}
	plugin, err := unix.PidfdOpen(r.PID, 0)
	if err != nil {
		t.Fatalf("plugin %d: %v", r.PID, err)
	}
	defer unix.Close(plugin)
	if err := agent.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if err := awaitReadable(plugin, 30*time.Second); err != nil {
		_ = unix.PidfdSendSignal(plugin, unix.SIGKILL, nil, 0)
		t.Errorf("the plugin lives on: %v", err)
	}
}

// awaitReadable waits for a descriptor, for a pidfd the end of its process.
func awaitReadable(fd int, limit time.Duration) error {
	for deadline := time.Now().Add(limit); ; {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, int(max(0, time.Until(deadline)).Milliseconds()))
		switch {
		case err == unix.EINTR:
		case err != nil:
			return err
		case n == 0:
			return fmt.Errorf("not within %s", limit)
		default:
			return nil
		}
	}
}
