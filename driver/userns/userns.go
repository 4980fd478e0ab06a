// SPDX-License-Identifier: MPL-2.0

// Package userns knows what keeps users without privilege from making user namespaces on a
// Linux node. A browser's own sandbox needs them, and so does apptainer.
package userns

import (
	"os"
	"path/filepath"
	"strings"
)

// Switch is a setting that keeps them away.
type Switch struct {
	// Setting is the kernel's name of it, and Value what it is.
	Setting, Value string
	// Fix is what an administrator of the node types or makes.
	Fix string
	// AppArmor says that programs with an AppArmor profile that allows them make them all
	// the same.
	AppArmor bool
}

// String is "kernel.unprivileged_userns_clone is 0".
func (s Switch) String() string { return s.Setting + " is " + s.Value }

// switches are the kernel's own, Debian's and Ubuntu's, see user_namespaces(7) and
// Ubuntu's release notes of 23.10, "Unprivileged user namespace restrictions".
var switches = []Switch{
	{Setting: "user.max_user_namespaces", Value: "0", Fix: "sysctl -w user.max_user_namespaces=15000"},
	{Setting: "kernel.unprivileged_userns_clone", Value: "0", Fix: "sysctl -w kernel.unprivileged_userns_clone=1"},
	{
		Setting: "kernel.apparmor_restrict_unprivileged_userns", Value: "1", AppArmor: true,
		Fix: "sysctl -w kernel.apparmor_restrict_unprivileged_userns=0, or an AppArmor profile with `userns` for the program",
	},
}

// Off is the first switch that is off below root, the node's own for "". What none of them
// says can be refused all the same, by a seccomp filter for example.
func Off(root string) (s Switch, off bool) {
	for _, s := range switches {
		text, err := os.ReadFile(filepath.Join(root, "/proc/sys", strings.ReplaceAll(s.Setting, ".", "/")))
		if err == nil && strings.TrimSpace(string(text)) == s.Value {
			return s, true
		}
	}
	return Switch{}, false
}

// Exist reports whether the kernel below root has user namespaces at all.
func Exist(root string) bool {
	_, err := os.Lstat(filepath.Join(root, "/proc/self/ns/user"))
	return err == nil
}
