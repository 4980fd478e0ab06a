// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"fmt"
	"os"
	"sync"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

const (
	logName = "supervise.log"
	// maxLog is where the log is put aside; one older one is kept (X36), in bytes.
	maxLog = 8 << 20
)

// openLog writes to the screen's own log file. Without it the log goes nowhere: a full
// disk ends no screen.
func openLog(dir *os.Root, crashes *os.File) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name: "supervisor", Output: &logFile{dir: dir, crashes: crashes, most: maxLog},
		Level: hclog.Info, TimeFormat: "2006-01-02T15:04:05.000Z07:00",
	})
}

// logFile is the log and one older one. Where crashes is not nil, what the runtime
// writes there when this process dies ends in the log, too.
type logFile struct {
	dir     *os.Root
	crashes *os.File
	most    int64

	mu   sync.Mutex // guards all below
	file *os.File
	size int64
}

// Write never fails: a log that cannot be written must not show anywhere else.
func (l *logFile) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.file == nil || l.size+int64(len(line)) > l.most {
		if err := l.turn(int64(len(line))); err != nil {
			return len(line), nil
		}
	}
	n, _ := l.file.Write(line)
	l.size += int64(n)
	return len(line), nil
}

// turn opens the log so that there is room for a line.
func (l *logFile) turn(line int64) error {
	if l.file != nil {
		_ = l.file.Close()
		l.file = nil
	}
	if info, err := l.dir.Stat(logName); err == nil && info.Size()+line > l.most {
		_ = l.dir.Rename(logName, logName+".1")
	}
	f, err := l.dir.OpenFile(logName, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	info, err := f.Stat()
	if err != nil || info.Size()+line > l.most {
		_ = f.Close()
		return fmt.Errorf("no room in %s: %w", logName, err)
	}
	if l.crashes != nil {
		_ = unix.Dup3(int(f.Fd()), int(l.crashes.Fd()), unix.O_CLOEXEC)
	}
	l.file, l.size = f, info.Size()
	return nil
}
