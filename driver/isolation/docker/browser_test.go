// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/shared/control"
)

// X23: a headed browser of the image maps its window with its own sandbox on: pages run
// in user namespaces below the container's, filtered once more, and nobody said
// --no-sandbox.
func TestX23BrowserSandbox(t *testing.T) {
	m := newManaged(t)
	k := m.start()
	has, err := k.Exec(bounded(t), control.ExecRequest{Argv: []string{"sh", "-c", "command -v chromium && command -v xdotool"}}, strings.NewReader(""), io.Discard, io.Discard, nil)
	must(t, err)
	if has.ExitCode != 0 {
		t.Skipf("needs an image with a browser: scripts/image/build.sh full TAG, and %s=TAG", imageVariable)
	}
	ctx, cancel := context.WithCancel(bounded(t))
	defer cancel()
	out, in := io.Pipe()
	ended := make(chan error, 1)
	go func() {
		_, err := k.Exec(ctx, control.ExecRequest{GUI: true, Argv: []string{"sh", "-c", `
			chromium --no-first-run --user-data-dir="$HOME/browser" about:blank >/tmp/browser.log 2>&1 &
			# It dies of a window that goes while it looks at it.
			until xdotool search --sync --onlyvisible --class chromium >/dev/null 2>&1; do kill -0 $! || exit; done
			echo mapped
			wait`}}, strings.NewReader(""), in, in, nil)
		_ = in.Close()
		ended <- err
	}()
	lines := bufio.NewScanner(out)
	lines.Scan()
	if lines.Text() != "mapped" {
		t.Fatalf("no window: %q %v", lines.Text(), lines.Err())
	}
	renderers := 0
	container := userNamespace(t, k.View().SessionPID)
	below, err := process.Descendants(k.View().SessionPID)
	must(t, err)
	for _, pid := range below {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if bytes.Contains(line, []byte("--no-sandbox")) {
			t.Errorf("pid %d has --no-sandbox", pid)
		}
		if !bytes.Contains(line, []byte("--type=renderer")) {
			continue
		}
		renderers++
		if userNamespace(t, pid) == container {
			t.Errorf("the renderer %d has the container's user namespace", pid)
		}
		if status := readStatus(t, pid); !slices.Equal(status["Seccomp"], []string{"2"}) || status["Seccomp_filters"][0] <= readStatus(t, k.View().SessionPID)["Seccomp_filters"][0] {
			t.Errorf("the renderer %d has %v filters", pid, status["Seccomp_filters"])
		}
	}
	if renderers == 0 {
		t.Error("no renderer runs")
	}
	cancel()
	go func() { _, _ = io.Copy(io.Discard, out) }()
	<-ended
}

func userNamespace(t *testing.T, pid int) string {
	t.Helper()
	name, err := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/user")
	must(t, err)
	return name
}
