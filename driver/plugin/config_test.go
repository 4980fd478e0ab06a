// SPDX-License-Identifier: MPL-2.0

package plugin

import (
	"context"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"golang.org/x/sys/unix"

	"github.com/botscreen/botscreen/driver/cgroup"
	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/hclconfig"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/basepb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
	"github.com/botscreen/botscreen/shared/screen"
)

// encode takes the way of a `config` block from a user's text to the driver's bytes.
func encode(t *testing.T, spec *nomadplugin.Spec, text string, env map[string]string) ([]byte, error) {
	t.Helper()
	config, err := hclconfig.ParseHCL(text)
	if err != nil {
		t.Fatal(err)
	}
	return hclconfig.Encode(spec, config, hclconfig.Variables{Env: env})
}

func newDriver(t *testing.T) *Driver {
	t.Helper()
	d, err := New(hclog.NewNullLogger())
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func TestOperatorConfig(t *testing.T) {
	for name, tc := range map[string]struct {
		text string
		want []string // in the error; none: accepted
	}{
		"empty":      {"", nil},
		"allowed":    {`allow_unsandboxed_host = true`, nil},
		"all":        {"isolation_order = [\"apptainer\", \"host\"]\nstate_dir = \"/srv/bs\"\nrun_dir = \"/run/x\"\ndisplays = \"30-40\"\nuid_range = \"5000-5999\"\nmin_uid = 500\nallowed_users = [\"bot\"]\nallowed_groups = [\"audio\"]\nexec { role = \"viewer\" }", nil},
		"displays":   {`displays = "from here"`, []string{"displays:"}},
		"order":      {`isolation_order = ["auto"]`, []string{"isolation_order:"}},
		"relative":   {`state_dir = "here"`, []string{"state_dir:"}},
		"root":       {`run_dir = "/"`, []string{"run_dir:"}},
		"uids":       {`uid_range = "10-5"`, []string{"uid_range:"}},
		"min uid":    {`min_uid = 0`, []string{"min_uid:"}},
		"tcp engine": {"docker {\n  endpoint = \"tcp://10.0.0.1:2375\"\n}", []string{"docker.endpoint"}},
		"engine":     {"default_image = \"desk:1\"\ndocker {\n  endpoint = \"unix:///run/other.sock\"\n}", nil},
		"apptainer":  {"apptainer {\n  path = \"/opt/apptainer/bin/apptainer\"\n  image_dirs = [\"/srv/images\"]\n}", nil},
		"apptainers": {"apptainer {\n  path = \"bin/apptainer\"\n  image_dirs = [\"/\", \"images\"]\n}", []string{"apptainer.path:", "apptainer.image_dirs: \"/\"", "apptainer.image_dirs: \"images\""}},
		"images":     {"require_digest = true\nmax_image_mb = 4096\nvolumes {\n  enabled = true\n  allow = [\"/srv\"]\n}", nil},
		"no images":  {"max_image_mb = -1\nvolumes {\n  allow = [\"/\", \"srv\"]\n}", []string{"max_image_mb:", "volumes.allow: \"/\"", "volumes.allow: \"srv\""}},
		"exec role":  {`exec { role = "boss" }`, []string{"exec.role:"}},
		"several":    {"displays = \"x\"\nuid_range = \"y\"\nstate_dir = \"z\"", []string{"displays:", "uid_range:", "state_dir:"}},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			d := newDriver(t)
			config, err := encode(t, d.ConfigSchema(), tc.text, nil)
			if err != nil {
				t.Fatal(err)
			}
			err = d.SetConfig(t.Context(), &nomadplugin.SetConfigRequest{MsgpackConfig: config})
			for _, want := range tc.want {
				if err == nil || !strings.Contains(err.Error(), want) {
					t.Errorf("error %v, want %q", err, want)
				}
			}
			if len(tc.want) == 0 && err != nil {
				t.Error(err)
			}
		})
	}
}

// N1a, NMD-01: SetConfig touches nothing outside the process, however often it comes.
func TestN1aSetConfigHasNoEffect(t *testing.T) {
	dir := t.TempDir()
	d := newDriver(t)
	config, err := encode(t, d.ConfigSchema(), "state_dir = \""+dir+"/state\"\nrun_dir = \""+dir+"/run\"", nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, node := range []*nomadplugin.NodeConfig{nil, {Driver: &basepb.NomadDriverConfig{}}} {
		if err := d.SetConfig(t.Context(), &nomadplugin.SetConfigRequest{MsgpackConfig: config, NomadConfig: node}); err != nil {
			t.Fatal(err)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 0 {
		t.Errorf("made %v, %v", entries, err)
	}
}

func TestJobConfig(t *testing.T) {
	request := func(t *testing.T, text string, env map[string]string) (screen.Spec, error) {
		config, err := encode(t, jobSchema(), text, env)
		if err != nil {
			return screen.Spec{}, err
		}
		r, err := taskRequest(&nomadplugin.TaskConfig{Id: "a/b/c", Name: "b", AllocDir: "/alloc", MsgpackDriverConfig: config, Env: env})
		return r.Spec, err
	}
	spec, err := request(t, `profile = "bot-${NOMAD_ALLOC_INDEX}"
geometry = "1024x768"
args = ["-c", "echo $${HOME}"]
command = "sh"
exec {
  shell = false
}`, map[string]string{"NOMAD_ALLOC_INDEX": "7"})
	if err != nil {
		t.Fatal(err)
	}
	if spec.Profile != "bot-7" || spec.Geometry != (screen.Geometry{WidthPx: 1024, HeightPx: 768}) || spec.MinFreeMemoryMB != 1536 {
		t.Errorf("spec %+v", spec)
	}
	// NMD-16: interpolated once; what is escaped stays as it is.
	if spec.Args[1] != "echo ${HOME}" {
		t.Errorf("args %q", spec.Args)
	}
	if spec.Exec.Shell || spec.Exec.Role != screen.RoleOperator {
		t.Errorf("exec %+v", spec.Exec)
	}
	for text, want := range map[string]string{
		"":               "profile: is required",
		`colour = "red"`: "colour",
		"profile = \"a\"\nimage = \"-v /:/host\"":                             "image:",
		"profile = \"a\"\ndpi = 1.5":                                          "dpi",
		"profile = \"a\"\ndepth = \"deep\"":                                   "depth",
		"profile = \"a\"\nbrowser { args = [\"--remote-debugging-port=0\"] }": "browser.args",
		"profile = \"a\"\nexec { sudo = true }":                               "sudo",
		"profile = \"a\"\ngeometry = \"${nope}\"":                             "Variables not allowed",
	} {
		if _, err := request(t, text, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: error %v, want %q", text, err, want)
		}
	}
}

// An agent that sends no bytes at all means all defaults.
func TestDefaultsAgree(t *testing.T) {
	config, err := encode(t, jobSchema(), `profile = "a"`, nil)
	if err != nil {
		t.Fatal(err)
	}
	decoded, fallback := jobConfig{}, defaultJob()
	fallback.Profile = "a"
	if err := nomadplugin.DecodeConfig(config, &decoded); err != nil {
		t.Fatal(err)
	}
	a, errA := decoded.config().Validate()
	b, errB := fallback.config().Validate()
	if errA != nil || errB != nil || !reflect.DeepEqual(a.Takeover, b.Takeover) || !reflect.DeepEqual(a.AgentSocket, b.AgentSocket) || a.Viewer != b.Viewer ||
		a.Browser.Enabled != b.Browser.Enabled || a.Browser.Sandbox != b.Browser.Sandbox || !a.Browser.Enabled || !a.Browser.Sandbox ||
		a.Geometry != b.Geometry || a.Isolation != b.Isolation || a.Exec != b.Exec || a.Look != b.Look || a.DPI != b.DPI {
		t.Errorf("schema %+v %v\ncode %+v %v", a, errA, b, errB)
	}
}

// What a job says of people and doors arrives in the driver.
func TestJobPolicies(t *testing.T) {
	config, err := encode(t, jobSchema(), `
profile    = "a"
isolation_order = ["apptainer", "docker"]
watch      = "blank"
thumbnails = "off"
clipboard  = "both"
takeover   = "clean"
away_limit = "2h"
consent    = true
max_geometry = "1920x1080"
agent_socket {
  mode  = "0600"
  group = "bots"
  uids  = [1000]
}
browser {
  executable = "/opt/chrome/chrome"
  args       = ["--lang=de"]
  sandbox    = false
  start_url  = "https://example.org/"
}
viewer {
  port     = "web"
  tls_cert = "local/cert.pem"
  tls_key  = "secrets/key.pem"
}`, nil)
	if err != nil {
		t.Fatal(err)
	}
	var decoded jobConfig
	if err := nomadplugin.DecodeConfig(config, &decoded); err != nil {
		t.Fatal(err)
	}
	spec, err := decoded.config().Validate()
	if err != nil {
		t.Fatal(err)
	}
	want := screen.TakeoverPolicy{
		Watch: screen.WatchBlank, Thumbnails: screen.ThumbnailsOff, Clipboard: screen.ClipboardBoth, Takeover: screen.TakeoverClean,
		AwayLimit: 2 * time.Hour, Consent: true, MaxGeometry: screen.Geometry{WidthPx: 1920, HeightPx: 1080},
	}
	socket := screen.AgentSocket{Mode: 0o600, Group: "bots", UIDs: []uint32{1000}}
	viewer := screen.ViewerListener{Port: "web", TLSCert: "local/cert.pem", TLSKey: "secrets/key.pem"}
	browser := screen.BrowserOptions{Enabled: true, Executable: "/opt/chrome/chrome", Args: []string{"--lang=de"}, StartURL: "https://example.org/"}
	if !reflect.DeepEqual(spec.Browser, browser) {
		t.Errorf("browser %+v", spec.Browser)
	}
	if order := []screen.Isolation{screen.Apptainer, screen.Docker}; !slices.Equal(spec.IsolationOrder, order) {
		t.Errorf("isolation_order %v, want %v", spec.IsolationOrder, order)
	}
	if spec.Takeover != want || !reflect.DeepEqual(spec.AgentSocket, socket) || spec.Viewer == nil || *spec.Viewer != viewer {
		t.Errorf("spec %+v, viewer %+v", spec, spec.Viewer)
	}
}

// NMD-10: memory_max = -1 is no limit, and never a limit of -1 MiB or of the reservation.
func TestNMD10Limits(t *testing.T) {
	resources := func(max, limit int64) *driverpb.Resources {
		return &driverpb.Resources{
			AllocatedResources: &driverpb.AllocatedTaskResources{Memory: &driverpb.AllocatedMemoryResources{MemoryMb: 512, MemoryMaxMb: max}},
			LinuxResources:     &driverpb.LinuxResources{MemoryLimitBytes: limit, CpuShares: 100},
		}
	}
	for name, tc := range map[string]struct {
		resources *driverpb.Resources
		want      uint64
	}{
		"unlimited": {resources(-1, 512<<20), 0},
		"absent":    {resources(0, 512<<20), 512 << 20},
		"higher":    {resources(1024, 1024<<20), 1024 << 20},
		"none":      {nil, 0},
	} {
		if got := limits(tc.resources); got.MemoryBytes != tc.want || got.PidsMax != maxThreads {
			t.Errorf("%s: %+v, want %d bytes", name, got, tc.want)
		}
	}
}

func TestSignals(t *testing.T) {
	for name, want := range map[string]unix.Signal{"SIGTERM": unix.SIGTERM, "hup": unix.SIGHUP, "SigUsr1": unix.SIGUSR1, "": 0, "SIGBOGUS": 0, "9": 0} {
		got, err := parseSignal(name)
		if got != want || (err == nil) != (want != 0) {
			t.Errorf("%q: %v, %v", name, got, err)
		}
	}
}

// Per cent of one core, ticks in MHz of the node's share.
func TestStatsRates(t *testing.T) {
	s := sampler{mhz: 2000, pids: map[int]cpuReading{}}
	at := time.Now()
	usage := func(user, system time.Duration) isolation.Usage {
		return isolation.Usage{Stats: cgroup.Stats{CPU: &cgroup.CPUStats{Total: user + system, User: user, System: system}}}
	}
	if first := s.sample(usage(time.Second, time.Second), at).GetAggResourceUsage().GetCpu(); first.GetPercent() != 0 {
		t.Errorf("a first sample knows no rate: %v", first)
	}
	cpu := s.sample(usage(1500*time.Millisecond, 1250*time.Millisecond), at.Add(time.Second)).GetAggResourceUsage().GetCpu()
	if cpu.GetUserMode() != 50 || cpu.GetSystemMode() != 25 || cpu.GetPercent() != 75 || cpu.GetTotalTicks() != 1500 {
		t.Errorf("cpu %v", cpu)
	}
	topology := &basepb.ClientTopology{Cores: []*basepb.ClientTopologyCore{{BaseSpeed: 1000}, {GuessSpeed: 3000}}}
	if got := totalMHz(topology); got != 2000 {
		t.Errorf("a core's share is %v MHz", got)
	}
}

func TestUnknownTask(t *testing.T) {
	d := newDriver(t)
	if _, err := d.WaitTask(context.Background(), "nobody"); err != nomadplugin.ErrTaskNotFound {
		t.Errorf("error %v", err)
	}
	if err := d.RecoverTask(t.Context(), &nomadplugin.TaskHandle{Version: 0}); err == nil {
		t.Error("a handle of version 0 was accepted")
	}
}

// What a job says of its sandbox arrives in the driver; without a word of it the
// defaults hold.
func TestJobSandbox(t *testing.T) {
	read := func(text string) screen.Spec {
		t.Helper()
		config, err := encode(t, jobSchema(), text, nil)
		if err != nil {
			t.Fatal(err)
		}
		var decoded jobConfig
		if err := nomadplugin.DecodeConfig(config, &decoded); err != nil {
			t.Fatal(err)
		}
		spec, err := decoded.config().Validate()
		if err != nil {
			t.Fatal(err)
		}
		return spec
	}
	const whole = `
profile = "a"
docker {
  network_mode = "bridge"
  shm_size_mb  = 2048
  pids_limit   = 4096
  volumes      = ["local/data:/data:ro"]
  labels {
    team = "red"
  }
  auth {
    username = "robot"
    password = "CANARY"
  }
}
apptainer {
  binds    = ["local:/task"]
  writable = true
  tmpfs_mb = 256
}`
	spec := read(whole)
	docker := screen.DockerOptions{
		NetworkMode: screen.NetworkBridge, ShmSizeMB: 2048, PidsLimit: 4096,
		Volumes: []screen.Volume{{Source: "local/data", Target: "/data", ReadOnly: true}}, Labels: map[string]string{"team": "red"},
		Auth: screen.NewRegistryAuth("robot", "CANARY"),
	}
	apptainer := screen.ApptainerOptions{Binds: []screen.Volume{{Source: "local", Target: "/task"}}, Writable: true, TmpfsMB: 256}
	if !reflect.DeepEqual(spec.Docker, docker) || !reflect.DeepEqual(spec.Apptainer, apptainer) {
		t.Errorf("docker %+v, apptainer %+v", spec.Docker, spec.Apptainer)
	}
	// A driver that takes a task over hears of the credentials again, by Nomad's copy (X21).
	config, err := encode(t, jobSchema(), whole, nil)
	if err != nil {
		t.Fatal(err)
	}
	if auth := registryAuthOf(&nomadplugin.TaskConfig{MsgpackDriverConfig: config}); auth != docker.Auth {
		t.Errorf("taken over: %v", auth)
	}
	for _, text := range []string{`profile = "a"`, "profile = \"a\"\ndocker {}\napptainer {}"} {
		spec = read(text)
		if spec.Docker.NetworkMode != screen.NetworkNone || spec.Docker.PidsLimit+spec.Docker.ShmSizeMB+len(spec.Docker.Volumes)+len(spec.Docker.Labels) != 0 || !spec.Docker.Auth.IsZero() ||
			!reflect.DeepEqual(spec.Apptainer, screen.ApptainerOptions{}) {
			t.Errorf("%q: docker %+v, apptainer %+v", text, spec.Docker, spec.Apptainer)
		}
	}
}
