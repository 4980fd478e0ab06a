// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

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
	session := k.View().SessionPID
	for end := time.Now().Add(limit / 3); !anyConfined(t, session); runtime.Gosched() {
		if time.Now().After(end) {
			var said strings.Builder
			_, _ = k.Exec(bounded(t), control.ExecRequest{Argv: []string{"sh", "-c", "ps -eo pid,args | cut -c1-150; tail -n 6 /tmp/browser.log"}}, strings.NewReader(""), &said, &said, nil)
			t.Fatalf("no renderer runs in its sandbox:\n%s", &said)
		}
	}
	cancel()
	go func() { _, _ = io.Copy(io.Discard, out) }()
	<-ended
}

// anyConfined looks at the renderers there are: each is in another user namespace than
// the container, and has filters of its own upon those it inherited. A renderer puts them
// on soon after its start and tells nobody; spare ones come and go.
func anyConfined(t *testing.T, session int) bool {
	t.Helper()
	below, err := process.Descendants(session)
	must(t, err)
	container, inherited := confinement(session)
	for _, pid := range below { // the session has put one upon some of its threads
		if _, filters := confinement(pid); filters > 0 {
			inherited = min(inherited, filters)
		}
	}
	found := false
	for _, pid := range below {
		line, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
		if bytes.Contains(line, []byte("--no-sandbox")) {
			t.Errorf("pid %d has --no-sandbox", pid)
		}
		if !bytes.Contains(line, []byte("--type=renderer")) {
			continue
		}
		namespace, filters := confinement(pid)
		if filters > 0 && namespace == container {
			t.Errorf("the renderer %d has the container's user namespace", pid)
		}
		found = found || filters > inherited
	}
	return found
}

// confinement is a process' user namespace and how many seccomp filters it has; nothing
// of one that is gone.
func confinement(pid int) (namespace string, filters int) {
	dir := "/proc/" + strconv.Itoa(pid)
	namespace, _ = os.Readlink(dir + "/ns/user")
	status, _ := os.ReadFile(dir + "/status")
	for line := range strings.Lines(string(status)) {
		if n, ok := strings.CutPrefix(line, "Seccomp_filters:"); ok {
			filters, _ = strconv.Atoi(strings.TrimSpace(n))
		}
	}
	return namespace, filters
}
