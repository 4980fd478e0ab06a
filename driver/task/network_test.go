// SPDX-License-Identifier: MPL-2.0

package task

import (
	"strings"
	"testing"

	"github.com/botscreen/botscreen/shared/screen"
)

// X37: the status says what a desktop reaches, except where it has no network at all.
func TestX37MetadataIsSaid(t *testing.T) {
	for name, tc := range map[string]struct {
		kind screen.Isolation
		mode screen.NetworkMode
		path string
		want string
	}{
		"host":            {screen.Host, "", "", "node's network"},
		"apptainer":       {screen.Apptainer, "", "", "node's network"},
		"group":           {screen.Apptainer, "", "/run/netns/x", "group's network"},
		"docker":          {screen.Docker, screen.NetworkNone, "", ""},
		"docker's bridge": {screen.Docker, screen.NetworkBridge, "", ""}, // said by its boundary
	} {
		s := &start{request: Request{NetworkNamespace: tc.path, Spec: screen.Spec{Docker: screen.DockerOptions{NetworkMode: tc.mode}}}}
		got := strings.Join(s.networkWarnings(tc.kind), "; ")
		if (got == "") != (tc.want == "") || !strings.Contains(got, tc.want) || got != "" && !strings.Contains(got, "metadata: reachable") {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
