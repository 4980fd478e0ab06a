// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/botscreen/botscreen/shared/screen"
)

// Profile is what a bot's screen is like, as its record keeps it. Names are those of the
// job's `config {}`; cpu, memory and memory_max are Nomad's reservation.
type Profile struct {
	Description     string            `json:"description,omitempty"`
	Geometry        string            `json:"geometry"`
	Depth           int64             `json:"depth"`
	DPI             int64             `json:"dpi"`
	MinFreeMemoryMB int64             `json:"min_free_memory_mb"`
	StartTimeout    string            `json:"start_timeout,omitempty"`
	KeyboardLayout  string            `json:"keyboard_layout"`
	Look            string            `json:"look"`
	GLX             bool              `json:"glx,omitempty"`
	IdleStop        string            `json:"idle_stop"`
	IdleAction      string            `json:"idle_action"`
	Watch           string            `json:"watch"`
	Thumbnails      string            `json:"thumbnails"`
	Clipboard       string            `json:"clipboard"`
	Takeover        string            `json:"takeover"`
	AwayLimit       string            `json:"away_limit"`
	Consent         bool              `json:"consent,omitempty"`
	MaxGeometry     string            `json:"max_geometry,omitempty"`
	Viewer          *Viewer           `json:"viewer,omitempty"`
	AgentSocket     AgentSocket       `json:"agent_socket"`
	Browser         Browser           `json:"browser"`
	Docker          Docker            `json:"docker"`
	Apptainer       Apptainer         `json:"apptainer"`
	CPU             int64             `json:"cpu"`
	Memory          int64             `json:"memory"`
	MemoryMax       int64             `json:"memory_max,omitempty"`
	Env             map[string]string `json:"env,omitempty"`
	SecretEnv       map[string]string `json:"secret_env,omitempty"`
	Labels          map[string]string `json:"labels,omitempty"`
}

// Reservations where a profile names none, in MHz and MiB.
const (
	DefaultCPU    = 1000
	DefaultMemory = 2048
)

// DefaultProfile is a profile that says nothing.
func DefaultProfile() Profile {
	d := screen.Defaults()
	p := Profile{
		Geometry: d.Geometry, Depth: int64(d.Depth), DPI: int64(d.DPI), MinFreeMemoryMB: int64(d.MinFreeMemoryMB),
		KeyboardLayout: d.KeyboardLayout, Look: d.Look, CPU: DefaultCPU, Memory: DefaultMemory,
		IdleStop: Duration(d.IdleStop), IdleAction: d.IdleAction, Watch: d.Watch, Thumbnails: d.Thumbnails, Clipboard: d.Clipboard, Takeover: d.Takeover, AwayLimit: d.AwayLimit,
	}
	p.doorDefaults()
	return p
}

// config is the profile as the driver understands it.
func (p Profile) config(name, isolation, image string) screen.Config {
	c := screen.Defaults()
	c.Profile, c.Isolation, c.Image = name, isolation, image
	c.Geometry, c.Depth, c.DPI = p.Geometry, int(p.Depth), int(p.DPI)
	c.MinFreeMemoryMB, c.StartTimeout = int(p.MinFreeMemoryMB), p.StartTimeout
	c.KeyboardLayout, c.Look, c.GLX = p.KeyboardLayout, p.Look, p.GLX
	c.IdleStop, c.IdleAction = p.IdleStop, p.IdleAction
	c.Watch, c.Thumbnails, c.Clipboard, c.Takeover = p.Watch, p.Thumbnails, p.Clipboard, p.Takeover
	c.AwayLimit, c.Consent, c.MaxGeometry = p.AwayLimit, p.Consent, p.MaxGeometry
	p.doorConfig(&c)
	return c
}

var (
	envKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
	// secretRef is the path of a Nomad variable and one of its keys.
	secretRef = regexp.MustCompile(`^[a-zA-Z0-9_~/-]{1,128}#[a-zA-Z_][a-zA-Z0-9_]{0,127}$`)
	labelKey  = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._/-]{0,62}$`)
)

const (
	maxDescription = 256
	maxReservation = 1 << 20
)

// Validate reports every fault at once, with the rules of the driver for what the driver
// gets. The error, when not nil, is a screen.Faults.
func (p Profile) Validate(name string) error {
	var faults screen.Faults
	if _, err := p.config(name, string(screen.Auto), "").Validate(); err != nil {
		var own screen.Faults
		if asFaults(err, &own) {
			for _, f := range own {
				if f.Field == "profile" {
					f.Field = "name"
				}
				faults = append(faults, f)
			}
		}
	}
	if len(p.Description) > maxDescription {
		faults.Add("description", "", fmt.Sprintf("must be at most %d bytes", maxDescription))
	}
	limits(&faults, "cpu", p.CPU, 50, 1_000_000)
	limits(&faults, "memory", p.Memory, 64, maxReservation)
	if p.MemoryMax != 0 && p.MemoryMax != -1 && p.MemoryMax < p.Memory {
		faults.Add("memory_max", strconv.FormatInt(p.MemoryMax, 10), fmt.Sprintf("must be at least memory (%d MiB), or -1 for no limit", p.Memory))
	}
	p.validateEnv(&faults)
	p.validateViewer(&faults)
	for _, key := range slices.Sorted(maps.Keys(p.Labels)) {
		if !labelKey.MatchString(key) || len(p.Labels[key]) > maxDescription {
			faults.Add("labels", key, "must be a short name of letters, digits, dots, hyphens and slashes with a value of at most 256 bytes")
		}
	}
	return faults.Err()
}

func (p Profile) validateEnv(faults *screen.Faults) {
	for _, key := range slices.Sorted(maps.Keys(p.Env)) {
		checkEnvName(faults, "env", key)
	}
	for _, key := range slices.Sorted(maps.Keys(p.SecretEnv)) {
		checkEnvName(faults, "secret_env", key)
		if !secretRef.MatchString(p.SecretEnv[key]) {
			// The value is not repeated: somebody may have written the secret itself.
			faults.Add("secret_env", key, "must name a Nomad variable and one of its keys, \"PATH#KEY\", never the secret itself")
		}
		if _, twice := p.Env[key]; twice {
			faults.Add("secret_env", key, "is in env too")
		}
	}
}

func checkEnvName(faults *screen.Faults, field, key string) {
	switch {
	case !envKey.MatchString(key):
		faults.Add(field, key, "is not the name of an environment variable")
	case strings.HasPrefix(key, "NOMAD_"), strings.HasPrefix(key, "VNC_"), key == "DISPLAY", key == "XAUTHORITY":
		faults.Add(field, key, "is set by Nomad or by the desktop itself")
	}
}

func limits(faults *screen.Faults, field string, value, least, most int64) {
	if value < least || value > most {
		faults.Add(field, strconv.FormatInt(value, 10), fmt.Sprintf("must be from %d to %d", least, most))
	}
}

// Exits says whether the desktop ends its task when nobody uses it.
func (p Profile) Exits() bool {
	return p.IdleAction == string(screen.IdleExit) && p.IdleStop != "0s"
}

// Duration is the one spelling of a duration that records keep; text that is none stays.
func Duration(text string) string {
	d, err := time.ParseDuration(text)
	if err != nil {
		return text
	}
	return d.String()
}
