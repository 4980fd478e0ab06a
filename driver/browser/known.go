// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"fmt"
	"os"
	"syscall"
	"time"

	"github.com/botscreen/botscreen/shared/screen"
)

// RememberFor is how long an answer counts: behind a wrapper script another browser may have
// come that its file says nothing of.
const RememberFor = 10 * time.Minute

// recall is the version that the executable is known to have, if its file is the one that
// was asked.
func recall(all []screen.KnownVersion, path string) (Version, bool) {
	for _, known := range all {
		if known.Path != path || time.Since(known.Asked) > RememberFor {
			continue
		}
		if file, err := Identify(path); err != nil || file != known.File {
			continue
		}
		if v, err := ParseVersion(known.Says); err == nil {
			return v, true
		}
	}
	return Version{}, false
}

// Identify is the file that a path leads to. Its change time cannot be set back, see inode(7).
func Identify(path string) (screen.FileIdentity, error) {
	info, err := os.Stat(path)
	if err != nil {
		return screen.FileIdentity{}, fmt.Errorf("identify the browser: %w", err)
	}
	stat := info.Sys().(*syscall.Stat_t)
	return screen.FileIdentity{Device: stat.Dev, Inode: stat.Ino, SizeBytes: stat.Size, ChangedNS: stat.Ctim.Nano()}, nil
}
