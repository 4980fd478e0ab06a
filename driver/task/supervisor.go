// SPDX-License-Identifier: MPL-2.0

package task

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/screen"
)

// supervisorConfig is what `nomad-driver-botscreen supervise` reads from descriptor 3.
// It stands here and in driver/supervise on purpose: this package executes the
// supervisor and must not import it, or a screen could not outlive the driver. A test
// of the driver holds the two forms together.
type supervisorConfig struct {
	Namespace       string                 `json:"namespace"`
	Profile         screen.Profile         `json:"profile"`
	Isolation       screen.Isolation       `json:"isolation"`
	Instance        string                 `json:"instance"`
	ImageDigest     string                 `json:"image_digest,omitempty"`
	Session         process.Identity       `json:"session"`
	Geometry        screen.Geometry        `json:"geometry"`
	Exec            screen.ExecPolicy      `json:"exec"`
	Takeover        screen.TakeoverPolicy  `json:"takeover"`
	KeyboardLayout  string                 `json:"keyboard_layout,omitempty"`
	Idle            screen.IdlePolicy      `json:"idle"`
	Deadline        time.Duration          `json:"deadline_ns"`
	MinFreeMemoryMB int                    `json:"min_free_memory_mb"`
	FirstDisplay    int                    `json:"first_display"`
	LastDisplay     int                    `json:"last_display"`
	AgentSocket     screen.AgentSocket     `json:"agent_socket"`
	AgentDoor       string                 `json:"agent_door,omitempty"`
	Viewer          *screen.ViewerListener `json:"viewer,omitempty"`
	ViewerCert      []byte                 `json:"viewer_cert,omitempty"`
	ViewerKey       []byte                 `json:"viewer_key,omitempty"`
	Group           string                 `json:"group,omitempty"`
	Brake           *cgroup.BrakeForm      `json:"brake,omitempty"`
	Warnings        []string               `json:"warnings,omitempty"`
	Known           bool                   `json:"known,omitempty"`
	LeaseFloor      uint64                 `json:"lease_floor,omitempty"`
	SharedPIDs      bool                   `json:"shared_pids"`
	Plan            *dialhome.Plan         `json:"plan,omitempty"`
}

// supervisor is a running supervisor process.
type supervisor struct {
	identity process.Identity
	handle   *process.Handle
}

// launchSupervisor starts a supervisor for the run: under its own uid, with its
// directory and sockets as descriptors, and nothing of the driver's environment. With a
// plan it starts the desktop, without it adopts the session.
func (m *Manager) launchSupervisor(r *runRecord, p places, plan *dialhome.Plan) (*supervisor, error) {
	files, err := m.supervisorFiles(r, p, plan)
	defer closeAll(files)
	if err != nil {
		return nil, fmt.Errorf("launch supervisor: %w", err)
	}
	null, err := os.OpenFile(os.DevNull, os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("launch supervisor: %w", err)
	}
	defer null.Close()
	cmd := exec.Command(m.binary, "supervise")
	cmd.Env = []string{"PATH=/usr/bin:/bin"}
	cmd.Dir = "/"
	cmd.Stdin, cmd.Stdout, cmd.Stderr = null, null, null
	cmd.ExtraFiles = files
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if privileged() {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: r.SupervisorUID, Gid: r.SupervisorUID, Groups: nil}
	}
	if err := startUnprivileged(cmd); err != nil {
		return nil, fmt.Errorf("launch supervisor: %w", err)
	}
	spare(cmd.Process.Pid)
	id, err := process.Observe(cmd.Process.Pid)
	if err == nil {
		var handle *process.Handle
		if handle, err = process.Open(id); err == nil {
			go func() { _ = cmd.Wait() }() // reap; its end is seen through the handle
			return &supervisor{identity: id, handle: handle}, nil
		}
	}
	_ = cmd.Process.Kill()
	_ = cmd.Wait()
	return nil, fmt.Errorf("launch supervisor: %w", err)
}

// supervisorScore keeps the kernel off a supervisor for as long as there is anything else:
// it is small, and knows who holds the screen.
const supervisorScore = -500

// spare gives a supervisor its score, or that of any program where the driver may not
// promise it more.
func spare(pid int) {
	if process.ScoreOOM(pid, supervisorScore) != nil {
		_ = process.ScoreOOM(pid, 0)
	}
}

// startUnprivileged starts cmd with no_new_privs. The flag belongs to a thread and is
// inherited: one thread sets it, starts the process and is given up.
func startUnprivileged(cmd *exec.Cmd) error {
	result := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
		if err == nil {
			err = cmd.Start()
		}
		result <- err
	}()
	return <-result
}

// supervisorFiles are the descriptors a supervisor inherits, in their order. What is
// returned with an error is to be closed too.
func (m *Manager) supervisorFiles(r *runRecord, p places, plan *dialhome.Plan) ([]*os.File, error) {
	floor, err := m.leaseFloor(r.id())
	if err != nil {
		return nil, err
	}
	door, warnings, err := m.agentDoor(r, plan == nil)
	if err != nil {
		return nil, err
	}
	viewer, warning, err := r.openViewerDoor(plan == nil)
	if err != nil {
		return door.files(), err
	}
	if warning != "" {
		warnings = append(slices.Clone(warnings), warning)
	}
	brake, warning := m.openBrake(r)
	if warning != "" {
		warnings = append(slices.Clone(warnings), warning)
	}
	inherited := append(door.files(), viewer.listener) // nil ones leave their number free
	inherited = append(inherited, brake.files...)
	config, err := memfd("supervisor", supervisorConfig{
		Namespace: r.Namespace, Profile: r.Profile, Isolation: r.Isolation, Instance: r.Instance, ImageDigest: r.ImageDigest,
		Session: r.Sandbox.Session, Geometry: r.Geometry, Exec: r.Exec, Warnings: warnings,
		Takeover: r.Takeover, KeyboardLayout: r.KeyboardLayout, AgentSocket: r.AgentSocket, AgentDoor: door.socket(),
		Viewer: viewer.of(r), ViewerCert: viewer.tls.cert, ViewerKey: viewer.tls.key, Group: isolation.GroupMark(r.Sandbox), Brake: brake.form,
		Idle: r.Idle, Deadline: r.Deadline, MinFreeMemoryMB: r.MinFreeMemoryMB,
		FirstDisplay: int(m.settings.Band.First), LastDisplay: int(m.settings.Band.Last),
		SharedPIDs: r.Isolation == screen.Host, Plan: plan, Known: floor > 0, LeaseFloor: floor,
	})
	if err != nil {
		return inherited, err
	}
	files := append([]*os.File{config, nil, nil, nil}, inherited...)
	for i, open := range []func() (*os.File, error){
		func() (*os.File, error) { return openDir(p.control) },
		p.listenOperator,
		p.listenDial,
	} {
		f, err := open()
		if err != nil {
			return files, err
		}
		files[1+i] = f
	}
	return files, nil
}

// agentDoor makes the agent's socket and gives the warnings of the screen. A screen that
// runs goes on without one when somebody has put something in its way meanwhile.
func (m *Manager) agentDoor(r *runRecord, runs bool) (*agentDoor, []string, error) {
	door, err := r.openAgentDoor()
	var planted *PlantedError
	if runs && errors.As(err, &planted) {
		return nil, append(slices.Clone(r.Warnings), planted.Sentence()), nil
	}
	return door, r.Warnings, err
}

// openDir opens a leaf directory itself, never what a link at its name points to.
func openDir(path string) (*os.File, error) {
	fd, err := unix.Open(path, unix.O_DIRECTORY|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_RDONLY, 0)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", path, err)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// memfd holds v as JSON in memory only: it may carry the job's environment.
func memfd(name string, v any) (*os.File, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, errors.New("encode " + name) // the cause could repeat a value
	}
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd %s: %w", name, err)
	}
	f := os.NewFile(uintptr(fd), name)
	if _, err := f.Write(text); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("memfd %s: %w", name, err)
	}
	return f, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// adoptSupervisor takes hold of one another driver process launched.
func adoptSupervisor(id process.Identity) (*supervisor, error) {
	handle, err := process.Open(id)
	if err != nil {
		return nil, err
	}
	return &supervisor{identity: id, handle: handle}, nil
}

// end asks the supervisor to go, and makes it. It has nothing left to lose: the lease
// and the record are on disk.
func (s *supervisor) end() {
	if s == nil {
		return
	}
	_ = s.handle.Signal(unix.SIGTERM)
	select {
	case <-s.handle.Done():
	case <-afterGrace():
		_ = s.handle.Signal(unix.SIGKILL)
		<-s.handle.Done()
	}
	_ = s.handle.Close()
}
