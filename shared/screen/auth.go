// SPDX-License-Identifier: MPL-2.0

package screen

import (
	"fmt"
	"strings"
)

// RegistryAuth is who a node is to an image's registry. Whatever prints it prints no
// secret; the zero value is nobody.
type RegistryAuth struct{ username, password string }

// NewRegistryAuth takes a name and its password, or neither.
func NewRegistryAuth(username, password string) RegistryAuth { return RegistryAuth{username, password} }

// IsZero reports whether there is nobody.
func (a RegistryAuth) IsZero() bool { return a == RegistryAuth{} }

// Reveal is for the one place that hands it to a registry.
func (a RegistryAuth) Reveal() (username, password string) { return a.username, a.password }

// Format keeps the secret out of every text.
func (a RegistryAuth) Format(f fmt.State, _ rune) {
	if a.IsZero() {
		_, _ = fmt.Fprint(f, "nobody")
		return
	}
	_, _ = fmt.Fprint(f, "a name with its password")
}

// MarshalJSON refuses: credentials are in no record.
func (a RegistryAuth) MarshalJSON() ([]byte, error) {
	if a.IsZero() {
		return []byte("null"), nil
	}
	return nil, fmt.Errorf("credentials of a registry are not written down")
}

// maxAuthBytes bounds each of the two: tokens of clouds are long.
const maxAuthBytes = 8192

func (c Config) validateAuth(faults *Faults) RegistryAuth {
	name, secret := c.DockerAuthUsername, c.DockerAuthPassword
	const want = "must both be set or both be left out, each at most 8192 bytes without control characters"
	bad := func(s string) bool {
		return len(s) > maxAuthBytes || strings.ContainsFunc(s, func(r rune) bool { return r < ' ' })
	}
	if (name == "") != (secret == "") || bad(name) || bad(secret) {
		faults.Add("docker.auth { username, password }", "", want) // no word of theirs
		return RegistryAuth{}
	}
	return NewRegistryAuth(name, secret)
}
