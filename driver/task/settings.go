// SPDX-License-Identifier: MPL-2.0

package task

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/botscreen/botscreen/driver/display"
	"github.com/botscreen/botscreen/shared/screen"
)

// Settings are the operator's choices and the node's facts. They are plain data; New
// touches nothing.
type Settings struct {
	StateDir string // survives reboots: control and data trees, records
	RunDir   string // gone at reboot: sockets, this run's files, node-wide locks
	// Executable is the driver's own binary; a copy of it runs supervisors and sessions.
	Executable string

	AllowHost bool // allow_unsandboxed_host
	Order     []screen.Isolation
	// DefaultImage is what sandboxes run whose job names no image.
	DefaultImage string
	Band         display.Band
	// RequireDigest refuses images that are not named by their digest (X41).
	RequireDigest bool
	// MaxImageBytes bounds an image that is fetched; 0 is no limit (X30).
	MaxImageBytes uint64
	Volumes       VolumePolicy
	// FirstUID and LastUID are the driver's own uids: two for each profile, one for the
	// supervisor and one for the session of a job without `user`.
	FirstUID, LastUID uint32
	Accounts          AccountPolicy
	Exec              screen.ExecPolicy // the most any job may allow
	// KnownVersions, when set, is what the node's browsers have said of themselves.
	KnownVersions func() []screen.KnownVersion
}

// privileged reports whether accounts can be separated at all.
func privileged() bool { return os.Geteuid() == 0 }

// ensureDir makes a directory that root (or, without privilege, this user) owns and
// only it may write; an existing one must be like that already.
func ensureDir(path string, mode os.FileMode) error {
	if err := os.MkdirAll(path, mode); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	info, err := os.Lstat(path)
	if err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	if !info.IsDir() || uidOf(info) != uint32(os.Geteuid()) || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("make directory %s: it exists and is not a directory that uid %d alone may write", path, os.Geteuid())
	}
	if info.Mode().Perm() != mode {
		if err := os.Chmod(path, mode); err != nil {
			return fmt.Errorf("make directory: %w", err)
		}
	}
	return nil
}

// installBinary copies the running binary to <state_dir>/bin/<build id>, so that an
// upgrade never pulls a binary away from a running screen, and returns the copy's path.
func (s Settings) installBinary() (string, error) {
	source, err := os.Open(s.Executable)
	if err != nil {
		return "", fmt.Errorf("install binary: %w", err)
	}
	defer source.Close()
	sum := sha256.New()
	if _, err := io.Copy(sum, source); err != nil {
		return "", fmt.Errorf("install binary: %w", err)
	}
	dir := filepath.Join(s.StateDir, "bin", hex.EncodeToString(sum.Sum(nil)[:8]))
	if err := errors.Join(ensureDir(s.StateDir, 0o711), ensureDir(filepath.Dir(dir), 0o755), ensureDir(dir, 0o755)); err != nil {
		return "", err
	}
	path := filepath.Join(dir, "nomad-driver-botscreen")
	if _, err := os.Lstat(path); err == nil {
		return path, nil // the directory is root's alone: the content is what its name says
	}
	if _, err := source.Seek(0, io.SeekStart); err != nil {
		return "", fmt.Errorf("install binary: %w", err)
	}
	if err := writeFileFrom(path, source, 0o755); err != nil {
		return "", fmt.Errorf("install binary: %w", err)
	}
	return path, nil
}

// writeFileFrom writes to a temporary name and renames, so that a crash leaves no half
// file under the real one.
func writeFileFrom(path string, source io.Reader, mode os.FileMode) error {
	temporary, err := os.CreateTemp(filepath.Dir(path), ".new-")
	if err != nil {
		return err
	}
	defer os.Remove(temporary.Name())
	_, err = io.Copy(temporary, source)
	err = errors.Join(err, temporary.Chmod(mode), temporary.Close())
	if err != nil {
		return err
	}
	return os.Rename(temporary.Name(), path)
}

// gateSlots is how many desktops may bring themselves up at once (performance.md, 6b).
func gateSlots() int { return runtime.NumCPU() }
