// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bufio"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// finder looks programs up in the PATH of env, as exec.LookPath does in that of
// this process. Relative directories do not count. xfconfd lies in no PATH; its
// place stands in the bus service file that the distribution installed.
func finder(env []string) func(program string) (string, error) {
	path := defaultPath
	for _, entry := range env {
		if value, found := strings.CutPrefix(entry, "PATH="); found {
			path = value
		}
	}
	return func(program string) (string, error) {
		if program == nameXfconf {
			return findService("org.xfce.Xfconf")
		}
		if filepath.IsAbs(program) {
			return program, executable(program)
		}
		if strings.Contains(program, "/") {
			return "", &fs.PathError{Op: "find", Path: program, Err: fs.ErrInvalid}
		}
		for _, dir := range filepath.SplitList(path) {
			candidate := filepath.Join(dir, program)
			if filepath.IsAbs(dir) && executable(candidate) == nil {
				return candidate, nil
			}
		}
		return "", &fs.PathError{Op: "find", Path: program, Err: fs.ErrNotExist}
	}
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	if !info.Mode().IsRegular() {
		return &fs.PathError{Op: "find", Path: path, Err: fs.ErrInvalid}
	}
	if err := unix.Access(path, unix.X_OK); err != nil {
		return &fs.PathError{Op: "find", Path: path, Err: err}
	}
	return nil
}

// findService returns the program that the bus would start for a name. Only the
// system's own folders are read.
func findService(name string) (string, error) {
	for _, dir := range []string{"/usr/local/share", "/usr/share"} {
		f, err := os.Open(filepath.Join(dir, "dbus-1/services", name+".service"))
		if err != nil {
			continue
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		for lines.Scan() {
			command, found := strings.CutPrefix(lines.Text(), "Exec=")
			if fields := strings.Fields(command); found && len(fields) == 1 && filepath.IsAbs(fields[0]) {
				return fields[0], executable(fields[0])
			}
		}
	}
	return "", &fs.PathError{Op: "find", Path: name, Err: fs.ErrNotExist}
}

// ownProgramError says that a program which must be out of the desktop's reach
// could be replaced by it.
type ownProgramError struct{ Program, Path string }

func (e *ownProgramError) Error() string {
	return fmt.Sprintf("start %s: %s can be changed by uid %d itself, and so could pose as it", e.Program, e.Path, os.Geteuid())
}

// outOfReach checks that neither a program nor its folder can be written by us:
// what poses as the X server would sit behind the fence.
func outOfReach(p Program) error {
	path, err := filepath.EvalSymlinks(p.Path)
	if err != nil {
		return fmt.Errorf("start %s: %w", p.Name, err)
	}
	for _, place := range []string{path, filepath.Dir(path), filepath.Dir(p.Path)} {
		if unix.Access(place, unix.W_OK) == nil {
			return &ownProgramError{Program: p.Name, Path: place}
		}
	}
	return nil
}
