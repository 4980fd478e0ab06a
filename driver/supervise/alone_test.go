// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"os"
	"testing"
)

// S11: a supervisor that its plugin lost is ended by the next one of the screen, also where
// it does not go by itself; one that has gone leaves no obstacle.
func TestS11OneSupervisor(t *testing.T) {
	path := t.TempDir()
	dir, err := os.OpenRoot(path)
	must(t, err)
	defer dir.Close()
	for name, env := range map[string][]string{"obedient": nil, "stubborn": {"STUBBORN=1"}} {
		other := startHelper(t, "alone", append(env, "DIR="+path)...)
		other.says("alone")
		f, err := beAlone(dir)
		must(t, err)
		if other.identity.Alive() {
			t.Errorf("%s: the other one lives", name)
		}
		must(t, f.Close())
	}
	f, err := beAlone(dir)
	must(t, err)
	must(t, f.Close())
}
