// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"os"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"
)

const (
	logName = "supervise.log"
	// maxLog is where the log is put aside; one older one is kept (X36), in bytes.
	maxLog = 8 << 20
)

// openLog writes to the screen's own log file, and lets what the runtime says of a
// crash end there too. Without it the log goes nowhere: a full disk ends no screen.
func openLog(dir *os.Root) hclog.Logger {
	if info, err := dir.Stat(logName); err == nil && info.Size() > maxLog {
		_ = dir.Rename(logName, logName+".1")
	}
	f, err := dir.OpenFile(logName, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return hclog.NewNullLogger()
	}
	if err := unix.Dup3(int(f.Fd()), int(os.Stderr.Fd()), 0); err == nil {
		_ = f.Close()
		f = os.Stderr
	}
	return hclog.New(&hclog.LoggerOptions{Name: "supervisor", Output: f, Level: hclog.Info, TimeFormat: "2006-01-02T15:04:05.000Z07:00"})
}
