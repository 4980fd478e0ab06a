// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/image"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// says runs a script on the screen and returns what it says and its code.
func says(t *testing.T, k *task.Task, script string) (string, int) {
	t.Helper()
	var out strings.Builder
	result, err := k.Exec(bounded(t), control.ExecRequest{Argv: []string{"sh", "-c", script}}, strings.NewReader(""), &out, &out, nil)
	must(t, err)
	return out.String(), result.ExitCode
}

// X10: a desktop puts a link to the engine's socket wherever its own sockets are or were.
// Nothing on the node ever opens a path of a sandbox's, so what is shown stays the X
// server's, also to the next supervisor.
func TestX10LinkToTheEngine(t *testing.T) {
	m := newManaged(t)
	k := m.start()
	client := control.NewClient(control.Unix(k.View().OperatorSocket))
	defer client.Close()
	dirs, err := filepath.Glob(filepath.Join(m.settings.RunDir, "*", "x"))
	must(t, err)
	if len(dirs) != 1 {
		t.Fatalf("the run's directories are %v", dirs)
	}
	engine := strings.TrimPrefix(m.b.endpoint, "unix://")
	said, _ := says(t, k, fmt.Sprintf(`cd '%s' && for name in rfb.sock rfb display env s; do rm -rf "$name"; ln -s '%s' "$name" && echo "$name"; done`, dirs[0], engine))
	if !strings.Contains(said, "rfb.sock\n") {
		t.Fatalf("no link was made: %q", said)
	}
	if target, err := os.Readlink(filepath.Join(dirs[0], "rfb.sock")); err != nil || target != engine {
		t.Fatalf("the link leads to %q, %v", target, err)
	}
	look := func(when string) {
		t.Helper()
		shot, err := client.Screenshot(bounded(t), control.ScreenshotRequest{})
		if err != nil || len(shot.Data) < 1000 {
			t.Errorf("%s: a picture of %d bytes, %v", when, len(shot.Data), err)
		}
	}
	look("with links")
	before := k.View().SupervisorPID
	must(t, unix.Kill(before, unix.SIGKILL))
	awaitSupervisor(t, k, client, before) // which has to ask for all connections anew
	look("by the next supervisor")
	if inside, _ := says(t, k, "ls -l /var/run/docker.sock '"+engine+"' 2>&1 | grep -c '^s'"); strings.TrimSpace(inside) != "0" {
		t.Errorf("an engine's socket is inside: %s", inside)
	}
}

// awaitSupervisor waits until another supervisor than old says that the screen is ready.
func awaitSupervisor(t *testing.T, k *task.Task, client *control.Client, old int) {
	t.Helper()
	ctx := bounded(t)
	for ctx.Err() == nil {
		if k.View().SupervisorPID == old {
			runtime.Gosched()
			continue
		}
		for e, err := range client.Events(ctx, 0) {
			if err != nil {
				break
			}
			if e.State == screen.Ready {
				return
			}
		}
	}
	t.Fatal("no supervisor shows the screen")
}

// A file system inside that is full ends nothing. Who wakes the desktop in it is told what
// could not be written, and it wakes when there is room.
func TestFullDiskInside(t *testing.T) {
	m := newManaged(t)
	m.restart(withVolume(t, m.b, desktopImage(t), "/tmp"))
	k := m.start()
	client := control.NewClient(control.Unix(k.View().OperatorSocket))
	defer client.Close()
	if said, code := says(t, k, "cat /dev/zero > /tmp/fill"); code == 0 || !strings.Contains(said, "No space left") {
		t.Fatalf("it is not full: %d %s", code, said)
	}
	if shot, err := client.Screenshot(bounded(t), control.ScreenshotRequest{}); err != nil || len(shot.Data) < 1000 {
		t.Errorf("a picture of %d bytes, %v", len(shot.Data), err)
	}
	must(t, client.Sleep(bounded(t)))
	err := client.Wake(bounded(t))
	if err == nil || !strings.Contains(err.Error(), "/tmp/") {
		t.Errorf("woken on a full disk: %v", err)
	}
	if !k.View().Running {
		t.Errorf("it counts as ended: %+v", k.View())
	}
	must(t, os.Remove(fmt.Sprintf("/proc/%d/root/tmp/fill", k.View().SessionPID)))
	must(t, client.Wake(bounded(t)))
	if said, code := says(t, k, "echo up"); code != 0 || said != "up\n" {
		t.Errorf("%d %s", code, said)
	}
}

// withVolume is an image that asks for a volume, of which a screen gets a small one.
func withVolume(t *testing.T, b *Boundary, reference, volume string) string {
	t.Helper()
	made, err := b.api.ContainerCreate(bounded(t), &container.Config{Image: reference, Cmd: []string{"true"}}, nil, nil, nil, "")
	must(t, err)
	defer func() { must(t, b.discard(bounded(t), made.ID)) }()
	tag := "botscreen-test-" + newInstance() + ":volume"
	_, err = b.api.ContainerCommit(bounded(t), made.ID, container.CommitOptions{Reference: tag, Changes: []string{"VOLUME " + volume}})
	must(t, err)
	t.Cleanup(func() {
		_, err := b.api.ImageRemove(context.Background(), tag, image.RemoveOptions{Force: true})
		if err != nil {
			t.Error(err)
		}
	})
	return tag
}
