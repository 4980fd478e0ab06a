// SPDX-License-Identifier: MPL-2.0

package docker

import (
	"bufio"
	"context"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// filler forks until it cannot, says so, and takes every place that becomes free from then
// on: programs of a desktop come and go. A shell would end at the first fork that fails.
const filler = `
	$| = 1;
	for (;;) {
		my $child = fork;
		if (!defined $child) {
			print "full\n" unless $said++;
			select undef, undef, undef, 0.001;
		} elsif (!$child) {
			sleep 300 while 1;
		}
	}`

// DOC-01: in a container that is full of processes nothing is taken for dead. A command is
// refused in words and at once, the picture still comes, and when there is room again
// everything goes on.
func TestDOC01FullOfProcesses(t *testing.T) {
	m := newManaged(t)
	request := m.request()
	request.Limits.PidsMax = 150
	k, err := m.Start(bounded(t), request)
	must(t, err)
	t.Cleanup(func() { _ = k.Destroy(bounded(t), true) })
	client := control.NewClient(control.Unix(k.View().OperatorSocket))
	defer client.Close()

	ctx, leave := context.WithCancel(bounded(t))
	defer leave()
	out, in := io.Pipe()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = k.Exec(ctx, control.ExecRequest{Argv: []string{"perl", "-e", filler}}, strings.NewReader(""), in, io.Discard, nil)
		_ = in.Close()
	}()
	lines := bufio.NewScanner(out)
	if lines.Scan(); lines.Text() != "full" {
		t.Fatalf("it is not full: %q", lines.Text())
	}
	// A program of the desktop may end and a command get its place before the filler does.
	var began time.Time
	var result control.ExecResult
	for end := time.Now().Add(limit); err == nil; {
		if time.Now().After(end) {
			t.Fatal("in a container that is filled all the time every command finds a place")
		}
		began = time.Now()
		result, err = k.Exec(bounded(t), control.ExecRequest{Argv: []string{"true"}}, strings.NewReader(""), io.Discard, io.Discard, nil)
	}
	if took := time.Since(began); !strings.Contains(err.Error(), "Cannot run the command") || !strings.Contains(err.Error(), "processes") || took > limit/3 {
		t.Errorf("a command in a full container: %+v, %v, after %s", result, err, took)
	}
	if shot, err := client.Screenshot(bounded(t), control.ScreenshotRequest{}); err != nil || len(shot.Data) < 1000 {
		t.Errorf("a picture of a full container: %d bytes, %v", len(shot.Data), err)
	}
	if view := k.View(); !view.Running {
		t.Errorf("it counts as dead: %+v", view)
	}
	leave() // its processes end with the command
	<-ended
	for end := time.Now().Add(limit); ; {
		result, err := k.Exec(bounded(t), control.ExecRequest{Argv: []string{"true"}}, strings.NewReader(""), io.Discard, io.Discard, nil)
		if err == nil && result.ExitCode == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("nothing runs although there is room: %+v, %v; the task: %+v", result, err, k.Exit())
		}
	}
}

// X15: a screen that has used up what the kernel gives its uid, inotify instances here,
// takes nothing from another one: no two screens have the same uid.
func TestX15QuotasAreAScreensOwn(t *testing.T) {
	m := newManaged(t)
	k := m.start()
	uid := k.View().Account.UID
	used := make(chan int, 1)
	release := make(chan struct{})
	defer close(release)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread, which is somebody else now, ends with the goroutine
		// Only this thread: what the kernel counts is charged to it.
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, uintptr(uid), uintptr(uid), uintptr(uid)); errno != 0 {
			used <- -int(errno)
			return
		}
		var held []int
		for {
			fd, err := unix.InotifyInit1(unix.IN_CLOEXEC)
			if err != nil {
				break
			}
			held = append(held, fd)
		}
		used <- len(held)
		<-release
		for _, fd := range held {
			_ = unix.Close(fd)
		}
	}()
	if n := <-used; n <= 0 {
		t.Fatalf("the uid's inotify instances are not used up: %d", n)
	}
	request := m.request()
	config := screen.Defaults()
	config.Profile, config.Isolation, config.Geometry, config.MinFreeMemoryMB = "other", "docker", "800x600", 64
	spec, err := config.Validate()
	must(t, err)
	request.Spec = spec
	other, err := m.Start(bounded(t), request)
	if err != nil {
		t.Fatalf("the other screen: %v", task.Explain(err))
	}
	t.Cleanup(func() { _ = other.Destroy(bounded(t), true) })
	if theirs := other.View().Account.UID; theirs == uid || theirs == 0 {
		t.Errorf("both screens have uid %d", theirs)
	}
	client := control.NewClient(control.Unix(other.View().OperatorSocket))
	defer client.Close()
	if _, err := client.Take(bounded(t), control.TakeRequest{Viewer: "ann"}); err != nil {
		t.Errorf("take: %v", err)
	}
	if _, err := client.Release(bounded(t), control.ReleaseRequest{Viewer: "ann"}); err != nil {
		t.Errorf("hand back: %v", err)
	}
	if shot, err := client.Screenshot(bounded(t), control.ScreenshotRequest{}); err != nil || len(shot.Data) < 1000 {
		t.Errorf("a picture of %d bytes, %v", len(shot.Data), err)
	}
}
