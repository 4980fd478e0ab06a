// SPDX-License-Identifier: MPL-2.0

package cgroup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Brake freezes and thaws one group through open files, so that a process that may not
// write to cgroups can be handed it. The kernel asks for the right at the open alone.
type Brake struct {
	v2      bool
	state   *os.File // freezer.state, or cgroup.freeze
	look    *os.File // freezer.state, or cgroup.events
	reclaim *os.File // memory.force_empty, or memory.reclaim; nil where there is none
}

// Brake opens the group's. The error says why it has none.
func (g *Group) Brake() (*Brake, error) {
	b, err := g.brake()
	if err != nil {
		return nil, fmt.Errorf("open the brake of cgroup %s: %w", g.name, err)
	}
	return b, nil
}

func (g *Group) brake() (*Brake, error) {
	d := g.with("freezer")
	if d == nil {
		return nil, errors.New("the freezer controller cannot be had here")
	}
	b := &Brake{v2: d.V2}
	state, look, reclaim := "freezer.state", "freezer.state", "memory.force_empty"
	if d.V2 {
		state, look, reclaim = "cgroup.freeze", "cgroup.events", "memory.reclaim"
	}
	var err error
	if b.state, err = os.OpenFile(filepath.Join(d.dir, state), os.O_WRONLY, 0); err != nil {
		return nil, err
	}
	if b.look, err = os.Open(filepath.Join(d.dir, look)); err != nil {
		b.Close()
		return nil, err
	}
	if m := g.with("memory"); m != nil {
		// memory.reclaim came with 5.19; without one the kernel takes what it needs by itself.
		b.reclaim, _ = os.OpenFile(filepath.Join(m.dir, reclaim), os.O_WRONLY, 0)
	}
	return b, nil
}

// BrakeForm is how a brake goes to another process besides its files.
type BrakeForm struct {
	V2    bool `json:"v2"`
	Files int  `json:"files"` // the first so many of three there are
}

// Pass is the brake for another process: its form, and its files, which the caller closes
// in place of the brake.
func (b *Brake) Pass() (*BrakeForm, []*os.File) {
	files := b.files()
	return &BrakeForm{V2: b.v2, Files: len(files)}, files
}

// InheritBrake is the brake in the process that got its files as descriptors from first on.
func InheritBrake(form BrakeForm, first uintptr) *Brake {
	file := func(i int) *os.File {
		if i >= form.Files {
			return nil
		}
		return os.NewFile(first+uintptr(i), "brake")
	}
	return &Brake{v2: form.V2, state: file(0), look: file(1), reclaim: file(2)}
}

func (b *Brake) files() []*os.File {
	all := []*os.File{b.state, b.look, b.reclaim}
	return slices.DeleteFunc(all, func(f *os.File) bool { return f == nil })
}

// Close closes the files; a nil brake has none.
func (b *Brake) Close() {
	if b == nil {
		return
	}
	for _, f := range b.files() {
		_ = f.Close()
	}
}

// Freeze stops every process of the group where it stands and returns once all have stopped.
func (b *Brake) Freeze(ctx context.Context) error { return b.set(ctx, true) }

// Thaw lets a frozen group go on.
func (b *Brake) Thaw(ctx context.Context) error { return b.set(ctx, false) }

func (b *Brake) set(ctx context.Context, frozen bool) error {
	word := freezeWords(b.v2)[frozen]
	return settleFrozen(ctx, frozen, func() error {
		_, err := b.state.WriteAt([]byte(word), 0)
		return err
	}, b.Frozen)
}

// Frozen reports whether all of the group stands still.
func (b *Brake) Frozen() (bool, error) {
	text, err := io.ReadAll(io.NewSectionReader(b.look, 0, 4<<10))
	if err != nil {
		return false, err
	}
	return isFrozen(text, b.v2), nil
}

// Reclaim asks the kernel to write the group's memory to swap. It may take long, and what
// it could not get is no error worth having.
func (b *Brake) Reclaim() {
	if b.reclaim == nil {
		return
	}
	const everything = "1T" // as much as there is; the answer is EAGAIN then
	word := "0"
	if b.v2 {
		word = everything
	}
	_, _ = b.reclaim.WriteAt([]byte(word), 0)
}

// freezeWords are what the kernel's files take.
func freezeWords(v2 bool) map[bool]string {
	if v2 {
		return map[bool]string{true: "1", false: "0"}
	}
	return map[bool]string{true: "FROZEN", false: "THAWED"}
}

func isFrozen(text []byte, v2 bool) bool {
	if v2 {
		return ParseFlat(text)["frozen"] == 1
	}
	return strings.TrimSpace(string(text)) == "FROZEN"
}

// settleFrozen asks until it is so. The kernel's v1 freezer goes on with its work only when
// it is asked again, and neither version has an event for it that Go's poller can wait on;
// so this asks, at first at short intervals.
func settleFrozen(ctx context.Context, frozen bool, ask func() error, look func() (bool, error)) error {
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		if err := ask(); err != nil {
			return err
		}
		now, err := look()
		if err != nil || now == frozen {
			return err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
