// SPDX-License-Identifier: MPL-2.0

package requirements

import (
	"fmt"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/userns"
)

// Check is one line of `nomad-driver-botscreen doctor`: something that was looked at, and what to do when it is
// not right. Its JSON form is read by other programs.
type Check struct {
	// Name is a short constant, such as "programs".
	Name string `json:"name"`
	OK   bool   `json:"ok"`
	// Found is what was found, in words.
	Found string `json:"found"`
	// Why says what does not work because of it; empty when all is well.
	Why string `json:"why,omitempty"`
	// Fix is what to type or to change; empty when all is well.
	Fix string `json:"fix,omitempty"`
}

// CheckPrograms looks for the programs of a host desktop.
func (h Host) CheckPrograms() Check {
	c := Check{Name: "programs", OK: true, Found: fmt.Sprintf("all %d", len(Programs))}
	missing := h.Missing()
	if len(missing.Programs) == 0 {
		return c
	}
	var all []string
	for _, p := range missing.Programs {
		all = append(all, p.Name)
	}
	c.OK = false
	c.Found = "missing: " + strings.Join(all, ", ")
	c.Fix = missing.Remedy.Sentence()
	c.Why = "A desktop on the raw host starts without them, but lacks what they do."
	if required := missing.Required(); len(required) > 0 {
		c.Why = "Host isolation cannot start a desktop without " + strings.Join(required, ", ") + "."
	}
	return c
}

// CheckUserNamespaces tells whether unprivileged processes may make user namespaces, which the browser's sandbox
// and apptainer need.
func (h Host) CheckUserNamespaces() Check {
	c := Check{Name: "user_namespaces", OK: true, Found: "allowed"}
	if !userns.Exist(h.Root) {
		c.OK, c.Found, c.Fix = false, "the kernel has none", "Boot a kernel with CONFIG_USER_NS."
	}
	if s, off := userns.Off(h.Root); off {
		c.OK, c.Found, c.Fix = false, s.String(), s.Fix
	}
	if !c.OK {
		c.Why = "The browser's sandbox and apptainer need user namespaces."
	}
	return c
}

// minShmMB is what a browser with a few tabs puts into /dev/shm.
const minShmMB = 256

// CheckShm tells whether /dev/shm is a tmpfs that is large enough for a browser.
func (h Host) CheckShm() Check {
	c := Check{Name: "dev_shm"}
	var fs unix.Statfs_t
	if err := unix.Statfs(h.at("/dev/shm"), &fs); err != nil {
		c.Found = "/dev/shm cannot be looked at: " + err.Error()
	} else {
		mb := int(fs.Blocks * uint64(fs.Bsize) >> 20)
		c.Found = fmt.Sprintf("%d MB", mb)
		if fs.Type != unix.TMPFS_MAGIC {
			c.Found = "/dev/shm is not a tmpfs"
		} else if c.OK = mb >= minShmMB; c.OK {
			return c
		}
	}
	c.Why = fmt.Sprintf("Browsers keep their pictures there and crash their pages when it is missing or under %d MB.", minShmMB)
	c.Fix = "mount -t tmpfs -o mode=1777,size=1g tmpfs /dev/shm"
	return c
}
