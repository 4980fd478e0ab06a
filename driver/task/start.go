// SPDX-License-Identifier: MPL-2.0

package task

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/botscreen/botscreen/driver/display"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/memory"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/driver/slot"
	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// attempts bounds how often a start goes on with another display number.
const attempts = 4

// start is one start in progress. What it acquires it undoes in reverse when it fails,
// so that a failed start leaves nothing behind.
type start struct {
	m       *Manager
	request Request
	places  places
	record  runRecord
	profile profileRecord
	undo    []func()

	boundary isolation.Boundary
	binds    []isolation.Volume
	decided  *imageRecord // the profile's, once the screen is ready
	stdout   *os.File
	stderr   *os.File
	sandbox  isolation.Sandbox
	sup      *supervisor
	lastSeq  uint64
	crowded  bool // it had to wait for its turn
}

// Start brings a screen up and returns when it is ready. The error says what a person
// has to know; Transient tells whether another attempt makes sense.
func (m *Manager) Start(ctx context.Context, request Request) (*Task, error) {
	if err := m.prepare(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	id, settled := request.screenID(), make(chan struct{})
	defer close(settled)
	mine := claim{id: request.TaskID, alloc: request.AllocID, name: request.TaskName, settled: settled, cancel: cancel}
	if err := m.reserveStart(ctx, id.Hash(), mine); err != nil {
		return nil, err
	}
	s := &start{m: m, request: request, places: m.settings.places(id)}
	t, err := s.run(ctx)
	if err != nil {
		m.release(request.TaskID, id.Hash())
		return nil, err
	}
	return t, nil
}

func (s *start) run(ctx context.Context) (_ *Task, err error) {
	turn, err := s.m.lockScreen(ctx, s.request.screenID().Hash())
	if err != nil {
		return nil, err
	}
	defer turn.Release()
	defer func() {
		if err != nil {
			s.unwind() // before anybody else may start or clear this screen
		}
	}()
	steps := []func(context.Context) error{
		s.chooseIsolation,
		s.clearLeftovers,
		s.sweepScreen,
		s.resolveAccounts,
		s.checkViewer,
		s.resolveImage,
		s.resolveVolumes,
		s.openLogs,
		s.bringUp,
		s.stillWanted,
	}
	for _, step := range steps {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	t := s.m.follow(s.record, s.sandbox, s.sup, s.lastSeq)
	t.SetRegistryAuth(s.request.Spec.Docker.Auth)
	return t, nil
}

// stillWanted gives up a screen that has become ready for a caller who is gone: an agent that
// died meanwhile never learns of it, and nobody would end it.
func (s *start) stillWanted(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("hand the screen over: %w", err)
	}
	return nil
}

func (s *start) onFailure(f func()) { s.undo = append(s.undo, f) }

func (s *start) unwind() {
	for i := len(s.undo) - 1; i >= 0; i-- {
		s.undo[i]()
	}
	s.undo = nil
}

// lockScreen keeps two driver processes from starting one screen at once, and one from
// clearing away what another one starts (DSP-08). A driver that dies lets go of it.
func (m *Manager) lockScreen(ctx context.Context, hash string) (*slot.Slot, error) {
	return lockScreenIn(ctx, m.node, hash)
}

func lockScreenIn(ctx context.Context, node *slot.Dir, hash string) (*slot.Slot, error) {
	dir, err := node.Sub("screens")
	if err != nil {
		return nil, fmt.Errorf("lock screen: %w", err)
	}
	defer dir.Close()
	turn, err := dir.Wait(ctx, hash)
	if err != nil {
		return nil, fmt.Errorf("lock screen: %w", err)
	}
	return turn, nil
}

// chooseIsolation applies the node's policy: what cannot be had is refused with the
// option that would allow it, never replaced by something weaker (P1).
func (s *start) chooseIsolation(ctx context.Context) error {
	kind, err := s.m.chooseIsolation(ctx, s.request.Spec.Isolation, s.request.Spec.IsolationOrder)
	if err != nil {
		return err
	}
	s.boundary = s.m.boundaries[kind]
	if err := s.places.check(); err != nil {
		return err
	}
	spec := s.request.Spec
	s.record = runRecord{
		V: recordVersion, Namespace: s.request.Namespace, Profile: spec.Profile,
		TaskID: s.request.TaskID, AllocID: s.request.AllocID, TaskName: s.request.TaskName,
		AllocDir: s.request.AllocDir, JobID: s.request.JobID, Instance: newInstance(),
		Isolation: kind, StdoutPath: s.request.StdoutPath, StderrPath: s.request.StderrPath, Geometry: spec.Geometry, Exec: boundExec(spec.Exec, s.m.settings.Exec),
		Takeover: spec.Takeover, KeyboardLayout: spec.KeyboardLayout, AgentSocket: spec.AgentSocket, Viewer: spec.Viewer,
		Idle: spec.Idle, Deadline: spec.Deadline(kind), MinFreeMemoryMB: spec.MinFreeMemoryMB,
		ViewerAddress: s.request.ViewerAddress,
		Started:       time.Now().UTC(),
	}
	s.record.Warnings = append(s.record.Warnings, s.networkWarnings(kind)...)
	return nil
}

// networkWarnings say what a desktop reaches that it had better not (X37). Of docker's
// bridge its boundary knows more.
func (s *start) networkWarnings(kind screen.Isolation) []string {
	switch {
	case s.request.NetworkNamespace != "":
		return []string{"metadata: reachable (the screen has its group's network)"}
	case kind != screen.Docker:
		return []string{"metadata: reachable (the screen has the node's network)"}
	}
	return nil
}

func newInstance() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, see crypto/rand
	return hex.EncodeToString(b[:])
}

// resolveAccounts finds the two uids of this run: the supervisor's own, and the
// session's, which is the job's user or the profile's own.
func (s *start) resolveAccounts(context.Context) error {
	profile, err := s.m.loadProfile(s.request.screenID())
	if err != nil {
		return err
	}
	s.profile = profile
	uid := uint32(os.Geteuid())
	switch {
	case !privileged():
		s.record.Account = isolation.Account{UID: uid, GID: uint32(os.Getegid()), Name: accountName("", uid), Inherited: true}
		s.record.SupervisorUID = uid
	case s.request.User == "":
		supervisorUID, sessionUID := s.m.settings.uidsOf(profile.Slot)
		s.record.SupervisorUID = supervisorUID
		s.record.Account = isolation.Account{UID: sessionUID, GID: sessionUID, Name: accountName("", sessionUID)}
	default:
		s.record.SupervisorUID, _ = s.m.settings.uidsOf(profile.Slot)
		account, err := s.m.settings.Accounts.Resolve(s.request.User)
		if err != nil {
			return err
		}
		s.record.Account = account
	}
	_, _, err = doorOwner(s.record.AgentSocket)
	return err
}

// pullLimit bounds the fetch of an image; it has its own limit because it says nothing
// about the desktop (S7).
const pullLimit = 10 * time.Minute

// resolveVolumes finds what the job binds before anything is started.
func (s *start) resolveVolumes(context.Context) (err error) {
	switch spec := s.request.Spec; s.record.Isolation {
	case screen.Docker:
		s.binds, err = s.volumes("docker.volumes", spec.Docker.Volumes)
	case screen.Apptainer:
		s.binds, err = s.volumes("apptainer.binds", spec.Apptainer.Binds)
	}
	return err
}

func (s *start) openLogs(ctx context.Context) (err error) {
	if s.stdout, err = openLog(ctx, s.request.StdoutPath); err != nil {
		return err
	}
	s.onFailure(func() { _ = s.stdout.Close() })
	if s.stderr, err = openLog(ctx, s.request.StderrPath); err != nil {
		return err
	}
	s.onFailure(func() { _ = s.stderr.Close() })
	return nil
}

// bringUp waits for memory and a turn, and then launches until the screen is ready.
func (s *start) bringUp(ctx context.Context) error {
	promise, err := s.admit(ctx)
	if err != nil {
		return err
	}
	defer promise.Release()
	pass, err := s.m.gate.Enter(ctx, func() {
		s.crowded = true
		s.say(screen.Queued, control.EventState, "Waiting: as many desktops start on this node as it has cores")
	})
	if err != nil {
		return err
	}
	defer pass.Release()
	s.say(screen.Starting, control.EventState, fmt.Sprintf("Starting the desktop in %s isolation", s.record.Isolation))
	if err := s.makeDirs(); err != nil {
		return err
	}
	if err := s.launchUntilReady(ctx); err != nil {
		return err
	}
	_ = s.stdout.Close() // the session has its own copies
	_ = s.stderr.Close()
	return nil
}

func (s *start) admit(ctx context.Context) (*memory.Promise, error) {
	promise, err := s.m.ledger.Admit(ctx, s.request.Spec.MinFreeMemoryMB, memory.DefaultPromiseMB)
	if err != nil {
		s.say(screen.Queued, control.EventBlocked, Explain(err))
		return nil, err
	}
	if promise.Warning != "" {
		s.record.Warnings = append(s.record.Warnings, promise.Warning)
		s.say(screen.Queued, control.EventState, promise.Warning)
	}
	return promise, nil
}

// makeDirs makes the screen's directories and gives the home to its present account.
func (s *start) makeDirs() error {
	if err := s.m.settings.ensureParents(s.places); err != nil {
		return err
	}
	if err := ensureLeaf(s.places.control, s.record.SupervisorUID, s.record.SupervisorUID); err != nil {
		return err
	}
	account := s.record.Account
	if s.profile.OwnerUID != 0 && privileged() {
		if err := reown(s.places.data, s.profile.OwnerUID, account.UID, account.GID); err != nil {
			return err
		}
	}
	if err := ensureLeaf(s.places.data, account.UID, account.GID); err != nil {
		return err
	}
	s.profile.OwnerUID = account.UID
	return s.m.saveProfile(s.profile)
}

// launchUntilReady goes on with another number while somebody else's server turns out
// to have the chosen one (D5).
func (s *start) launchUntilReady(ctx context.Context) error {
	var taken []display.Number
	for attempt := 1; ; attempt++ {
		mark := len(s.undo)
		err := s.launch(ctx, taken)
		if err == nil {
			return nil
		}
		for i := len(s.undo) - 1; i >= mark; i-- {
			s.undo[i]()
		}
		s.undo = s.undo[:mark]
		var failed *StartError
		if !errors.As(err, &failed) || failed.Cause != causeDisplayTaken || attempt == attempts {
			s.forgetDisplay()
			return err
		}
		taken = append(taken, display.Number(s.record.Display))
		// Another run in all but name: the supervisor of this one has written down its end,
		// which is not that of the next.
		s.record.Instance = newInstance()
	}
}

// forgetDisplay keeps the next start from wedging on the same number (D4).
func (s *start) forgetDisplay() {
	s.profile.LastDisplay = 0
	if err := s.m.saveProfile(s.profile); err != nil {
		s.m.log.Warn("cannot save the profile's record", "profile", s.record.Profile, "error", err)
	}
}

// launch claims a number, records the intent, starts both processes and waits.
func (s *start) launch(ctx context.Context, taken []display.Number) error {
	if err := s.prepareSocketDir(); err != nil {
		return err
	}
	claim, err := s.m.claims.Claim(ctx, display.Number(s.profile.LastDisplay), taken...)
	if err != nil {
		return fmt.Errorf("reserve display: %w", err)
	}
	defer claim.Release() // by then the X server has its lock, or nothing of it is left
	s.record.Display = int(claim.Number())
	if err := s.places.makeRun(s.record.Account.UID, s.record.Account.GID); err != nil {
		return err
	}
	s.onFailure(func() { s.warn(s.places.removeRun()) })
	hash := s.request.screenID().Hash()
	// Written before the launch: a driver that dies in it can be cleaned up after.
	s.record.Sandbox = s.boundary.Intent(s.order())
	if err := s.m.runs.save(hash, s.record); err != nil {
		return err
	}
	s.onFailure(func() { s.warn(s.m.runs.remove(hash)) })
	if err := s.launchSession(ctx); err != nil {
		return err
	}
	if err := s.launchSupervisor(); err != nil {
		return err
	}
	if err := s.awaitReady(ctx); err != nil {
		return err
	}
	s.record.Ready = true
	s.profile.LastDisplay = s.record.Display
	if s.decided != nil {
		s.profile.Image = s.decided
	}
	return errors.Join(s.m.runs.save(hash, s.record), s.m.saveProfile(s.profile))
}

// prepareSocketDir makes the node's directory of X sockets before an X server does: the
// first one runs as its screen's uid, which would own the directory and could replace
// every other screen's socket (D7). What is wrong with it short of useless is a warning.
func (s *start) prepareSocketDir() error {
	if s.record.Isolation != screen.Host {
		return nil // a sandbox has its own /tmp
	}
	err := s.m.claims.PrepareSocketDir()
	var problem *display.SocketDirError
	if errors.As(err, &problem) && !problem.Fatal {
		if !slices.Contains(s.record.Warnings, problem.Sentence()) {
			s.record.Warnings = append(s.record.Warnings, problem.Sentence())
		}
		return nil
	}
	return err
}

func (s *start) launchSession(ctx context.Context) error {
	sandbox, err := s.boundary.Launch(ctx, s.order())
	if err != nil {
		return err
	}
	s.sandbox = sandbox
	number := s.record.Display
	s.onFailure(func() { s.warn(errors.Join(endSandbox(sandbox), s.m.tidyDisplay(number))) })
	s.record.Sandbox = sandbox.Record()
	if w, ok := sandbox.(isolation.Warner); ok {
		s.record.Warnings = append(s.record.Warnings, w.Warnings()...)
	}
	return s.m.runs.save(s.request.screenID().Hash(), s.record)
}

func (s *start) order() isolation.Order {
	hidden := s.request.SecretDirs
	if s.request.Spec.ExposeSecrets {
		hidden = nil
	}
	order := isolation.Order{
		ID: s.request.screenID(), Instance: s.record.Instance, Binary: s.m.binary, Account: s.record.Account,
		DialDir: s.places.dial, XDir: s.places.x, Home: s.places.data, Hidden: hidden, Scratch: s.places.scratch,
		Log: s.stdout, ErrorLog: s.stderr, Limits: s.request.Limits,
		JoinCgroups: s.request.JoinCgroups, NetworkNamespace: s.request.NetworkNamespace,
		Image: s.record.Image, Volumes: s.binds,
		Labels: map[string]string{
			"namespace": s.request.Namespace, "job": s.request.JobID, "alloc": s.request.AllocID,
			"task": s.request.TaskName, "profile": string(s.request.Spec.Profile),
		},
	}
	switch spec := s.request.Spec; s.record.Isolation {
	case screen.Docker:
		order.Network, order.ShmBytes, order.OwnLabels = spec.Docker.NetworkMode, megabytes(spec.Docker.ShmSizeMB), spec.Docker.Labels
		if spec.Docker.PidsLimit > 0 {
			order.Limits.PidsMax = uint64(spec.Docker.PidsLimit)
		}
	case screen.Apptainer:
		order.Writable, order.TmpBytes = spec.Apptainer.Writable, megabytes(spec.Apptainer.TmpfsMB)
	}
	return order
}

func megabytes(n int) uint64 { return uint64(max(n, 0)) << 20 }

func (s *start) launchSupervisor() error {
	sup, err := s.m.launchSupervisor(&s.record, s.places, s.plan())
	if err != nil {
		return err
	}
	s.sup = sup
	s.onFailure(func() { sup.end(); s.warn(s.record.removeAgentDoor()) })
	s.record.Supervisor = sup.identity
	return s.m.runs.save(s.request.screenID().Hash(), s.record)
}

// plan is what the session needs. RUNTIME_DIR lies in the run: it is gone at stop.
func (s *start) plan() *dialhome.Plan {
	spec := s.request.Spec
	plan := &dialhome.Plan{
		Display: s.record.Display, WidthPx: spec.Geometry.WidthPx, HeightPx: spec.Geometry.HeightPx,
		Depth: spec.Depth, DPI: spec.DPI, GLX: spec.GLX, KeyboardLayout: spec.KeyboardLayout, Look: string(spec.Look),
		Home: s.places.data, XDir: s.places.x, RuntimeDir: filepath.Join(s.places.x, "runtime"),
		Deadline: spec.Deadline(s.record.Isolation),
		Env: environment(environmentOrder{
			task: s.request.Env, node: s.m.nodeEnv, passEnv: spec.PassEnv, exposeSecrets: spec.ExposeSecrets,
		}),
	}
	plan.Crowded = s.crowded
	plan.ClipboardEvents = spec.Takeover.Clipboard == screen.ClipboardBoth
	if spec.Browser.Enabled {
		plan.Browser = &spec.Browser
		if known := s.m.settings.KnownVersions; known != nil && s.record.Isolation == screen.Host {
			plan.KnownVersions = known()
		}
	}
	if spec.Command != "" {
		plan.Command = append([]string{spec.Command}, spec.Args...)
	}
	if s.record.Account.Inherited {
		plan.FenceExemptions = append(plan.FenceExemptions, "uid: shared (the driver runs without privilege, so all screens have its uid)")
	}
	if slices.Contains(spec.AgentSocket.UIDs, s.record.Account.UID) {
		plan.FenceExemptions = append(plan.FenceExemptions, "agent_socket accepts the desktop's own uid, so its programs can act as the agent")
	}
	if spec.ExposeDisplay {
		plan.FenceExemptions = append(plan.FenceExemptions, "expose_display shares the display with other tasks of the alloc")
	}
	return plan
}

func (s *start) warn(err error) {
	if err != nil {
		s.m.log.Warn("clean-up of a failed start", "profile", s.record.Profile, "error", err)
	}
}

// say publishes an event of the start itself.
func (s *start) say(state screen.State, name control.EventName, message string) {
	record := s.record
	if record.TaskID == "" { // before the record is filled
		record.TaskID, record.AllocID, record.TaskName, record.Profile = s.request.TaskID, s.request.AllocID, s.request.TaskName, s.request.Spec.Profile
	}
	s.m.publish(&record, message, stateOnly(state, name, message))
}

func formatEpoch(epoch uint64) string { return strconv.FormatUint(epoch, 10) }
