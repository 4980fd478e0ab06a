// SPDX-License-Identifier: MPL-2.0

package controlserver

import (
	"context"
	"log/slog"
	"net"
	"path/filepath"
	"testing"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/screen"
)

// X33: a door's own refusal comes before every call, by the kernel's word.
func TestX33Door(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s")
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	refuse := make(chan bool, 1)
	refuse <- false
	s := New(newEverything(), slog.New(slog.DiscardHandler))
	served := make(chan error, 1)
	go func() {
		served <- s.ServeDoor(listener, Door{Role: screen.RoleAgent, Accept: func(c Caller) *control.Error {
			no := <-refuse
			refuse <- no
			if no || c.PID <= 0 {
				return &control.Error{Kind: control.Forbidden, Message: "Not you."}
			}
			return nil
		}})
	}()
	defer func() {
		_ = s.Shutdown(context.Background())
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	c := control.NewClient(control.Unix(path))
	defer c.Close()
	if _, err := c.Lease(t.Context()); err != nil {
		t.Error(err)
	}
	c.Close()
	<-refuse
	refuse <- true
	if _, err := c.Lease(t.Context()); control.KindOf(err) != control.Forbidden {
		t.Errorf("refused: %v", err)
	}
}
