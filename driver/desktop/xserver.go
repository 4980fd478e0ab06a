// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
)

// xserver is a running Xvnc.
type xserver struct {
	*child
	hidden error     // why it or what it starts can be reached; nil when it cannot
	gate   *execGate // nil where the kernel has none
}

// startXServer starts Xvnc under the socket filter (rule X0) and, where the
// kernel allows, not dumpable (rule X2), and waits until it accepts clients.
//
// It is forked from a thread that carries the filter and no_new_privs and ends
// afterwards, so no wrapper program has to be executed in between.
func startXServer(ctx context.Context, l *launcher, p Program) (*xserver, error) {
	ready, signalReady, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	defer ready.Close()
	x, err := forkXServer(l, p, signalReady)
	_ = signalReady.Close() // the child has its own; ours would hide its end
	if err != nil {
		return nil, err
	}
	if err := awaitDisplay(ctx, ready, x, l.logs); err != nil {
		return x, err
	}
	if x.gate != nil {
		x.gate.shut.Store(true)
	}
	return x, nil
}

func forkXServer(l *launcher, p Program, signalReady *os.File) (*xserver, error) {
	type result struct {
		x   *xserver
		err error
	}
	forked := make(chan result, 1)
	go func() {
		// Never unlocked: the thread must not run anything else, and ends with
		// this goroutine.
		runtime.LockOSThread()
		x, err := forkConfined(l, p, signalReady)
		forked <- result{x, err}
	}()
	r := <-forked
	return r.x, r.err
}

func forkConfined(l *launcher, p Program, signalReady *os.File) (*xserver, error) {
	var none unix.Sigset_t
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &none, nil); err != nil {
		return nil, fmt.Errorf("start %s: unblock signals: %w", p.Name, err)
	}
	if err := confineThread(); err != nil {
		return nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	x, traced, err := forkTraced(l, p, signalReady)
	if err == nil && traced == nil {
		return x, nil
	}
	if err != nil && !errors.Is(err, unix.EPERM) && !errors.Is(err, unix.ENOSYS) && !errors.Is(err, unix.EACCES) {
		return nil, err
	}
	// Tracing is forbidden here (Yama's ptrace_scope 2 and 3, a seccomp filter
	// of the sandbox) or went wrong: start without, and let the fence say so.
	reason := errors.Join(traced, err)
	x, err = forkPlain(l, p, signalReady)
	if err != nil {
		return nil, err
	}
	x.hidden = fmt.Errorf("%s could not be hidden: %w", p.Name, reason)
	return x, nil
}

// forkTraced starts Xvnc stopped, seals it and lets it go. A trace that failed
// is reported apart: the process is gone then.
func forkTraced(l *launcher, p Program, signalReady *os.File) (x *xserver, traced, err error) {
	process, drained, err := l.fork(p, signalReady, true)
	if err != nil {
		return nil, nil, err
	}
	gate, weak, traced := seal(process.Pid)
	if traced != nil {
		_ = process.Kill()
		_, _ = process.Wait()
		l.reaper.disown(process.Pid)
		return nil, fmt.Errorf("seal %s: %w", p.Name, traced), nil
	}
	x = l.adopt(p, process, drained)
	x.gate = gate
	if gate != nil {
		go gate.run()
	} else {
		x.hidden = fmt.Errorf("programs that %s starts can be reached: %w", p.Name, weak)
	}
	return x, nil, nil
}

func forkPlain(l *launcher, p Program, signalReady *os.File) (*xserver, error) {
	process, drained, err := l.fork(p, signalReady, false)
	if err != nil {
		return nil, err
	}
	return l.adopt(p, process, drained), nil
}

// fork starts p from the calling thread, which lends it its filter. With
// traced it stops at its exec.
func (l *launcher) fork(p Program, signalReady *os.File, traced bool) (*os.Process, <-chan struct{}, error) {
	out, drained, err := l.logs.pipe(p.Name)
	if err != nil {
		return nil, nil, err
	}
	defer out.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	defer null.Close()
	var process *os.Process
	err = l.reaper.own(func() (int, error) {
		var err error
		process, err = os.StartProcess(p.Path, append([]string{p.Path}, p.Args...), &os.ProcAttr{
			Dir: l.dir, Env: p.Env, Files: []*os.File{null, out, out, signalReady},
			Sys: &unix.SysProcAttr{Setsid: true, Ptrace: traced},
		})
		if err != nil {
			return 0, err
		}
		return process.Pid, nil
	})
	if err != nil {
		return nil, nil, fmt.Errorf("start %s: %w", p.Name, err)
	}
	return process, drained, nil
}

func (l *launcher) adopt(p Program, started *os.Process, drained <-chan struct{}) *xserver {
	c := &child{
		name: p.Name, pid: started.Pid, process: started, started: time.Now(),
		exited: make(chan struct{}), drained: drained,
	}
	go c.await(func() (*os.ProcessState, error) {
		defer l.reaper.disown(started.Pid)
		process.AwaitExit(started.Pid)
		return started.Wait()
	})
	return &xserver{child: c}
}

// awaitDisplay reads the line that Xvnc writes to -displayfd when it is ready.
// It reads up to the newline: Xvnc writes number and newline apart and dies
// when it cannot write the second.
func awaitDisplay(ctx context.Context, ready *os.File, x *xserver, l *logs) error {
	stop := context.AfterFunc(ctx, func() { _ = ready.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	_, err := bufio.NewReader(ready).ReadString('\n')
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return context.Cause(ctx)
	}
	// End of file: it has closed the descriptor, or is dead.
	select {
	case <-x.exited:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	return x.died(l)
}

// dispensable are options that older or newer versions may not know and whose
// absence weakens nothing, with the number of arguments each takes up.
var dispensable = map[string]int{"-UseBlacklist=0": 1, "-noreset": 1, "-dpms": 1, "v": 1, "-MaxCutText": 2}

// launchServer starts Xvnc, without the dispensable options it does not know.
// With an error the server may be there, too, and is to be ended.
func (d *Desktop) launchServer(ctx context.Context, p Program) (*xserver, error) {
	for {
		x, err := startXServer(ctx, d.launcher, p)
		option := unknownOption(err)
		at := slices.Index(p.Args, option)
		if dispensable[option] == 0 || at < 0 {
			return x, err
		}
		if x != nil && x.gate != nil {
			_ = x.gate.close() // that server is dead
		}
		p.Args = slices.Delete(slices.Clone(p.Args), at, at+dispensable[option])
	}
}

// unknownOption returns the option that Xvnc ended over, see its
// ProcessCommandLine; empty if that was not the reason.
func unknownOption(err error) string {
	var died *DiedError
	if !errors.As(err, &died) {
		return ""
	}
	for _, line := range died.LastLines {
		if _, option, found := strings.Cut(line, "Unrecognized option: "); found {
			return strings.TrimSpace(option)
		}
	}
	return ""
}

// asTaken turns the death of an Xvnc that found its number in use into an error
// of its own.
func asTaken(err error, display int) error {
	var died *DiedError
	if !errors.As(err, &died) {
		return err
	}
	for _, line := range died.LastLines {
		for _, sign := range []string{
			"Server is already active for display",
			"Cannot establish any listening sockets", // lock file gone, sockets bound
			"Could not create lock file", "Can't read lock file",
		} {
			if strings.Contains(line, sign) {
				return &DisplayTakenError{Display: display, Detail: line}
			}
		}
	}
	return err
}
