// SPDX-License-Identifier: MPL-2.0

package screen

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/botscreen/botscreen/shared/form"
)

// Config is a screen as a user writes it, in a job's `config {}` or in Terraform.
// Every field is the word of the user; Validate turns it into a Spec.
type Config struct {
	Profile         string
	Isolation       string
	IsolationOrder  []string // what auto may choose, the first that works; empty: the node's
	Image           string   // what a sandbox runs; empty: the node's default_image
	Geometry        string
	Depth           int
	DPI             int
	MinFreeMemoryMB int
	StartTimeout    string // empty: 15s on the host, 30s sandboxed
	KeyboardLayout  string
	Look            string
	GLX             bool
	PassEnv         []string
	ExposeSecrets   bool
	ExposeDisplay   bool
	Command         string
	Args            []string
	ExecShell       bool
	ExecRole        string

	// People on the screen, see TakeoverPolicy.
	Watch       string
	Thumbnails  string
	Clipboard   string
	Takeover    string
	AwayLimit   string
	Consent     bool
	MaxGeometry string // empty: 3840x2160, or the geometry where that is larger

	IdleStop   string // "0s" and empty: never
	IdleAction string

	// The further doors, see AgentSocket and ViewerListener.
	AgentSocketMode  string
	AgentSocketGroup string
	AgentSocketUIDs  []int64
	ViewerPort       string
	ViewerTLSCert    string
	ViewerTLSKey     string

	// The browser, see BrowserOptions.
	BrowserEnabled    bool
	BrowserExecutable string
	BrowserArgs       []string
	BrowserSandbox    bool
	BrowserStartURL   string

	// What a sandbox is made of, see DockerOptions and ApptainerOptions; zero values are the defaults.
	DockerNetworkMode string
	DockerShmSizeMB   int
	DockerPidsLimit   int
	DockerVolumes     []string
	DockerLabels      map[string]string
	// Who the engine is to the image's registry; secret.
	DockerAuthUsername, DockerAuthPassword string
	ApptainerBinds                         []string
	ApptainerWritable                      bool
	ApptainerTmpfsMB                       int
}

// Defaults is what a job gets that only names its profile.
func Defaults() Config {
	return Config{
		Isolation:       string(Auto),
		Geometry:        "1440x900",
		Depth:           24,
		DPI:             96,
		MinFreeMemoryMB: 1536,
		KeyboardLayout:  "us",
		Look:            string(Lean),
		ExecShell:       true,
		ExecRole:        string(RoleOperator),
		Watch:           string(WatchAll),
		Thumbnails:      string(ThumbnailsWatch),
		Clipboard:       string(ClipboardIn),
		Takeover:        string(TakeoverKeep),
		AwayLimit:       "0s",
		IdleStop:        "30m",
		IdleAction:      string(IdleSleep),
		AgentSocketMode: "0660",
		BrowserEnabled:  true,
		BrowserSandbox:  true,
	}
}

// Start deadlines where the job names none (rule S7).
const (
	HostStartTimeout      = 15 * time.Second
	SandboxedStartTimeout = 30 * time.Second
	maxStartTimeout       = 10 * time.Minute
)

// Spec is a validated Config.
type Spec struct {
	Profile         Profile
	Isolation       Isolation
	IsolationOrder  []Isolation // of auto; empty: the node's
	Image           string
	Geometry        Geometry
	Depth, DPI      int
	MinFreeMemoryMB int
	StartTimeout    time.Duration // 0: the isolation's default
	KeyboardLayout  string
	Look            Look
	GLX             bool
	PassEnv         []string
	ExposeSecrets   bool
	ExposeDisplay   bool
	Command         string
	Args            []string
	Exec            ExecPolicy
	Takeover        TakeoverPolicy
	Idle            IdlePolicy
	AgentSocket     AgentSocket
	Viewer          *ViewerListener // nil: none
	Browser         BrowserOptions
	Docker          DockerOptions
	Apptainer       ApptainerOptions
}

// ExecPolicy bounds what Nomad's alloc exec may do in this screen (X19).
type ExecPolicy struct {
	Shell bool // commands other than the reserved ones run inside the session
	Role  Role // the most a reserved command may ask for
}

// Deadline is how long a start may take from passing the start gate.
func (s Spec) Deadline(chosen Isolation) time.Duration {
	switch {
	case s.StartTimeout > 0:
		return s.StartTimeout
	case chosen == Host:
		return HostStartTimeout
	default:
		return SandboxedStartTimeout
	}
}

// keyboardLayout goes to xkbcomp; the form is the one of rule X42.
var (
	keyboardLayout = form.Of(`^[a-z]{2,8}(\([a-z0-9_-]+\))?(,[a-z]{2,8}(\([a-z0-9_-]+\))?){0,3}$`)
	// imageReference is what an engine may be asked for: one word that is no option.
	imageReference = form.Of(`^[a-zA-Z0-9/][a-zA-Z0-9._:/@-]{0,511}$`)
	envName        = form.Of(`^[A-Za-z_][A-Za-z0-9_]{0,127}$`)
)

const (
	maxArgs     = 256
	maxArgBytes = 4096
)

// Validate checks everything and reports every fault at once (rule N4).
// The error, when not nil, is a Faults.
func (c Config) Validate() (Spec, error) {
	var faults Faults
	spec := Spec{
		Profile:         Profile(c.Profile),
		Image:           c.Image,
		Depth:           c.Depth,
		DPI:             c.DPI,
		MinFreeMemoryMB: c.MinFreeMemoryMB,
		KeyboardLayout:  c.KeyboardLayout,
		GLX:             c.GLX,
		PassEnv:         c.PassEnv,
		ExposeSecrets:   c.ExposeSecrets,
		ExposeDisplay:   c.ExposeDisplay,
		Command:         c.Command,
		Args:            c.Args,
	}
	c.validateProfile(&faults)
	spec.Isolation = oneOf(&faults, "isolation", c.Isolation, Isolations...)
	spec.IsolationOrder = c.validateOrder(&faults)
	if c.Image != "" && !imageReference().MatchString(c.Image) {
		faults.Add("image", c.Image, "is not an image reference such as \"registry.example/desk:1.4\" or \"desk@sha256:…\"")
	}
	spec.Look = oneOf(&faults, "look", c.Look, Lean, Full)
	c.validateDisplay(&faults, &spec)
	spec.StartTimeout = parseDuration(&faults, "start_timeout", c.StartTimeout, time.Second, maxStartTimeout)
	c.validateEnvironment(&faults)
	c.validateCommand(&faults)
	spec.Exec = ExecPolicy{
		Shell: c.ExecShell,
		Role:  oneOf(&faults, "exec.role", c.ExecRole, RoleViewer, RoleControl, RoleOperator),
	}
	spec.Takeover = c.validateTakeover(&faults, spec.Geometry)
	spec.Idle = c.validateIdle(&faults)
	spec.AgentSocket = c.validateAgentSocket(&faults)
	spec.Viewer = c.validateViewer(&faults)
	spec.Browser = c.validateBrowser(&faults)
	spec.Docker = c.validateDocker(&faults)
	spec.Apptainer = c.validateApptainer(&faults)
	if c.ExposeDisplay && spec.Isolation != Host {
		faults.Add("expose_display", "", "needs `isolation = \"host\"`: a sandboxed display cannot be shared with other tasks")
	}
	return spec, faults.Err()
}

func (c Config) validateProfile(faults *Faults) {
	switch {
	case c.Profile == "":
		faults.Add("profile", "", "is required: the name of the bot that owns this screen")
	case !Profile(c.Profile).Valid():
		faults.Add("profile", c.Profile, profileWant)
	}
}

func (c Config) validateOrder(faults *Faults) []Isolation {
	const field = "isolation_order"
	if len(c.IsolationOrder) > 0 && c.Isolation != string(Auto) {
		faults.Add(field, "", "is what `isolation = \"auto\"` chooses from; with another isolation it has no use")
	}
	var order []Isolation
	for _, word := range c.IsolationOrder {
		kind := Isolation(word)
		switch {
		case kind == Auto || !slices.Contains(Isolations, kind):
			faults.Add(field, word, "is not one of docker, apptainer, host")
		case slices.Contains(order, kind):
			faults.Add(field, word, "is there twice")
		default:
			order = append(order, kind)
		}
	}
	return order
}

func (c Config) validateDisplay(faults *Faults, spec *Spec) {
	geometry, err := ParseGeometry(c.Geometry)
	if err != nil {
		faults.Add("geometry", c.Geometry, geometryWant)
	}
	spec.Geometry = geometry
	if c.Depth != 16 && c.Depth != 24 {
		faults.Add("depth", strconv.Itoa(c.Depth), "must be 16 or 24 bits per pixel")
	}
	between(faults, "dpi", c.DPI, 48, 480)
	if c.MinFreeMemoryMB < 0 {
		faults.Add("min_free_memory_mb", strconv.Itoa(c.MinFreeMemoryMB), "must be 0 (no floor) or more")
	}
	if !keyboardLayout().MatchString(c.KeyboardLayout) {
		faults.Add("keyboard_layout", c.KeyboardLayout, `must be up to four XKB layouts such as "us" or "de(nodeadkeys),fr"`)
	}
}

func (c Config) validateEnvironment(faults *Faults) {
	for _, name := range c.PassEnv {
		if !envName().MatchString(name) {
			faults.Add("pass_env", name, "is not the name of an environment variable")
		}
	}
}

func (c Config) validateCommand(faults *Faults) {
	if c.Command == "" && len(c.Args) > 0 {
		faults.Add("args", "", "needs `command`")
	}
	if len(c.Args) > maxArgs {
		faults.Add("args", "", fmt.Sprintf("has %d entries; at most %d", len(c.Args), maxArgs))
	}
	for _, word := range append([]string{c.Command}, c.Args...) {
		if strings.ContainsRune(word, 0) || len(word) > maxArgBytes {
			faults.Add("command", word, fmt.Sprintf("must be at most %d bytes without NUL", maxArgBytes))
		}
	}
}

func between(faults *Faults, field string, value, least, most int) {
	if value < least || value > most {
		faults.Add(field, strconv.Itoa(value), fmt.Sprintf("must be from %d to %d", least, most))
	}
}

// parseDuration reads an optional duration; empty is zero.
func parseDuration(faults *Faults, field, text string, least, most time.Duration) time.Duration {
	if text == "" {
		return 0
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		faults.Add(field, text, fmt.Sprintf("must be a duration such as \"30s\", from %s to %s", least, most))
		return 0
	}
	return d
}
