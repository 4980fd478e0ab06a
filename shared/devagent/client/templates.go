// SPDX-License-Identifier: MPL-2.0

package client

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"sync"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/state"
	"github.com/botscreen/botscreen/shared/devagent/template"
)

// templates renders the templates of one task and watches what they read.
type templates struct {
	task *taskRunner

	// mu guards the fields below.
	mu       sync.Mutex
	vars     map[string]string
	rendered map[int][sha256.Size]byte
}

func newTemplates(t *taskRunner) *templates {
	return &templates{task: t, rendered: map[int][sha256.Size]byte{}}
}

// env are the variables from templates with env = true.
func (t *templates) env() map[string]string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return maps.Clone(t.vars)
}

func (t *templates) lookup(namespace string) template.Lookup {
	return func(path string) (items map[string]string, ok bool) {
		t.task.alloc.client.Store.Read(func(v *state.View) {
			if one := v.Variable(namespace, path); one != nil {
				items, ok = maps.Clone(map[string]string(one.Items)), true
			}
		})
		return items, ok
	}
}

// render writes all templates. It waits for variables that do not exist yet, and
// says so once for each set that is missing.
func (t *templates) render(ctx context.Context) error {
	said := ""
	for {
		changed := t.task.alloc.client.Store.Changed()
		missing, _, err := t.pass(true)
		if err != nil {
			t.task.emit(eventSetupFailure(err.Error()))
			return err
		}
		if missing == "" {
			return nil
		}
		if missing != said {
			said = missing
			t.task.emit(newEvent(taskTemplate, "Missing: "+missing))
		}
		select {
		case <-changed:
		case <-t.task.kill:
			return errKilled
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// change is a template whose text is another one now.
type change struct{ mode, signal string }

// pass renders every template. write also writes those that did not change, as
// before the start of a task whose directory may have been emptied.
func (t *templates) pass(write bool) (missing string, changes []change, err error) {
	a, task := t.task.spec()
	vars := map[string]string{}
	for i, given := range task.Templates {
		compiled, err := template.Compile(given)
		if err != nil {
			return "", nil, fmt.Errorf("template %d: %w", i+1, err)
		}
		text, absent, err := compiled.Render(t.lookup(a.Namespace))
		if err != nil {
			return "", nil, fmt.Errorf("template %d: %w", i+1, err)
		}
		for _, p := range absent {
			missing = fmt.Sprintf("%s, nomad.var.block(%s@%s.global)", missing, p, a.Namespace)
		}
		if len(absent) > 0 {
			continue
		}
		if compiled.Env {
			more, err := template.EnvVars(text)
			if err != nil {
				return "", nil, fmt.Errorf("template %d: %w", i+1, err)
			}
			maps.Copy(vars, more)
		}
		if fresh := t.note(i, compiled, text); !fresh && !write {
			continue
		}
		if err := t.write(compiled, text); err != nil {
			return "", nil, fmt.Errorf("write template %q: %w", compiled.Dest, err)
		}
		changes = append(changes, change{mode: compiled.ChangeMode, signal: compiled.ChangeSignal})
	}
	if missing != "" {
		return missing[len(", "):], nil, nil
	}
	t.mu.Lock()
	t.vars = vars
	t.mu.Unlock()
	return "", changes, nil
}

// note keeps the sum of a rendered text and says whether it is another one. After a
// restart of the agent the file on disk is what was rendered before.
func (t *templates) note(i int, c *template.Template, text string) bool {
	sum := sha256.Sum256([]byte(text))
	t.mu.Lock()
	before, ok := t.rendered[i]
	t.rendered[i] = sum
	t.mu.Unlock()
	if !ok {
		before, ok = t.onDisk(c)
	}
	return !ok || before != sum
}

func (t *templates) onDisk(c *template.Template) (sum [sha256.Size]byte, ok bool) {
	root, err := os.OpenRoot(t.task.dir.Dir())
	if err != nil {
		return sum, false
	}
	defer func() { _ = root.Close() }()
	info, err := root.Lstat(path.Clean(c.Dest))
	if err != nil || !info.Mode().IsRegular() || info.Size() > maxRendered {
		return sum, false
	}
	text, err := root.ReadFile(path.Clean(c.Dest))
	return sha256.Sum256(text), err == nil
}

// maxRendered bounds what is read back of a rendered template, in bytes.
const maxRendered = 8 << 20

// write puts the text in its place below the task's directory, whole or not at all.
// The task may have put links there: nothing outside of its directory is reached.
func (t *templates) write(c *template.Template, text string) error {
	root, err := os.OpenRoot(t.task.dir.Dir())
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	dest := path.Clean(c.Dest)
	if err := root.MkdirAll(path.Dir(dest), 0o755); err != nil {
		return err
	}
	tmp := dest + ".botscreen-new"
	if err := root.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := root.OpenFile(tmp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.WriteString(text)
	if err == nil {
		// By descriptor: the name may be another file by now.
		err = f.Chmod(os.FileMode(c.Perms).Perm())
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return root.Rename(tmp, dest)
}

// watch renders again when a variable changes, and restarts or signals the task as
// its templates ask, until ctx is done.
func (t *templates) watch(ctx context.Context) {
	_, task := t.task.spec()
	if len(task.Templates) == 0 {
		return
	}
	var seen uint64
	for {
		changed := t.task.alloc.client.Store.Changed()
		var index uint64
		t.task.alloc.client.Store.Read(func(v *state.View) { index = v.TableIndex(state.Variables) })
		if index != seen {
			seen = index
			t.refresh(ctx)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

func (t *templates) refresh(ctx context.Context) {
	_, changes, err := t.pass(false)
	if err != nil {
		t.task.stop(eventSetupFailure(err.Error()))
		return
	}
	signals := map[string]bool{}
	for _, c := range changes {
		switch c.mode {
		case "restart":
			t.task.restart("Template with change_mode restart re-rendered")
			return
		case "signal":
			signals[c.signal] = true
		}
	}
	for signal := range signals {
		if err := t.task.signal(ctx, signal); err != nil {
			t.task.stop(newEvent(api.TaskKilling, "Template failed to send signal "+signal+": "+err.Error()))
		}
	}
}
