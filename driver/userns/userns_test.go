// SPDX-License-Identifier: MPL-2.0

package userns

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func write(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// BRW-11: what keeps user namespaces away is named, with what would change it.
func TestOff(t *testing.T) {
	for name, tc := range map[string]struct{ file, text, said, fix string }{
		"nothing":            {file: "/proc/sys/user/max_user_namespaces", text: "96365\n"},
		"the kernel":         {"/proc/sys/user/max_user_namespaces", "0\n", "user.max_user_namespaces is 0", "=15000"},
		"Debian":             {"/proc/sys/kernel/unprivileged_userns_clone", "0\n", "kernel.unprivileged_userns_clone is 0", "_clone=1"},
		"Ubuntu":             {"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n", "kernel.apparmor_restrict_unprivileged_userns is 1", "profile with `userns`"},
		"Ubuntu, turned off": {file: "/proc/sys/kernel/apparmor_restrict_unprivileged_userns", text: "0\n"},
	} {
		t.Run(name, func(t *testing.T) {
			root := t.TempDir()
			write(t, root, tc.file, tc.text)
			s, off := Off(root)
			if off != (tc.said != "") || off && s.String() != tc.said || !strings.Contains(s.Fix, tc.fix) {
				t.Errorf("%v %+v", off, s)
			}
			if s.AppArmor != (name == "Ubuntu") {
				t.Errorf("AppArmor %t", s.AppArmor)
			}
		})
	}
}

func TestExist(t *testing.T) {
	root := t.TempDir()
	if Exist(root) {
		t.Error("an empty machine has them")
	}
	write(t, root, "/proc/self/ns/user", "")
	if !Exist(root) {
		t.Error("a machine that has them has none")
	}
}
