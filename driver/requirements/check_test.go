// SPDX-License-Identifier: MPL-2.0

package requirements

import (
	"encoding/json"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestUserNamespaces(t *testing.T) {
	for name, tc := range map[string]struct {
		file, text string
		ok         bool
		fix        string
	}{
		"allowed":           {file: "/proc/sys/user/max_user_namespaces", text: "96365\n", ok: true},
		"none allowed":      {file: "/proc/sys/user/max_user_namespaces", text: "0\n", fix: "user.max_user_namespaces=15000"},
		"old Debian switch": {file: "/proc/sys/kernel/unprivileged_userns_clone", text: "0\n", fix: "unprivileged_userns_clone=1"},
		"Ubuntu's AppArmor": {file: "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", text: "1\n", fix: "AppArmor"},
	} {
		t.Run(name, func(t *testing.T) {
			h := Host{Root: t.TempDir()}
			write(t, h, "/proc/self/ns/user", "", 0o644)
			write(t, h, tc.file, tc.text, 0o644)
			c := h.CheckUserNamespaces()
			if c.OK != tc.ok || !strings.Contains(c.Fix, tc.fix) || (c.Why == "") != tc.ok {
				t.Errorf("got %+v", c)
			}
		})
	}
	if c := (Host{Root: t.TempDir()}).CheckUserNamespaces(); c.OK || c.Fix == "" {
		t.Errorf("a kernel without them: %+v", c)
	}
}

func TestShm(t *testing.T) {
	h := Host{Root: t.TempDir()}
	if c := h.CheckShm(); c.OK || !strings.Contains(c.Found, "cannot be looked at") {
		t.Errorf("missing: %+v", c)
	}
	if err := os.MkdirAll(h.at("/dev/shm"), 0o777); err != nil {
		t.Fatal(err)
	}
	if c := h.CheckShm(); c.OK || c.Fix == "" {
		t.Errorf("a plain directory: %+v", c)
	}
	for size, ok := range map[string]bool{"64m": false, "1g": true} {
		if err := unix.Mount("tmpfs", h.at("/dev/shm"), "tmpfs", 0, "size="+size); err != nil {
			t.Skipf("cannot mount here: %v", err)
		}
		c := h.CheckShm()
		if err := unix.Unmount(h.at("/dev/shm"), unix.MNT_DETACH); err != nil {
			t.Fatal(err)
		}
		if c.OK != ok || (c.Fix == "") != ok {
			t.Errorf("%s: %+v", size, c)
		}
	}
}

func TestCheckAsJSON(t *testing.T) {
	data, err := json.Marshal([]Check{{Name: "a", OK: true, Found: "b"}, {Name: "c", Found: "d", Why: "e", Fix: "f"}})
	want := `[{"name":"a","ok":true,"found":"b"},{"name":"c","ok":false,"found":"d","why":"e","fix":"f"}]`
	if err != nil || string(data) != want {
		t.Errorf("got %s, %v, want %s", data, err, want)
	}
}
