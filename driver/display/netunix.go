// SPDX-License-Identifier: MPL-2.0

package display

import (
	"bufio"
	"io"
	"strconv"
	"strings"
)

const socketDir = ".X11-unix"

// bound is how a display number is bound in this network namespace.
type bound struct {
	abstract, path bool
}

// parseNetUnix reads /proc/net/unix and returns the display numbers that have a socket, listening or connected,
// with the path socket in the temporary directory tmp or in /tmp.
//
// The last column is the name as it was bound; the kernel writes '@' for the zero byte that begins an abstract
// name (unix(7)). A connected socket counts too: it is the server's end, so the server lives. Lines that make no
// sense are left out, since any user can bind a name that holds a newline.
func parseNetUnix(r io.Reader, tmp string) (map[Number]bound, error) {
	found := map[Number]bound{}
	lines := bufio.NewReader(r)
	for {
		line, err := lines.ReadString('\n')
		if n, abstract, ok := displayOfLine(strings.TrimSuffix(line, "\n"), tmp); ok {
			b := found[n]
			b.abstract = b.abstract || abstract
			b.path = b.path || !abstract
			found[n] = b
		}
		if err == io.EOF {
			return found, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

// displayOfLine takes one line apart:
//
//	Num       RefCount Protocol Flags    Type St Inode Path
//	00000000… 00000002 00000000 00010000 0001 01 36047 @/tmp/.X11-unix/X20
func displayOfLine(line, tmp string) (n Number, abstract, ok bool) {
	name := line
	for range 7 {
		name = strings.TrimLeft(name, " ")
		_, name, ok = strings.Cut(name, " ")
		if !ok {
			return None, false, false
		}
	}
	// The abstract name is the same wherever the temporary directory is.
	for _, place := range []struct {
		dir      string
		abstract bool
	}{{"@/tmp", true}, {"/tmp", false}, {tmp, false}} {
		digits, found := strings.CutPrefix(name, place.dir+"/"+socketDir+"/X")
		if !found {
			continue
		}
		n, err := parseNumber(digits)
		return n, place.abstract, err == nil
	}
	return None, false, false
}

// parseLock reads an X lock file: the server's pid in ten columns and a newline. It is as lenient as the servers
// themselves where that is safe: padding may be missing.
func parseLock(data []byte) (pid int, ok bool) {
	text := strings.TrimSpace(string(data))
	if text == "" || len(text) > 10 || strings.Trim(text, "0123456789") != "" {
		return 0, false
	}
	pid, err := strconv.Atoi(text)
	if err != nil || pid <= 0 || pid > maxPID {
		return 0, false
	}
	return pid, true
}

// maxPID is the kernel's PID_MAX_LIMIT on 64-bit machines (proc(5), pid_max); no pid is greater.
const maxPID = 4 << 20
