// SPDX-License-Identifier: MPL-2.0

package lease

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/screen"
)

// helperDir, when set, makes this binary one of many processes at one lease.
const helperDir = "BOTSCREEN_TEST_LEASE_DIR"

func TestMain(m *testing.M) {
	if dir := os.Getenv(helperDir); dir != "" {
		changeHands(dir)
		return
	}
	os.Exit(m.Run())
}

// changeHands takes and frees for ever, from the moment a line comes, and says which
// epochs it has made, each after it is on disk and before the next.
func changeHands(path string) {
	dir, err := os.OpenRoot(path)
	if err != nil {
		panic(err)
	}
	if _, err := fmt.Println("ready"); err != nil {
		panic(err)
	}
	if _, err := bufio.NewReader(os.Stdin).ReadString('\n'); err != nil {
		return
	}
	s := NewStore(dir, Origin{})
	me := ViewerID(fmt.Sprintf("process-%d", os.Getpid()))
	for i := 0; ; i++ {
		var was Lease
		l, err := s.Update(time.Now(), func(l Lease) (Lease, error) {
			was = l
			if i%3 == 2 {
				return l.Free(time.Now())
			}
			return l.Take(me, screen.Untrusted{}, time.Now())
		})
		if err != nil {
			panic(err)
		}
		if l.Epoch == was.Epoch {
			continue
		}
		if _, err := fmt.Println(uint64(was.Epoch), uint64(l.Epoch)); err != nil {
			return // the parent has seen enough
		}
	}
}

type helper struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	say *bufio.Scanner
}

func startHelper(t *testing.T, path string) *helper {
	t.Helper()
	h := &helper{cmd: exec.Command(os.Args[0])}
	h.cmd.Env = append(os.Environ(), helperDir+"="+path)
	h.cmd.Stderr = os.Stderr
	out, err := h.cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if h.in, err = h.cmd.StdinPipe(); err != nil {
		t.Fatal(err)
	}
	if err := h.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(h.kill)
	h.say = bufio.NewScanner(out)
	if !h.say.Scan() || h.say.Text() != "ready" {
		t.Fatalf("a helper says %q, %v", h.say.Text(), h.say.Err())
	}
	return h
}

// begin lets it change hands.
func (h *helper) begin(t *testing.T) {
	t.Helper()
	if _, err := fmt.Fprintln(h.in); err != nil {
		t.Fatal(err)
	}
}

// made is a change of hands that a process made.
type made struct {
	from, to Epoch
	err      error
}

// change is the next one.
func (h *helper) change() (m made) {
	if !h.say.Scan() {
		return made{err: errors.Join(io.ErrUnexpectedEOF, h.say.Err())}
	}
	_, m.err = fmt.Sscan(h.say.Text(), &m.from, &m.to)
	return m
}

func (h *helper) kill() {
	h.cmd.Process.Kill()
	h.cmd.Wait()
}

// Many processes at one lease: every epoch is made once, one above the one before
// it, none is lost, and what one process has made another sees at once (L16).
func TestL16ManyProcesses(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	first, err := NewStore(dir, Origin{Fresh: true}).Load(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	processes := 50
	if testing.Short() {
		processes = 6
	}
	const changes = 8
	all := make(chan made)
	var helpers []*helper
	for range processes {
		h := startHelper(t, path)
		helpers = append(helpers, h)
		go func() {
			for range changes {
				m := h.change()
				all <- m
				if m.err != nil {
					return
				}
			}
		}()
	}
	reader := NewStore(dir, Origin{})
	seen := map[Epoch]bool{}
	began, highest := time.Now(), first.Epoch
	for _, h := range helpers {
		h.begin(t)
	}
	for range processes * changes {
		m := <-all
		if m.err != nil {
			t.Fatal(m.err)
		}
		if m.to != m.from+1 || m.from < first.Epoch || seen[m.to] {
			t.Errorf("epoch %d was made of %d, twice: %v", m.to, m.from, seen[m.to])
		}
		seen[m.to] = true
		now := reader.Read(time.Now())
		if now.Epoch < m.to {
			t.Errorf("epoch %d is not seen: %d", m.to, now.Epoch)
		}
		highest = max(highest, now.Epoch)
	}
	took := time.Since(began)
	t.Logf("%d processes, %d changes of hands that were awaited of %d: %.0f changes per second, synced to disk, beside as many reads",
		processes, len(seen), highest-first.Epoch, float64(highest-first.Epoch)/took.Seconds())
}

// kill -9 at any moment leaves a whole lease that has not gone back.
func TestKilledWhileWriting(t *testing.T) {
	path := t.TempDir()
	dir := openDir(t, path)
	if _, err := NewStore(dir, Origin{Fresh: true}).Load(time.Now()); err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		h := startHelper(t, path)
		h.begin(t)
		var last Epoch
		for range 1 + i%5 {
			m := h.change()
			if m.err != nil {
				t.Fatal(m.err)
			}
			last = m.to
		}
		h.kill()
		s := NewStore(dir, Origin{})
		l, from := s.current(time.Now())
		if from != stored || l.Epoch < last {
			t.Fatalf("after epoch %d: %+v, state %d", last, l, from)
		}
	}
}
