// SPDX-License-Identifier: MPL-2.0

package screen

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func valid() Config {
	c := Defaults()
	c.Profile = "researcher"
	return c
}

func TestValidateDefaults(t *testing.T) {
	spec, err := valid().Validate()
	if err != nil {
		t.Fatal(err)
	}
	if spec.Geometry != (Geometry{1440, 900}) || spec.Deadline(Host) != 15*time.Second || spec.Deadline(Docker) != 30*time.Second {
		t.Fatalf("spec = %+v", spec)
	}
}

// N4: bad configuration is refused with all faults at once, each naming its field.
func TestN4AllFaultsAtOnce(t *testing.T) {
	c := Config{
		Isolation: "chroot", Geometry: "0x0", Depth: 23, DPI: 5000, MinFreeMemoryMB: -1, StartTimeout: "soon",
		KeyboardLayout: "us; rm -rf", Look: "shiny", PassEnv: []string{"A=B"}, Args: []string{"x"}, ExecRole: "root",
		ExposeDisplay: true, Watch: "nobody", Thumbnails: "large", Clipboard: "out", Takeover: "rough", AwayLimit: "soon", MaxGeometry: "big",
		AgentSocketMode: "0666", AgentSocketGroup: "a b", AgentSocketUIDs: []int64{-1}, ViewerPort: "a/b", ViewerTLSCert: "../x",
		BrowserExecutable: "chrome", BrowserArgs: []string{"--no-sandbox"}, BrowserStartURL: "javascript:x",
	}
	_, err := c.Validate()
	var faults Faults
	if !errors.As(err, &faults) {
		t.Fatalf("error = %v", err)
	}
	for _, field := range []string{"profile", "isolation", "geometry", "depth", "dpi", "min_free_memory_mb",
		"start_timeout", "keyboard_layout", "look", "pass_env", "args", "exec.role", "watch", "thumbnails", "clipboard", "takeover",
		"away_limit", "max_geometry", "agent_socket.mode", "agent_socket.group", "agent_socket.uids", "viewer.port", "viewer.tls_cert", "viewer.tls_key",
		"browser.executable", "browser.args", "browser.start_url"} {
		if !strings.Contains(err.Error(), field+":") {
			t.Errorf("no fault for %s in %q", field, err)
		}
	}
}

func TestValidateOneField(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*Config)
		want   string // empty: accepted
	}{
		"geometry zero":    {func(c *Config) { c.Geometry = "0x0" }, "geometry:"},
		"geometry huge":    {func(c *Config) { c.Geometry = "99999x99999" }, "geometry:"},
		"geometry words":   {func(c *Config) { c.Geometry = "1440x900; ls" }, "geometry:"},
		"geometry newline": {func(c *Config) { c.Geometry = "1440x900\n" }, "geometry:"},
		"geometry 4k":      {func(c *Config) { c.Geometry = "3840x2160" }, ""},
		"agent uids":       {func(c *Config) { c.AgentSocketUIDs, c.AgentSocketGroup = []int64{7, 8}, "bots" }, ""},
		"agent uids alone": {func(c *Config) { c.AgentSocketUIDs = []int64{7, 8} }, "agent_socket.group:"},
		"agent uids 0600": {func(c *Config) {
			c.AgentSocketUIDs, c.AgentSocketGroup, c.AgentSocketMode = []int64{7, 8}, "bots", "0600"
		}, "agent_socket.group:"},
		"order":                {func(c *Config) { c.IsolationOrder = []string{"apptainer", "docker", "host"} }, ""},
		"order of auto":        {func(c *Config) { c.IsolationOrder = []string{"auto"} }, "isolation_order: \"auto\" is not one of"},
		"order twice":          {func(c *Config) { c.IsolationOrder = []string{"docker", "docker"} }, "isolation_order:"},
		"order without use":    {func(c *Config) { c.Isolation, c.IsolationOrder = "docker", []string{"docker"} }, "isolation_order: is what"},
		"profile missing":      {func(c *Config) { c.Profile = "" }, "profile: is required"},
		"profile slash":        {func(c *Config) { c.Profile = "a/b" }, "profile:"},
		"profile dotdot":       {func(c *Config) { c.Profile = ".." }, "profile:"},
		"profile upper":        {func(c *Config) { c.Profile = "Bot" }, "profile:"},
		"profile dash":         {func(c *Config) { c.Profile = "-x" }, "profile:"},
		"profile long":         {func(c *Config) { c.Profile = strings.Repeat("a", 64) }, "profile:"},
		"profile 63":           {func(c *Config) { c.Profile = strings.Repeat("a", 63) }, ""},
		"profile newline":      {func(c *Config) { c.Profile = "bot\n" }, "profile:"},
		"floor off":            {func(c *Config) { c.MinFreeMemoryMB = 0 }, ""},
		"floor negative":       {func(c *Config) { c.MinFreeMemoryMB = -5 }, "min_free_memory_mb:"},
		"layouts":              {func(c *Config) { c.KeyboardLayout = "de(nodeadkeys),fr" }, ""},
		"layout option":        {func(c *Config) { c.KeyboardLayout = "-xkbdir" }, "keyboard_layout:"},
		"timeout":              {func(c *Config) { c.StartTimeout = "45s" }, ""},
		"timeout zero":         {func(c *Config) { c.StartTimeout = "0s" }, "start_timeout:"},
		"expose on host":       {func(c *Config) { c.Isolation, c.ExposeDisplay = "host", true }, ""},
		"expose in docker":     {func(c *Config) { c.Isolation, c.ExposeDisplay = "docker", true }, "expose_display:"},
		"command NUL":          {func(c *Config) { c.Command = "a\x00b" }, "command:"},
		"max geometry follows": {func(c *Config) { c.Geometry = "7680x4320" }, ""},
		"max geometry smaller": {func(c *Config) { c.MaxGeometry = "800x600" }, "max_geometry:"},
		"away limit":           {func(c *Config) { c.AwayLimit = "2h" }, ""},
		"away limit negative":  {func(c *Config) { c.AwayLimit = "-1s" }, "away_limit:"},
		"socket for all":       {func(c *Config) { c.AgentSocketMode = "0664" }, "agent_socket.mode:"},
		"socket for nobody":    {func(c *Config) { c.AgentSocketMode = "0060" }, "agent_socket.mode:"},
		"socket for a group":   {func(c *Config) { c.AgentSocketGroup, c.AgentSocketUIDs = "bots", []int64{1000, 0} }, ""},
		"no uid":               {func(c *Config) { c.AgentSocketUIDs = []int64{1<<32 - 1} }, "agent_socket.uids:"},
		"viewer":               {func(c *Config) { c.ViewerPort, c.ViewerTLSCert, c.ViewerTLSKey = "web", "local/a.pem", "secrets/k.pem" }, ""},
		"viewer without key":   {func(c *Config) { c.ViewerPort, c.ViewerTLSCert = "web", "local/a.pem" }, "viewer.tls_key:"},
		"viewer escapes":       {func(c *Config) { c.ViewerPort, c.ViewerTLSCert, c.ViewerTLSKey = "web", "a/../../b", "k" }, "viewer.tls_cert:"},
		"viewer without port":  {func(c *Config) { c.ViewerTLSCert, c.ViewerTLSKey = "a", "k" }, "viewer.port:"},
		"idle never":           {func(c *Config) { c.IdleStop = "0s" }, ""},
		"idle short":           {func(c *Config) { c.IdleStop = "10ms" }, "idle_stop:"},
		"idle freeze":          {func(c *Config) { c.IdleAction = "freeze" }, ""},
		"idle action":          {func(c *Config) { c.IdleAction = "hibernate" }, "idle_action:"},
		"isolation upper case": {func(c *Config) { c.Isolation = "Docker" }, "isolation:"},
	} {
		t.Run(name, func(t *testing.T) {
			c := valid()
			tc.change(&c)
			_, err := c.Validate()
			switch {
			case tc.want == "" && err != nil:
				t.Fatalf("refused: %v", err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Fatalf("error = %v, want %q", err, tc.want)
			}
		})
	}
}

// X42: whatever the names, a screen's paths stay inside the tree and short.
func FuzzX42Paths(f *testing.F) {
	for _, seed := range [][2]string{{"default", "bot"}, {"Team A", "x"}, {"..", ".."}, {"a/b", "c\x00"}, {"", ""}, {strings.Repeat("n", 200), "é"}} {
		f.Add(seed[0], seed[1])
	}
	f.Fuzz(func(t *testing.T, namespace, profile string) {
		id := ID{Namespace: namespace, Profile: Profile(profile)}
		for _, part := range []string{id.NamespaceDir(), id.ProfileDir(), id.Hash()} {
			if part != filepath.Base(part) || part == "." || part == ".." || part == "" || len(part) > 63 {
				t.Fatalf("unsafe path part %q", part)
			}
			if strings.ContainsAny(part, "/\x00\n ") {
				t.Fatalf("separator in %q", part)
			}
		}
		if path := filepath.Join("/run/botscreen", id.Hash(), "x", "rfb.sock"); len(path) > 100 {
			t.Fatalf("socket path of %d bytes", len(path))
		}
	})
}

// X32: text from inside a screen cannot reach a terminal as anything but text.
func FuzzX32Untrusted(f *testing.F) {
	for _, seed := range []string{"plain", "\x1b[31mred", "a\nb", "\u202egnp.exe", "\u2028", strings.Repeat("é", 500), "\xff\xfe", "漢字"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		got := Distrust(s).String()
		if len(got) > maxUntrusted || strings.ContainsAny(got, "\x00\x1b\n\r\u202e\u2028\u2029") {
			t.Fatalf("unsafe %q", got)
		}
		if again := Distrust(got).String(); again != got {
			t.Fatalf("not stable: %q then %q", got, again)
		}
	})
}
