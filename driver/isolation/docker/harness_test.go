// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"archive/tar"
	"bytes"
	"context"
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/image"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/isolation/isolationtest"
)

// endpointVariable names an engine other than the node's, imageVariable an image with a
// desktop in it, browserVariable one that has a browser too.
const (
	endpointVariable = "BOTSCREEN_TEST_DOCKER"
	imageVariable    = "BOTSCREEN_TEST_IMAGE"
	browserVariable  = "BOTSCREEN_TEST_BROWSER_IMAGE"
	testImage        = "botscreen-desktop:test"
)

// limit bounds every wait; none takes nearly as long.
const limit = 30 * time.Second

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// boundary is one on the engine there is. Without one the test is skipped.
func boundary(t *testing.T) *Boundary {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root: every screen gets a uid of its own")
	}
	endpoint := os.Getenv(endpointVariable)
	if endpoint == "" {
		endpoint = DefaultEndpoint
	}
	if _, err := os.Stat(strings.TrimPrefix(endpoint, "unix://")); err != nil {
		t.Skipf("needs a docker engine: there is none at %s (%s names another)", endpoint, endpointVariable)
	}
	return boundaryAt(t, endpoint)
}

func boundaryAt(t *testing.T, endpoint string) *Boundary {
	t.Helper()
	b, err := New(endpoint, "tests-"+newInstance())
	must(t, err)
	t.Cleanup(func() { _ = b.Close() })
	return b
}

// emptyImage has nothing but what its Dockerfile instructions say: the session needs
// no program of an image until a desktop starts.
func emptyImage(t *testing.T, b *Boundary, changes ...string) string {
	t.Helper()
	var archive bytes.Buffer
	w := tar.NewWriter(&archive)
	for _, dir := range []string{"tmp", "etc"} {
		must(t, w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o1777}))
	}
	must(t, w.Close())
	tag := "botscreen-test-" + newInstance() + ":empty"
	answer, err := b.api.ImageImport(t.Context(), image.ImportSource{Source: &archive, SourceName: "-"}, tag, image.ImportOptions{Changes: changes})
	must(t, err)
	_, err = io.Copy(io.Discard, answer)
	must(t, err)
	_ = answer.Close()
	t.Cleanup(func() {
		_, err := b.api.ImageRemove(context.Background(), tag, image.RemoveOptions{Force: true})
		if err != nil {
			t.Error(err)
		}
	})
	return tag
}

func TestMain(m *testing.M) { isolationtest.Main(m) }

func newInstance() string                                 { return isolationtest.NewInstance() }
func newOrder(t *testing.T, image string) isolation.Order { return isolationtest.NewOrder(t, image) }
func bounded(t *testing.T) context.Context                { return isolationtest.Bounded(t) }
func awaitDone(t *testing.T, s isolation.Sandbox)         { isolationtest.AwaitDone(t, s) }
func mountsBelow(t *testing.T, dir string) []string       { return isolationtest.MountsBelow(t, dir) }

func launched(t *testing.T, b *Boundary, order isolation.Order) *sandbox {
	t.Helper()
	return isolationtest.Launch(t, b, order).(*sandbox)
}

// containersOf are the containers that carry a run's instance, in any state.
func containersOf(t *testing.T, b *Boundary, instance string) []string {
	t.Helper()
	all, err := b.api.ContainerList(bounded(t), container.ListOptions{All: true, Filters: filters.NewArgs(filters.Arg("label", labelInstance+"="+instance))})
	must(t, err)
	var names []string
	for _, c := range all {
		names = append(names, "container "+c.Names[0])
	}
	return names
}

func containerOf(t *testing.T, b *Boundary, instance string) string {
	t.Helper()
	names := containersOf(t, b, instance)
	if len(names) != 1 {
		t.Fatalf("containers %v, want one", names)
	}
	return strings.TrimPrefix(names[0], "container /")
}

// desktopImage has what a screen needs. Without it the test is skipped.
func desktopImage(t *testing.T) string {
	t.Helper()
	reference := os.Getenv(imageVariable)
	if reference == "" {
		reference = testImage
	}
	if _, err := boundary(t).Inspect(t.Context(), reference); err != nil {
		t.Skipf("needs the image %s: scripts/image/build.sh desktop %s (%v)", reference, reference, err)
	}
	return reference
}

// DOC-09 among others: see inside.
func TestConformance(t *testing.T) {
	b, reference := boundary(t), desktopImage(t)
	isolationtest.Run(t, isolationtest.Suite{
		Image: reference, BrowserImage: os.Getenv(browserVariable), Inside: inside(t),
		New: func(t *testing.T) isolation.Boundary { return boundary(t) },
		Left: func(t *testing.T, order isolation.Order) []string {
			return append(containersOf(t, b, order.Instance), mountsBelow(t, order.Home)...)
		},
		Destroy: destroy(b),
	})
}

// inside is what scripts say in a container, wherever its engine is.
func inside(t *testing.T) map[string]string {
	t.Helper()
	// A kernel gives nobody in a chroot a user namespace, an engine's containers neither:
	// see EPERM in clone(2).
	namespace := "works\n"
	if out, err := exec.Command("unshare", "--user", "true").CombinedOutput(); err != nil {
		t.Logf("this node itself has no user namespaces, so none is wanted inside: %s", out)
		namespace = ""
	}
	return map[string]string{
		"grep NoNewPrivs /proc/self/status":                                                                  "NoNewPrivs:\t1\n",
		"grep CapBnd /proc/self/status":                                                                      "CapBnd:\t0000000000000000\n",
		"unshare --user --map-root-user echo works":                                                          namespace, // X23
		"unshare --user --map-root-user sh -c 'mount -t tmpfs none /mnt && echo mounted'":                    "",        // X23
		"unshare --user --map-root-user --mount --propagation unchanged mount --bind / /mnt && echo mounted": "",
		"df -m --output=size /dev/shm | tail -n 1 | tr -d ' '":                                               "1024\n", // DOC-09
		"dd if=/dev/zero of=/dev/shm/x bs=1M count=200 2>/dev/null && echo fits; rm -f /dev/shm/x":           "fits\n",
		"cat /proc/1/environ >/dev/null 2>&1 || echo refused":                                                "refused\n", // X13
		"env | grep -i -e docker -e LD_":                                                                     "",
		"tail -n +3 /proc/net/dev | cut -d: -f1 | tr -d ' '":                                                 "lo\n",
		"stat -c %A%u /tmp/.X11-unix":                                                                        "drwxrwxrwt0\n",
		"hostname | cut -d- -f1; cat /etc/machine-id | wc -c":                                                "screen\n33\n",
	}
}

// destroy removes a container as somebody outside would.
func destroy(b *Boundary) func(*testing.T, isolation.Record) {
	return func(t *testing.T, record isolation.Record) {
		must(t, b.api.ContainerRemove(bounded(t), record.Container, container.RemoveOptions{Force: true}))
	}
}

// P10: an image without a desktop is named with what it lacks.
func TestP10ImageWithoutDesktop(t *testing.T) {
	b := boundary(t)
	isolationtest.RunWithoutDesktop(t, isolationtest.Suite{
		Image: emptyImage(t, b),
		New:   func(t *testing.T) isolation.Boundary { return boundary(t) },
		Left:  func(t *testing.T, order isolation.Order) []string { return containersOf(t, b, order.Instance) },
	}, "Xvnc")
}

// pause pauses a container as somebody outside would. On a busy node with cgroup v1 runc
// gives up before the kernel has come to every thread, thaws the container and says
// "unable to freeze" (libcontainer/cgroups/fs/freezer.go): whoever wants it asks again.
func pause(t *testing.T, b *Boundary, name string) {
	t.Helper()
	ctx := bounded(t)
	err := b.api.ContainerPause(ctx, name)
	for err != nil && ctx.Err() == nil && strings.Contains(err.Error(), "unable to freeze") {
		err = b.api.ContainerPause(ctx, name)
	}
	must(t, err)
}

// killed is what SIGKILL looks like to whoever asks for a status.
var killed = isolation.Status{Code: 128 + int(unix.SIGKILL), Signal: int(unix.SIGKILL)}
