// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/display"
)

// xfiles are the files in /tmp by which other X servers see that a display
// number is in use.
type xfiles struct {
	number display.Number
	server int
	socket *unix.Stat_t // nil where the server has none: a read-only /tmp/.X11-unix
}

// claimXFiles notes which socket is the server's and writes its lock file. With
// -displayfd a server writes none, although others that look for a number look
// for nothing else; see LockServer in the X server's os/utils.c for the form.
func claimXFiles(n display.Number, server int) *xfiles {
	x := &xfiles{number: n, server: server}
	var stat unix.Stat_t
	if unix.Lstat(x.socketPath(), &stat) == nil && stat.Uid == uint32(os.Geteuid()) {
		x.socket = &stat
	}
	f, err := os.OpenFile(n.LockPath("/tmp"), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return x // somebody's stale lock: the sockets hold the number as well
	}
	_, _ = fmt.Fprintf(f, "%10d\n", server)
	_ = f.Close()
	return x
}

func (x *xfiles) socketPath() string { return fmt.Sprintf("/tmp/.X11-unix/X%d", int(x.number)) }

// remove takes away what a killed server left. What another server has put
// there meanwhile is another file and stays.
func (x *xfiles) remove() error {
	var failed []error
	var now unix.Stat_t
	if x.socket != nil && unix.Lstat(x.socketPath(), &now) == nil && now.Ino == x.socket.Ino && now.Dev == x.socket.Dev {
		failed = append(failed, os.Remove(x.socketPath()))
	}
	lock := x.number.LockPath("/tmp")
	if text, err := os.ReadFile(lock); err == nil {
		if pid, err := strconv.Atoi(strings.TrimSpace(string(text))); err == nil && pid == x.server {
			failed = append(failed, os.Remove(lock))
		}
	}
	if err := errors.Join(failed...); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove files of display %s: %w", x.number, err)
	}
	return nil
}

// checkFree refuses a number that somebody has, before Xvnc runs: with
// -displayfd it does not look at lock files.
func checkFree(n display.Number) error {
	status, err := display.Host{}.Inspect(n)
	if err != nil {
		return nil // Xvnc will tell
	}
	if status.State == display.InUse || status.State == display.Blocked {
		return &DisplayTakenError{Display: int(n), Detail: status.Reason}
	}
	return nil
}
