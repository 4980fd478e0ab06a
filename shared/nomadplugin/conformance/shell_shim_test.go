// SPDX-License-Identifier: MPL-2.0

package conformance_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// shimPlan is what a shim is told on its standard input.
type shimPlan struct {
	Dir     string   `json:"dir"`
	Command string   `json:"command"`
	UID     int      `json:"uid"`
	Env     []string `json:"env"`
	Cwd     string   `json:"cwd"`
}

const shimFlag = "conformance-shim"

// launchShim starts this binary as the parent of a task. The shim inherits the lock and the logs, and
// answers with its identity when the command runs.
func launchShim(plan shimPlan, lock *os.File, logs []*os.File) (identity shimIdentity, err error) {
	self, err := os.Executable()
	if err != nil {
		return identity, err
	}
	input, err := json.Marshal(plan)
	if err != nil {
		return identity, err
	}
	cmd := exec.Command(self, shimFlag)
	cmd.Env = []string{}
	cmd.Stdin = strings.NewReader(string(input))
	cmd.ExtraFiles = append([]*os.File{lock}, logs...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return identity, err
	}
	if err := cmd.Start(); err != nil {
		return identity, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	_ = out.Close()
	if err == nil {
		err = json.Unmarshal(line, &identity)
	}
	if err != nil || identity.Lead == 0 {
		_ = cmd.Wait()
		return identity, fmt.Errorf("start %q: %s", plan.Command, strings.TrimSpace(string(line)))
	}
	// The end of the shim is watched and reaped by pid.
	return identity, cmd.Process.Release()
}

// runShim is the shim's main.
func runShim() error {
	var plan shimPlan
	if err := json.NewDecoder(os.Stdin).Decode(&plan); err != nil {
		return err
	}
	if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	// Handled, not ignored: what is ignored here would be ignored in the task. The plugin may be gone
	// before it has read the answer.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP, syscall.SIGPIPE)
	// The lock is inherited as descriptor 3 without close-on-exec; keep it from the task.
	unix.CloseOnExec(3)
	identity := shimIdentity{Dir: plan.Dir, Shim: os.Getpid(), Boot: bootID(), UID: plan.UID, Started: time.Now()}
	var err error
	if identity.ShimStart, err = procStart(identity.Shim); err != nil {
		return err
	}
	if err := writeJSON(filepath.Join(plan.Dir, "shim"), identity); err != nil {
		return err
	}
	pid, err := startLead(plan)
	if err != nil {
		fmt.Println(err)
		return err
	}
	identity.Lead = pid
	_ = json.NewEncoder(os.Stdout).Encode(identity)
	_ = os.Stdout.Close()
	return superviseLead(plan.Dir, pid, stop)
}

func startLead(plan shimPlan) (int, error) {
	id := uint32(plan.UID)
	process, err := os.StartProcess("/bin/sh", []string{"sh", "-c", plan.Command}, &os.ProcAttr{
		Dir: plan.Cwd, Env: plan.Env,
		Files: []*os.File{nil, os.NewFile(4, "stdout"), os.NewFile(5, "stderr")},
		Sys:   &syscall.SysProcAttr{Setsid: true, Credential: &syscall.Credential{Uid: id, Gid: id}},
	})
	if err != nil {
		return 0, err
	}
	pid := process.Pid
	return pid, process.Release()
}

// superviseLead reaps everything until the lead process is gone, then ends what is left and records
// the lead's exit.
func superviseLead(dir string, lead int, stop <-chan os.Signal) error {
	killed := make(chan struct{})
	go func() {
		<-stop
		close(killed)
		killDescendants()
	}()
	result := struct {
		Code   int `json:"exit_code"`
		Signal int `json:"signal"`
	}{}
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, 0, nil)
		switch {
		case errors.Is(err, syscall.EINTR):
			continue
		case err != nil: // nobody is left
			return writeJSON(filepath.Join(dir, "exit"), result)
		case pid != lead:
			continue
		}
		result.Code = status.ExitStatus()
		if status.Signaled() {
			result.Code, result.Signal = 128+int(status.Signal()), int(status.Signal())
		}
		select {
		case <-killed:
		default:
			killDescendants()
		}
	}
}

// killDescendants goes on until a pass finds nobody: children may be born meanwhile. As subreaper the
// shim is the parent of everything that lost its own.
func killDescendants() {
	for found := true; found; time.Sleep(2 * time.Millisecond) {
		found = false
		for _, pid := range descendants(os.Getpid()) {
			found = true
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

func descendants(pid int) (all []int) {
	threads, _ := os.ReadDir("/proc/" + strconv.Itoa(pid) + "/task")
	for _, thread := range threads {
		children, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/task/" + thread.Name() + "/children")
		for _, field := range strings.Fields(string(children)) {
			if child, err := strconv.Atoi(field); err == nil {
				if _, err := procStart(child); err == nil {
					all = append(all, child)
				}
				all = append(all, descendants(child)...)
			}
		}
	}
	return all
}

func writeJSON(path string, value any) error {
	data, err := json.Marshal(value)
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", data, 0o600); err != nil {
		return err
	}
	return os.Rename(path+".new", path)
}
