// SPDX-License-Identifier: MPL-2.0

package screen

import (
	"crypto/sha256"
	"encoding/hex"

	"github.com/botscreen/botscreen/shared/form"
)

// Profile is the named bot that owns one screen at a time.
type Profile string

// pathPart is what may stand in a path as it is (rule X42).
var pathPart = form.Of(`^[a-z0-9][a-z0-9-]{0,62}$`)

// profileWant says what a profile name must look like.
const profileWant = "must be 1 to 63 lower-case letters, digits and hyphens, starting with a letter or digit"

// Valid reports whether the name may be used at all: it becomes a directory
// name, a label and a word on command lines.
func (p Profile) Valid() bool { return pathPart().MatchString(string(p)) }

// ID names one screen in a cluster: a profile is unique per Nomad namespace.
type ID struct {
	Namespace string
	Profile   Profile
}

func (id ID) String() string { return id.Namespace + "/" + string(id.Profile) }

// Hash is the 12 hex digits that name the screen's run directory, cgroup and
// sockets: short, so that socket paths stay under 108 bytes whatever the names.
func (id ID) Hash() string {
	sum := sha256.Sum256([]byte(id.String()))
	return hex.EncodeToString(sum[:6])
}

// NamespaceDir is the directory name of the namespace: itself where it is a safe
// path part, else a hash, so that no two namespaces meet on a case-folding disk.
func (id ID) NamespaceDir() string { return dirName(id.Namespace) }

// ProfileDir is the directory name of the profile.
func (id ID) ProfileDir() string { return dirName(string(id.Profile)) }

func dirName(name string) string {
	if pathPart().MatchString(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	// A leading underscore cannot be written by a user, so no name collides with it.
	return "_" + hex.EncodeToString(sum[:16])
}
