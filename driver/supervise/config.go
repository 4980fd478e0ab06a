// SPDX-License-Identifier: MPL-2.0

package supervise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/process"
	"github.com/botscreen/botscreen/driver/session/dialhome"
	"github.com/botscreen/botscreen/shared/screen"
)

// Config is what the plugin hands to a supervisor, in a memfd: it may hold the job's
// environment, which must not be seen in argument lists or files.
type Config struct {
	Namespace   string                `json:"namespace"`
	Profile     screen.Profile        `json:"profile"`
	Isolation   screen.Isolation      `json:"isolation"`
	Instance    string                `json:"instance"` // names this run of the screen, random
	ImageDigest string                `json:"image_digest,omitempty"`
	Session     process.Identity      `json:"session"` // as this node sees it
	Geometry    screen.Geometry       `json:"geometry"`
	Exec        screen.ExecPolicy     `json:"exec"`
	Takeover    screen.TakeoverPolicy `json:"takeover"`
	// KeyboardLayout is the desktop's; a viewer with the same one may send key codes (R13).
	KeyboardLayout string            `json:"keyboard_layout,omitempty"`
	Idle           screen.IdlePolicy `json:"idle"`
	// What a wake needs of a start: how long it may take, its memory floor, and the band
	// of display numbers.
	Deadline        time.Duration      `json:"deadline_ns"`
	MinFreeMemoryMB int                `json:"min_free_memory_mb"`
	FirstDisplay    int                `json:"first_display"`
	LastDisplay     int                `json:"last_display"`
	AgentSocket     screen.AgentSocket `json:"agent_socket"`
	// AgentDoor is the name of the agent's socket in its directory; empty: there is none,
	// and no descriptor of it either.
	AgentDoor string `json:"agent_door,omitempty"`
	// Viewer is the viewer listener whose socket is FDViewer; nil: there is none. Its
	// certificate and key are PEM, both empty for one in the clear.
	Viewer     *screen.ViewerListener `json:"viewer,omitempty"`
	ViewerCert []byte                 `json:"viewer_cert,omitempty"`
	ViewerKey  []byte                 `json:"viewer_key,omitempty"`
	// Group is in the name of the screen's cgroup, which this process may read.
	Group string `json:"group,omitempty"`
	// Brake says that FDBrake and what follows are the brake of the screen's cgroup.
	Brake    *cgroup.BrakeForm `json:"brake,omitempty"`
	Warnings []string          `json:"warnings,omitempty"`
	// Known says that the plugin has driver state of a lease of this profile, and
	// LeaseFloor is the highest epoch it has heard: a lease that is missing, or older,
	// is then not the agent's (X26).
	Known      bool   `json:"known,omitempty"`
	LeaseFloor uint64 `json:"lease_floor,omitempty"`
	// SharedPIDs says that the session sees the node's pids, so what it reports of
	// Xvnc's identity can be compared with the kernel's word.
	SharedPIDs bool `json:"shared_pids"`
	// Plan brings the desktop up; nil adopts a session that has its plan already.
	Plan *dialhome.Plan `json:"plan,omitempty"`
}

// Descriptors of a supervisor, in the order of exec.Cmd's ExtraFiles. It opens nothing
// by path outside of them.
const (
	FDConfig      = 3 + iota // Config as JSON
	FDControlDir             // the screen's control directory, O_PATH not set
	FDOperator               // listening stream socket
	FDDial                   // listening seqpacket socket
	FDAgent                  // listening stream socket; this and the next two only with Config.AgentDoor
	FDAgentDir               // the directory it is in
	FDAgentShared            // the alloc's shared directory, which holds that one
	FDViewer                 // listening TCP socket, only with Config.Viewer
	FDBrake                  // and the next two: the files of a cgroup.Brake, only with Config.Brake
)

const maxConfig = 24 << 20

func readConfig(f *os.File) (Config, error) {
	text, err := io.ReadAll(io.NewSectionReader(f, 0, maxConfig+1))
	if err != nil {
		return Config{}, fmt.Errorf("read config: %w", err)
	}
	if len(text) > maxConfig {
		return Config{}, fmt.Errorf("read config: more than %d bytes", maxConfig)
	}
	var c Config
	if err := json.Unmarshal(text, &c); err != nil {
		return Config{}, errors.New("read config: not a config") // the cause could repeat the environment
	}
	return c, nil
}
