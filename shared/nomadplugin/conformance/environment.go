// SPDX-License-Identifier: MPL-2.0

package conformance

import (
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/botscreen/botscreen/shared/nomadplugin"
)

func (s *suite) environmentChecks() {
	s.check("C71_nobody_reads_the_log", (*suite).checkNoLogReader)
	s.check("C71_log_is_a_link", (*suite).checkLogLink)
	s.check("C72_no_log", (*suite).checkNullLog)
	s.check("C73_large_value", (*suite).checkLargeValue)
	s.check("C76_users", (*suite).checkUsers)
}

// refusedStart is the error of a start that must fail and leave nothing.
func (s *suite) refusedStart(a *alloc, config *nomadplugin.TaskConfig) error {
	s.Helper()
	i := s.instance(s.host)
	_, _, err := i.StartTask(s.soon(), config)
	if err == nil {
		s.destroy(s.host, nomadplugin.TaskID(config.GetId()))
	}
	s.gone(a.mark)
	return err
}

func (s *suite) checkNoLogReader() {
	before, a := s.traces(), s.newAlloc()
	config := s.task(s.host, a, s.Runs(s))
	config.StdoutPath = filepath.Join(a.dir, "alloc", "logs", ".unread.fifo")
	s.must(syscall.Mkfifo(config.StdoutPath, 0o600))
	s.within(s.LogTimeout, "giving up on a log that nobody reads", func() {
		err := s.refusedStart(a, config)
		if !nomadplugin.IsRecoverable(err) {
			s.Errorf("got %v: want a recoverable error", err)
		}
	})
	s.unchanged(before)
}

func (s *suite) checkLogLink() {
	a := s.newAlloc()
	config := s.task(s.host, a, s.Runs(s))
	victim := filepath.Join(s.tmp, "victim")
	s.must(os.WriteFile(victim, []byte("precious"), 0o644))
	config.StdoutPath = filepath.Join(a.dir, "alloc", "logs", ".link.fifo")
	s.must(os.Symlink(victim, config.StdoutPath))
	if err := s.refusedStart(a, config); err == nil {
		s.Error("a log that is a symbolic link is accepted")
	}
	if data, err := os.ReadFile(victim); err != nil || string(data) != "precious" {
		s.Errorf("the link's target is now %q, %v", data, err)
	}
}

func (s *suite) checkNullLog() {
	a := s.newAlloc()
	config := s.task(s.host, a, s.Runs(s))
	config.StdoutPath, config.StderrPath = os.DevNull, os.DevNull
	r := s.startConfig(s.host, a, config)
	s.must(r.on.StopTask(s.soon(), r.id, s.StopTimeout, ""))
	s.wait(r.on, r.id)
	info, err := os.Stat(os.DevNull)
	if err != nil || info.Mode()&os.ModeCharDevice == 0 || info.Mode().Perm() != 0o666 {
		s.Errorf("/dev/null is now %v, %v", info.Mode(), err)
	}
}

func (s *suite) checkLargeValue() {
	if len(s.Shell) == 0 {
		s.Skip("the target has no Shell")
	}
	a := s.newAlloc()
	config := s.task(s.host, a, s.Runs(s))
	config.Env["LARGE"] = strings.Repeat("v", 64<<10)
	r := s.startConfig(s.host, a, config)
	if got := s.stream(r, false, `printf %s "$LARGE" | wc -c`, nil); strings.TrimSpace(got.stdout) != strconv.Itoa(64<<10) {
		s.Errorf("64 KiB arrived as %q", got.stdout)
	}
	s.must(r.on.DestroyTask(s.soon(), r.id, true))
}

func (s *suite) checkUsers() {
	if s.User == "" {
		s.Skip("the target has no User")
	}
	named, err := user.Lookup(s.User)
	s.must(err)
	for name, want := range map[string]string{"": "", s.User: named.Uid, "nomad-80001": "80001"} {
		a := s.newAlloc()
		config := s.task(s.host, a, s.Runs(s))
		config.User = name
		r := s.startConfig(s.host, a, config)
		s.eventually("processes of the task", func() bool { return len(marked(a.mark)) > 0 })
		for _, process := range marked(a.mark) {
			uid := strconv.Itoa(process.UID)
			// The driver's own processes are the exception: they may serve the task as somebody else.
			if want != "" && uid == "0" || want == "" && uid == "0" {
				s.Errorf("user %q: %d %s runs as root", name, process.PID, process.Command)
			}
		}
		if want != "" && len(s.Shell) > 0 {
			got := s.stream(r, false, "id -u; id -G", nil)
			uid, groups, _ := strings.Cut(strings.TrimSpace(got.stdout), "\n")
			if uid != want || name == "nomad-80001" && groups != want {
				s.Errorf("user %q: runs as %q with groups %q: want %q", name, uid, groups, want)
			}
		}
		s.must(r.on.DestroyTask(s.soon(), r.id, true))
		s.gone(a.mark)
	}
	a := s.newAlloc()
	config := s.task(s.host, a, s.Runs(s))
	config.User = "no-such-user-" + strconv.FormatInt(time.Now().Unix(), 36)
	if err := s.refusedStart(a, config); err == nil {
		s.Error("an unknown user is accepted")
	}
}
