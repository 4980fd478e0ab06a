// SPDX-License-Identifier: MPL-2.0

package session

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/botscreen/botscreen/driver/session/dialhome"
)

// handleDial opens a connection to Xvnc and passes it out. Only this non-dumpable
// process ever held a copy, and it closes its own after the send (X10).
func (s *session) handleDial(ctx context.Context, conn *dialhome.Conn, packet dialhome.Packet) {
	s.mu.Lock()
	d := s.desktop
	s.mu.Unlock()
	if d == nil {
		reply(conn, packet.ID, nil, errNoDesktop)
		return
	}
	f, err := d.DialRFB(ctx)
	if err != nil {
		reply(conn, packet.ID, nil, asError(err))
		return
	}
	reply(conn, packet.ID, nil, nil, f)
	_ = f.Close()
}

// lookPath is exec.LookPath in the PATH of the command's environment, not in ours.
func lookPath(name string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	path := ""
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			path = value
		}
	}
	for _, dir := range filepath.SplitList(path) {
		candidate := filepath.Join(dir, name)
		info, err := os.Stat(candidate)
		if err == nil && !info.IsDir() && info.Mode()&0o111 != 0 && filepath.IsAbs(candidate) {
			return candidate, nil
		}
	}
	return name, fmt.Errorf("find %q in PATH: %w", name, exec.ErrNotFound)
}
