// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/process"
)

const (
	// aloneName is locked by the screen's supervisor for as long as it lives, and says
	// which process that is.
	aloneName = "supervisor.json"
	// yieldTime is how long another supervisor may take to go before it is killed.
	yieldTime = 2 * time.Second
	// aloneLimit bounds the whole.
	aloneLimit = 10 * time.Second
)

// beAlone ends any other supervisor of this screen: a plugin that dies between starting one
// and writing its pid down leaves one that nobody knows. The newest is the one the plugin
// has asked for. What it returns is to stay open for the life of this process.
func beAlone(dir *os.Root) (*os.File, error) {
	f, err := dir.OpenFile(aloneName, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("be the only supervisor: %w", err)
	}
	for deadline := time.Now().Add(aloneLimit); ; {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			break
		}
		if err == unix.EINTR {
			continue
		}
		if err != unix.EWOULDBLOCK || time.Now().After(deadline) {
			_ = f.Close()
			return nil, fmt.Errorf("be the only supervisor: flock %s: %w", aloneName, err)
		}
		endOther(f)
	}
	if err := sign(f); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("be the only supervisor: %w", err)
	}
	return f, nil
}

// endOther asks the process that has the lock to go, and makes it. One that has not signed
// yet is given a moment.
func endOther(f *os.File) {
	const moment = 20 * time.Millisecond
	text, err := io.ReadAll(io.NewSectionReader(f, 0, 4<<10))
	var other process.Identity
	if err != nil || json.Unmarshal(text, &other) != nil || other.PID == os.Getpid() {
		time.Sleep(moment)
		return
	}
	handle, err := process.Open(other)
	if errors.Is(err, process.ErrGone) {
		time.Sleep(moment) // its lock goes with it
		return
	}
	if err != nil {
		time.Sleep(moment)
		return
	}
	defer handle.Close()
	_ = handle.Signal(unix.SIGTERM)
	timer := time.NewTimer(yieldTime)
	defer timer.Stop()
	select {
	case <-handle.Done():
	case <-timer.C:
		_ = handle.Signal(unix.SIGKILL)
		<-handle.Done()
	}
}

func sign(f *os.File) error {
	self, err := process.Observe(os.Getpid())
	if err != nil {
		return err
	}
	text, err := json.Marshal(self)
	if err != nil {
		return err
	}
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err = f.WriteAt(text, 0)
	return err
}
