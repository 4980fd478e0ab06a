// SPDX-License-Identifier: MPL-2.0

package devagent

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// TokenFile is where an agent keeps its token (0600), beside its state.
func TokenFile(dataDir string) string { return filepath.Join(dataDir, "token") }

// DefaultDataDir is where the agent of this user keeps its data: beside the system's
// for root, below XDG_STATE_HOME for others.
func DefaultDataDir() (string, error) {
	if os.Geteuid() == 0 {
		return "/var/lib/botscreen/agent", nil
	}
	if dir := os.Getenv("XDG_STATE_HOME"); filepath.IsAbs(dir) {
		return filepath.Join(dir, "botscreen", "agent"), nil
	}
	home, err := os.UserHomeDir()
	if err != nil {
		return "", fmt.Errorf("find data directory: %w", err)
	}
	return filepath.Join(home, ".local", "state", "botscreen", "agent"), nil
}

// openToken reads the token, and makes one at the first start. A file that others
// can read is refused: whoever reads it runs programs as the agent's user.
func openToken(path string) (string, error) {
	text, err := readToken(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return text, err
	}
	text = rand.Text()
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	_, err = f.WriteString(text + "\n")
	if err := errors.Join(err, f.Close()); err != nil {
		return "", fmt.Errorf("make token: %w", err)
	}
	return text, nil
}

// ReadToken reads the token of the agent with this data directory, for programs of
// its user.
func ReadToken(dataDir string) (string, error) { return readToken(TokenFile(dataDir)) }

func readToken(path string) (string, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o077 != 0 {
		return "", fmt.Errorf("read token: %s has mode %v: want a file that only its owner may read (0600)", path, info.Mode())
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("read token: %w", err)
	}
	token := strings.TrimSpace(string(text))
	if token == "" {
		return "", fmt.Errorf("read token: %s is empty", path)
	}
	return token, nil
}

// lockDir keeps a second agent off the same data. The lock goes with the process.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_RDWR|os.O_CREATE|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK}); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			return nil, fmt.Errorf("lock data directory: another agent uses %s", dir)
		}
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	return f, nil
}

// addressFile tells programs of the same user where a running agent listens.
func addressFile(dataDir string) string { return filepath.Join(dataDir, "address") }

func writeAddress(dataDir, address string) error {
	if err := os.WriteFile(addressFile(dataDir), []byte(address+"\n"), 0o600); err != nil {
		return fmt.Errorf("write address: %w", err)
	}
	return nil
}

// ErrNotRunning says that no agent uses a data directory now.
var ErrNotRunning = errors.New("no agent runs")

// LiveAddress gives the address of the agent that uses a data directory, host:port,
// and ErrNotRunning when none does: whoever listens there then is somebody else.
func LiveAddress(dataDir string) (string, error) {
	f, err := os.OpenFile(filepath.Join(dataDir, "lock"), os.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return "", fmt.Errorf("find agent: %w", err)
	}
	defer func() { _ = f.Close() }()
	// A look, not a lock: an agent that starts meanwhile must not find it taken.
	look := &unix.Flock_t{Type: unix.F_WRLCK}
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, look); err != nil || look.Type == unix.F_UNLCK {
		return "", ErrNotRunning
	}
	text, err := os.ReadFile(addressFile(dataDir))
	if err != nil {
		return "", fmt.Errorf("find agent: %w", err)
	}
	return strings.TrimSpace(string(text)), nil
}
