// SPDX-License-Identifier: MPL-2.0

package apptainer

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/screen"
)

// seen are the places where a secret was met. Its methods are safe for concurrent use.
type seen struct {
	mu     sync.Mutex
	places []string // guarded by mu
	looked int      // guarded by mu: arguments and files
}

// look searches the arguments of a uid's processes and all files below dir.
func (s *seen) look(uid uint32, dir, secret string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	try := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			return // it has ended, or is gone
		}
		s.looked++
		if bytes.Contains(text, []byte(secret)) {
			s.places = append(s.places, path)
		}
	}
	for _, pid := range pidsOf(uid) {
		try("/proc/" + strconv.Itoa(pid) + "/cmdline")
	}
	_ = filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() {
			try(path)
		}
		return nil
	})
}

// X21: a job's credentials reach its registry and nothing else: they stand in no argument
// and no file while the pull runs, and in none after it, no error repeats them, and
// without them, or with others, nothing comes.
func TestX21RegistryAuth(t *testing.T) {
	if _, err := exec.LookPath("mksquashfs"); err != nil {
		t.Skip("needs mksquashfs: apptainer makes its files with it")
	}
	const password = `CANARY "of", the=registry`
	b, r := boundary(t), newRegistry(t)
	b.insecure = true
	account := newOrder(t, "").Account
	var met seen
	r.guard = func(w http.ResponseWriter, q *http.Request) bool {
		met.look(account.UID, b.options.StateDir, "CANARY")
		name, secret, ok := q.BasicAuth()
		if ok && name == "robot" && secret == password {
			return true
		}
		w.Header().Set("WWW-Authenticate", `Basic realm="desks"`)
		http.Error(w, "no", http.StatusUnauthorized)
		return false
	}
	reference := r.name("team/desk:1")
	for name, auth := range map[string]screen.RegistryAuth{
		"nobody": {}, "somebody else": screen.NewRegistryAuth("robot", password+"-not"),
	} {
		_, err := b.Resolve(bounded(t), isolation.ImageOrder{Reference: reference, Account: account, Auth: auth}, func() {})
		var refused *RefusedError
		if !errors.As(err, &refused) || !strings.Contains(refused.Sentence(), "docker { auth }") {
			t.Fatalf("%s: %v", name, err)
		}
		if said := fmt.Sprintf("%v %+v %s", err, auth, refused.Sentence()); strings.Contains(said, "CANARY") {
			t.Errorf("%s: the password is said: %s", name, said)
		}
	}
	if n := r.layers.Load(); n > 0 {
		t.Fatalf("%d layers were served", n)
	}
	found, err := b.Resolve(bounded(t), isolation.ImageOrder{Reference: reference, Account: account, Auth: screen.NewRegistryAuth("robot", password)}, func() {})
	must(t, err)
	if r.layers.Load() != 1 || !strings.HasPrefix(found.Digest, "sha256:") {
		t.Errorf("%d layers were served, %+v", r.layers.Load(), found)
	}
	met.look(account.UID, b.options.StateDir, "CANARY")
	met.mu.Lock()
	defer met.mu.Unlock()
	if len(met.places) > 0 || met.looked < 4 {
		t.Errorf("the password stands in %v, of %d places looked at", met.places, met.looked)
	}
}
