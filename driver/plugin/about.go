// SPDX-License-Identifier: MPL-2.0

package plugin

import (
	"os"
	"path/filepath"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// Name is what a job writes as its driver.
const Name = "botscreen"

// Version of the plugin; the build sets it.
var Version = "0.1.0-dev"

// handleVersion is the form of TaskHandle.DriverState.
const handleVersion = 1

// capabilities is the one static answer for all isolations. File isolation is none:
// paths in a job are the node's, and sandboxes will bind the same paths. Dynamic
// workload users are not asked for, because a profile has a uid of its own that stays
// the same, so its home never changes owner; a job that sets one is served.
func capabilities() *nomadplugin.Capabilities {
	return &nomadplugin.Capabilities{
		SendSignals: true,
		Exec:        true,
		FsIsolation: driverpb.DriverCapabilities_NONE,
		NetworkIsolationModes: []driverpb.NetworkIsolationSpec_NetworkIsolationMode{
			driverpb.NetworkIsolationSpec_HOST,
			driverpb.NetworkIsolationSpec_GROUP,
		},
		MountConfigs: driverpb.DriverCapabilities_NO_MOUNTS,
	}
}

// defaultDirs are the directories where the operator names none.
type defaultDirs struct{ state, run string }

// nodeDirs follows the File System Hierarchy as root and the XDG base directories
// otherwise.
func nodeDirs() defaultDirs {
	if os.Geteuid() == 0 {
		return defaultDirs{state: "/var/lib/botscreen", run: "/run/botscreen"}
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = os.TempDir()
	}
	return defaultDirs{
		state: filepath.Join(firstOf(os.Getenv("XDG_STATE_HOME"), filepath.Join(home, ".local", "state")), "botscreen"),
		run:   filepath.Join(firstOf(os.Getenv("XDG_RUNTIME_DIR"), os.TempDir()), "botscreen"),
	}
}

func firstOf(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}
