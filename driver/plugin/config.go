// SPDX-License-Identifier: MPL-2.0

package plugin

import (
	"math"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"

	"github.com/botscreen/botscreen/driver/display"
	"github.com/botscreen/botscreen/driver/task"
	"github.com/botscreen/botscreen/shared/nomadplugin"
	h "github.com/botscreen/botscreen/shared/nomadplugin/hclspec"
	"github.com/botscreen/botscreen/shared/screen"
)

// operatorConfig is the plugin's `config {}` as MessagePack carries it. Defaults stand
// in the schema: an absent attribute arrives as an explicit nil.
type operatorConfig struct {
	AllowUnsandboxedHost bool     `codec:"allow_unsandboxed_host"`
	IsolationOrder       []string `codec:"isolation_order"`
	StateDir             string   `codec:"state_dir"`
	RunDir               string   `codec:"run_dir"`
	Displays             string   `codec:"displays"`
	UIDRange             string   `codec:"uid_range"`
	MinUID               int      `codec:"min_uid"`
	AllowedUsers         []string `codec:"allowed_users"`
	AllowedGroups        []string `codec:"allowed_groups"`
	DefaultImage         string   `codec:"default_image"`
	Docker               engine   `codec:"docker"`
	Apptainer            program  `codec:"apptainer"`
	RequireDigest        bool     `codec:"require_digest"`
	MaxImageMB           int      `codec:"max_image_mb"`
	Volumes              volumes  `codec:"volumes"`
	Exec                 exec     `codec:"exec"`
}

type engine struct {
	Endpoint string `codec:"endpoint"`
}

type exec struct {
	Shell bool   `codec:"shell"`
	Role  string `codec:"role"`
}

var execSpec = h.Default(
	h.Block("exec", h.Object(h.Fields{
		"shell": h.Default(h.Attr("shell", "bool"), h.Bool(true)),
		"role":  h.Default(h.Attr("role", "string"), h.String(string(screen.RoleOperator))),
	})),
	h.Literal(`{ shell = true, role = "operator" }`),
)

func operatorSchema() *nomadplugin.Spec {
	return h.Object(h.Fields{
		"allow_unsandboxed_host": h.Default(h.Attr("allow_unsandboxed_host", "bool"), h.Bool(false)),
		"isolation_order":        h.Default(h.Attr("isolation_order", "list(string)"), h.Strings("docker", "apptainer")),
		"state_dir":              h.Default(h.Attr("state_dir", "string"), h.String("")),
		"run_dir":                h.Default(h.Attr("run_dir", "string"), h.String("")),
		"displays":               h.Default(h.Attr("displays", "string"), h.String("20-89")),
		"uid_range":              h.Default(h.Attr("uid_range", "string"), h.String("70000-79999")),
		"min_uid":                h.Default(h.Attr("min_uid", "number"), h.Int(1000)),
		"allowed_users":          h.Default(h.Attr("allowed_users", "list(string)"), h.Strings()),
		"allowed_groups":         h.Default(h.Attr("allowed_groups", "list(string)"), h.Strings()),
		"default_image":          h.Default(h.Attr("default_image", "string"), h.String("")),
		"require_digest":         h.Default(h.Attr("require_digest", "bool"), h.Bool(false)),
		"max_image_mb":           h.Default(h.Attr("max_image_mb", "number"), h.Int(defaultMaxImageMB)),
		"volumes":                volumesSpec,
		"docker": h.Default(
			h.Block("docker", h.Object(h.Fields{"endpoint": h.Default(h.Attr("endpoint", "string"), h.String(""))})),
			h.Literal(`{ endpoint = "" }`),
		),
		"apptainer": programSpec,
		"exec":      execSpec,
	})
}

// jobConfig is a task's `config {}`.
type jobConfig struct {
	Profile         string   `codec:"profile"`
	Isolation       string   `codec:"isolation"`
	IsolationOrder  []string `codec:"isolation_order"`
	Image           string   `codec:"image"`
	Geometry        string   `codec:"geometry"`
	Depth           int      `codec:"depth"`
	DPI             int      `codec:"dpi"`
	MinFreeMemoryMB int      `codec:"min_free_memory_mb"`
	StartTimeout    string   `codec:"start_timeout"`
	KeyboardLayout  string   `codec:"keyboard_layout"`
	Look            string   `codec:"look"`
	GLX             bool     `codec:"glx"`
	PassEnv         []string `codec:"pass_env"`
	ExposeSecrets   bool     `codec:"expose_secrets"`
	ExposeDisplay   bool     `codec:"expose_display"`
	Command         string   `codec:"command"`
	Args            []string `codec:"args"`
	Exec            exec     `codec:"exec"`

	Watch       string `codec:"watch"`
	Thumbnails  string `codec:"thumbnails"`
	Clipboard   string `codec:"clipboard"`
	Takeover    string `codec:"takeover"`
	AwayLimit   string `codec:"away_limit"`
	Consent     bool   `codec:"consent"`
	MaxGeometry string `codec:"max_geometry"`

	IdleStop   string `codec:"idle_stop"`
	IdleAction string `codec:"idle_action"`

	Browser     jobBrowser  `codec:"browser"`
	AgentSocket agentSocket `codec:"agent_socket"`
	Viewer      viewer      `codec:"viewer"`

	Docker    container `codec:"docker"`
	Apptainer appBox    `codec:"apptainer"`
}

type agentSocket struct {
	Mode  string  `codec:"mode"`
	Group string  `codec:"group"`
	UIDs  []int64 `codec:"uids"`
}

type viewer struct {
	Port    string `codec:"port"`
	TLSCert string `codec:"tls_cert"`
	TLSKey  string `codec:"tls_key"`
}

func jobSchema() *nomadplugin.Spec {
	d := screen.Defaults()
	return h.Object(h.Fields{
		// Not required for Nomad's decoder: a missing one is reported with all other faults.
		"profile":            h.Attr("profile", "string"),
		"isolation":          h.Default(h.Attr("isolation", "string"), h.String(d.Isolation)),
		"isolation_order":    h.Default(h.Attr("isolation_order", "list(string)"), h.Strings()),
		"image":              h.Default(h.Attr("image", "string"), h.String("")),
		"geometry":           h.Default(h.Attr("geometry", "string"), h.String(d.Geometry)),
		"depth":              h.Default(h.Attr("depth", "number"), h.Int(int64(d.Depth))),
		"dpi":                h.Default(h.Attr("dpi", "number"), h.Int(int64(d.DPI))),
		"min_free_memory_mb": h.Default(h.Attr("min_free_memory_mb", "number"), h.Int(int64(d.MinFreeMemoryMB))),
		"start_timeout":      h.Attr("start_timeout", "string"),
		"keyboard_layout":    h.Default(h.Attr("keyboard_layout", "string"), h.String(d.KeyboardLayout)),
		"look":               h.Default(h.Attr("look", "string"), h.String(d.Look)),
		"glx":                h.Default(h.Attr("glx", "bool"), h.Bool(false)),
		"pass_env":           h.Default(h.Attr("pass_env", "list(string)"), h.Strings()),
		"expose_secrets":     h.Default(h.Attr("expose_secrets", "bool"), h.Bool(false)),
		"expose_display":     h.Default(h.Attr("expose_display", "bool"), h.Bool(false)),
		"command":            h.Attr("command", "string"),
		"args":               h.Default(h.Attr("args", "list(string)"), h.Strings()),
		"exec":               execSpec,
		"watch":              h.Default(h.Attr("watch", "string"), h.String(d.Watch)),
		"thumbnails":         h.Default(h.Attr("thumbnails", "string"), h.String(d.Thumbnails)),
		"clipboard":          h.Default(h.Attr("clipboard", "string"), h.String(d.Clipboard)),
		"takeover":           h.Default(h.Attr("takeover", "string"), h.String(d.Takeover)),
		"away_limit":         h.Default(h.Attr("away_limit", "string"), h.String(d.AwayLimit)),
		"consent":            h.Default(h.Attr("consent", "bool"), h.Bool(false)),
		"max_geometry":       h.Default(h.Attr("max_geometry", "string"), h.String(d.MaxGeometry)),
		"idle_stop":          h.Default(h.Attr("idle_stop", "string"), h.String(d.IdleStop)),
		"idle_action":        h.Default(h.Attr("idle_action", "string"), h.String(d.IdleAction)),
		"agent_socket": h.Default(
			h.Block("agent_socket", h.Object(h.Fields{
				"mode":  h.Default(h.Attr("mode", "string"), h.String(d.AgentSocketMode)),
				"group": h.Default(h.Attr("group", "string"), h.String("")),
				"uids":  h.Default(h.Attr("uids", "list(number)"), h.Literal("[]")),
			})),
			h.Literal(`{ mode = "`+d.AgentSocketMode+`", group = "", uids = [] }`),
		),
		"browser":   browserSpec,
		"docker":    containerSpec,
		"apptainer": appBoxSpec,
		"viewer": h.Default(
			h.Block("viewer", h.Object(h.Fields{
				"port":     h.Default(h.Attr("port", "string"), h.String("")),
				"tls_cert": h.Default(h.Attr("tls_cert", "string"), h.String("")),
				"tls_key":  h.Default(h.Attr("tls_key", "string"), h.String("")),
			})),
			h.Literal(`{ port = "", tls_cert = "", tls_key = "" }`),
		),
	})
}

func (c jobConfig) config() screen.Config {
	return screen.Config{
		Profile: c.Profile, Isolation: c.Isolation, IsolationOrder: c.IsolationOrder, Image: c.Image, Geometry: c.Geometry, Depth: c.Depth, DPI: c.DPI,
		MinFreeMemoryMB: c.MinFreeMemoryMB, StartTimeout: c.StartTimeout, KeyboardLayout: c.KeyboardLayout,
		Look: c.Look, GLX: c.GLX, PassEnv: c.PassEnv, ExposeSecrets: c.ExposeSecrets, ExposeDisplay: c.ExposeDisplay,
		Command: c.Command, Args: c.Args, ExecShell: c.Exec.Shell, ExecRole: c.Exec.Role,
		Watch: c.Watch, Thumbnails: c.Thumbnails, Clipboard: c.Clipboard, Takeover: c.Takeover,
		AwayLimit: c.AwayLimit, Consent: c.Consent, MaxGeometry: c.MaxGeometry,
		IdleStop: c.IdleStop, IdleAction: c.IdleAction,
		AgentSocketMode: c.AgentSocket.Mode, AgentSocketGroup: c.AgentSocket.Group, AgentSocketUIDs: c.AgentSocket.UIDs,
		ViewerPort: c.Viewer.Port, ViewerTLSCert: c.Viewer.TLSCert, ViewerTLSKey: c.Viewer.TLSKey,
		BrowserEnabled: c.Browser.Enabled, BrowserExecutable: c.Browser.Executable, BrowserArgs: c.Browser.Args,
		BrowserSandbox: c.Browser.Sandbox, BrowserStartURL: c.Browser.StartURL,
		DockerNetworkMode: c.Docker.NetworkMode, DockerShmSizeMB: c.Docker.ShmSizeMB, DockerPidsLimit: c.Docker.PidsLimit,
		DockerVolumes: c.Docker.Volumes, DockerLabels: c.Docker.Labels,
		DockerAuthUsername: c.Docker.Auth.Username, DockerAuthPassword: c.Docker.Auth.Password,
		ApptainerBinds: c.Apptainer.Binds, ApptainerWritable: c.Apptainer.Writable, ApptainerTmpfsMB: c.Apptainer.TmpfsMB,
	}
}

var uidRange = regexp.MustCompile(`^([0-9]{1,10})-([0-9]{1,10})$`)

// settings turns the operator's words into settings, all faults at once.
func (c operatorConfig) settings(executable string, dirs defaultDirs) (task.Settings, error) {
	var faults screen.Faults
	s := task.Settings{
		Executable: executable, AllowHost: c.AllowUnsandboxedHost, DefaultImage: c.DefaultImage,
		StateDir: directory(&faults, "state_dir", c.StateDir, dirs.state),
		RunDir:   directory(&faults, "run_dir", c.RunDir, dirs.run),
	}
	for _, word := range c.IsolationOrder {
		kind := screen.Isolation(word)
		if kind == screen.Auto || !slices.Contains(screen.Isolations, kind) {
			faults.Add("isolation_order", word, "is not one of docker, apptainer, host")
		}
		s.Order = append(s.Order, kind)
	}
	band, err := display.ParseBand(c.Displays)
	if err != nil {
		faults.Add("displays", c.Displays, err.Error())
	}
	s.Band = band
	s.FirstUID, s.LastUID = parseUIDRange(&faults, c.UIDRange)
	if c.MinUID < 1 || c.MinUID > math.MaxInt32 {
		faults.Add("min_uid", strconv.Itoa(c.MinUID), "must be 1 or more: a desktop never runs as root")
	}
	s.Accounts = task.AccountPolicy{
		MinUID: uint32(max(c.MinUID, 1)), AllowedUsers: c.AllowedUsers, AllowedGroups: c.AllowedGroups,
		DeniedGroups: []string{"docker", "podman", "libvirt", "lxd", "disk", "shadow", "sudo", "wheel", "adm"},
	}
	s.Exec = screen.ExecPolicy{Shell: c.Exec.Shell, Role: screen.Role(c.Exec.Role)}
	if !slices.Contains([]screen.Role{screen.RoleViewer, screen.RoleControl, screen.RoleOperator}, s.Exec.Role) {
		faults.Add("exec.role", c.Exec.Role, "is not one of viewer, control, operator")
	}
	c.Apptainer.check(&faults)
	s.Volumes = c.Volumes.settings(&faults)
	s.RequireDigest, s.MaxImageBytes = c.RequireDigest, uint64(max(c.MaxImageMB, 0))<<20
	if c.MaxImageMB < 0 || c.MaxImageMB > math.MaxInt32 {
		faults.Add("max_image_mb", strconv.Itoa(c.MaxImageMB), "must be 0 (no limit) or more")
	}
	return s, faults.Err()
}

func directory(faults *screen.Faults, field, value, fallback string) string {
	if value == "" {
		return fallback
	}
	if !filepath.IsAbs(value) || filepath.Clean(value) == "/" {
		faults.Add(field, value, "must be an absolute path")
	}
	return filepath.Clean(value)
}

func parseUIDRange(faults *screen.Faults, text string) (first, last uint32) {
	const want = "must be two uids such as 70000-79999, of at least 1000, the second greater"
	parts := uidRange.FindStringSubmatch(text)
	if parts == nil {
		faults.Add("uid_range", text, want)
		return 0, 0
	}
	a, errA := strconv.ParseUint(parts[1], 10, 31)
	b, errB := strconv.ParseUint(parts[2], 10, 31)
	if errA != nil || errB != nil || a < 1000 || b <= a {
		faults.Add("uid_range", text, want)
		return 0, 0
	}
	return uint32(a), uint32(b)
}

// defaultConfig and defaultJob are what an empty configuration means to an agent that
// sends no bytes at all.
func defaultConfig() operatorConfig {
	return operatorConfig{
		IsolationOrder: []string{"docker", "apptainer"}, Displays: "20-89", UIDRange: "70000-79999", MinUID: 1000,
		MaxImageMB: defaultMaxImageMB,
		Exec:       exec{Shell: true, Role: string(screen.RoleOperator)},
	}
}

func defaultJob() jobConfig {
	d := screen.Defaults()
	return jobConfig{
		Isolation: d.Isolation, Geometry: d.Geometry, Depth: d.Depth, DPI: d.DPI, MinFreeMemoryMB: d.MinFreeMemoryMB,
		KeyboardLayout: d.KeyboardLayout, Look: d.Look, Exec: exec{Shell: d.ExecShell, Role: d.ExecRole},
		Watch: d.Watch, Thumbnails: d.Thumbnails, Clipboard: d.Clipboard, Takeover: d.Takeover, AwayLimit: d.AwayLimit,
		MaxGeometry: d.MaxGeometry, IdleStop: d.IdleStop, IdleAction: d.IdleAction, AgentSocket: agentSocket{Mode: d.AgentSocketMode},
		Browser: jobBrowser{Enabled: d.BrowserEnabled, Sandbox: d.BrowserSandbox},
	}
}
