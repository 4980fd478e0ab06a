// SPDX-License-Identifier: MPL-2.0

package conformance

import (
	"context"
	"encoding/json"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/hashicorp/go-version"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/hclconfig"
	"github.com/botscreen/botscreen/shared/nomadplugin/host"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/basepb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

func (s *suite) launchChecks() {
	s.check("C16_without_cookie", (*suite).checkWithoutCookie)
	s.check("C17_C18_C19_handshake", (*suite).checkHandshake)
	s.check("C20_throw_away_launches", (*suite).checkThrowAway)
	s.check("C21_C22_C23_configuration", (*suite).checkConfiguration)
	s.check("C24_plugin_info", (*suite).checkInfo)
	s.check("C25_logs", (*suite).checkLogs)
	s.check("C26_nobody_drains", (*suite).checkNobodyDrains)
	s.check("C27_agent_pipe_lost", (*suite).checkPipeLost)
	s.check("C28_interrupt", (*suite).checkInterrupt)
	s.check("C29_controller_shutdown", (*suite).checkShutdown)
	s.check("C33_capabilities", (*suite).checkCapabilities)
}

func (s *suite) checkWithoutCookie() {
	cmd := exec.Command(s.Binary, s.Args...)
	var stdout, stderr strings.Builder
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	_ = cmd.Run()
	if code := cmd.ProcessState.ExitCode(); code != 1 {
		s.Errorf("exit code %d: want 1", code)
	}
	if strings.Contains(stdout.String(), "|") || stdout.Len()+stderr.Len() == 0 {
		s.Errorf("want a message for a person: stdout %q, stderr %q", stdout.String(), stderr.String())
	}
}

var handshakeLine = regexp.MustCompile(`^1\|2\|unix\|(/[^|]+)\|grpc\|\n$`)

func (s *suite) checkHandshake() {
	p := s.startRaw()
	if !handshakeLine.MatchString(p.handshake) {
		s.Fatalf("handshake %q", p.handshake)
	}
	ctx := s.soon()
	health, err := grpc_health_v1.NewHealthClient(p.conn).Check(ctx, &grpc_health_v1.HealthCheckRequest{Service: "plugin"})
	if err != nil || health.GetStatus() != grpc_health_v1.HealthCheckResponse_SERVING {
		s.Errorf("health of service plugin: %v, %v", health.GetStatus(), err)
	}
	if _, err := basepb.NewBasePluginClient(p.conn).PluginInfo(ctx, &basepb.PluginInfoRequest{}); err != nil {
		s.Errorf("base service: %v", err)
	}
	if _, err := driverpb.NewDriverClient(p.conn).Capabilities(ctx, &driverpb.CapabilitiesRequest{}); err != nil {
		s.Errorf("driver service on the same connection: %v", err)
	}
}

func (s *suite) checkThrowAway() {
	before, files := s.traces(), s.temporary()
	s.within(2*s.LaunchLimit, "two throw-away launches", func() {
		_, err := host.Load(s.soon(), s.options(nil))
		s.must(err)
	})
	if left := s.temporary(); !slices.Equal(left, files) {
		s.Errorf("temporary directory: got %q: want %q", left, files)
	}
	s.unchanged(before)
}

func (s *suite) temporary() (names []string) {
	s.Helper()
	entries, err := os.ReadDir(s.tmp)
	s.must(err)
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

func (s *suite) checkConfiguration() {
	p := s.startRaw()
	base, ctx := basepb.NewBasePluginClient(p.conn), s.soon()
	set := func(config []byte, node *nomadplugin.NodeConfig) error {
		_, err := base.SetConfig(ctx, &nomadplugin.SetConfigRequest{MsgpackConfig: config, NomadConfig: node, PluginApiVersion: nomadplugin.APIVersion})
		return err
	}
	schema, err := base.ConfigSchema(ctx, &basepb.ConfigSchemaRequest{})
	s.must(err)
	good, err := hclconfig.Encode(schema.GetSpec(), s.PluginConfig, hclconfig.Variables{})
	s.must(err)
	before := s.traces()
	s.check("C22_nothing_at_all", func(s *suite) { s.must(set(nil, nil)) })
	s.check("C21_twice", func(s *suite) {
		s.must(set(good, nil))
		s.must(set(good, host.LocalNode()))
		s.unchanged(before)
	})
	s.check("C23_malformed", func(s *suite) {
		for _, data := range []string{"\x92", "\xc1", "\xdf\xff\xff\xff\xff", "text"} {
			if err := set([]byte(data), nil); err == nil {
				s.Errorf("%q: accepted", data)
			}
		}
		s.must(set(good, nil))
	})
	s.check("C23_rejected", func(s *suite) {
		if s.RejectedConfig == nil {
			s.Skip("the target has no RejectedConfig")
		}
		bad, err := hclconfig.Encode(schema.GetSpec(), s.RejectedConfig, hclconfig.Variables{})
		s.must(err)
		if err := set(bad, nil); err == nil {
			s.Error("accepted")
		}
		s.must(set(good, nil))
	})
}

func (s *suite) checkInfo() {
	info, err := s.instance(s.host).PluginInfo(s.soon())
	s.must(err)
	if info.GetType() != basepb.PluginType_DRIVER || info.GetName() != s.Driver {
		s.Errorf("got %s %q: want DRIVER %q", info.GetType(), info.GetName(), s.Driver)
	}
	if versions := info.GetPluginApiVersions(); len(versions) != 1 || versions[0] != nomadplugin.APIVersion {
		s.Errorf("API versions %q: want only %q", versions, nomadplugin.APIVersion)
	}
	if _, err := version.NewVersion(info.GetPluginVersion()); err != nil {
		s.Errorf("version %q: %v", info.GetPluginVersion(), err)
	}
}

// exercise makes the plugin do and log something, without tasks.
func (s *suite) exercise(p *rawPlugin) {
	s.Helper()
	ctx := s.soon()
	base, driver := basepb.NewBasePluginClient(p.conn), driverpb.NewDriverClient(p.conn)
	schema, err := base.ConfigSchema(ctx, &basepb.ConfigSchemaRequest{})
	s.must(err)
	config, err := hclconfig.Encode(schema.GetSpec(), s.PluginConfig, hclconfig.Variables{})
	s.must(err)
	_, err = base.SetConfig(ctx, &nomadplugin.SetConfigRequest{MsgpackConfig: config, NomadConfig: host.LocalNode()})
	s.must(err)
	_, err = driver.Init(ctx, &driverpb.InitRequest{})
	s.must(err)
	stream, err := driver.Fingerprint(ctx, &driverpb.FingerprintRequest{})
	s.must(err)
	_, err = stream.Recv()
	s.must(err)
	for range 20 {
		if _, err := driver.StartTask(ctx, &driverpb.StartTaskRequest{Task: &nomadplugin.TaskConfig{Id: "a/t/1", MsgpackDriverConfig: []byte{0xc1}}}); err == nil {
			s.Error("a task with a malformed configuration started")
		}
	}
	_, err = driver.Shutdown(ctx, &driverpb.ShutdownRequest{})
	s.must(err)
}

func (s *suite) checkLogs() {
	p := s.startRaw()
	s.exercise(p)
	// The server may be gone before its answer is.
	_ = p.controller(s.soon())
	s.must(p.waitExit(patience))
	for _, line := range strings.Split(strings.TrimSpace(p.text()), "\n") {
		entry := map[string]any{}
		if err := json.Unmarshal([]byte(line), &entry); err != nil {
			s.Errorf("not a JSON line: %.200q", line)
			continue
		}
		for _, key := range []string{"@level", "@message", "@timestamp"} {
			if _, ok := entry[key].(string); !ok {
				s.Errorf("%s is no text in %.200q", key, line)
			}
		}
		if stamp, _ := entry["@timestamp"].(string); stamp != "" {
			if _, err := time.Parse("2006-01-02T15:04:05.000000Z07:00", stamp); err != nil {
				s.Errorf("timestamp: %v", err)
			}
		}
	}
}

func (s *suite) checkNobodyDrains() {
	p := s.startRaw()
	s.within(patience, "calls without a reader of the redirected output", func() { s.exercise(p) })
}

func (s *suite) checkPipeLost() {
	p := s.startRaw()
	s.must(p.logEnd.Close())
	for range 3 {
		s.exercise(p)
	}
	if p.waitExit(0) == nil {
		s.Error("the plugin died of the loss of its log")
	}
}

func (s *suite) checkInterrupt() {
	i := s.instance(s.host)
	s.must(syscall.Kill(i.PID(), syscall.SIGINT))
	s.must(syscall.Kill(i.PID(), syscall.SIGINT))
	_, err := i.Capabilities(s.soon())
	s.must(err)
}

func (s *suite) checkShutdown() {
	p := s.startRaw()
	s.exercise(p)
	s.within(2*time.Second, "the end of the process", func() {
		ctx, cancel := context.WithTimeout(s.soon(), 2*time.Second)
		defer cancel()
		_ = p.controller(ctx)
		if err := p.waitExit(patience); err != nil {
			s.Error(err)
		}
	})
}

func (s *suite) checkCapabilities() {
	i := s.instance(s.host)
	s.within(200*time.Millisecond, "capabilities", func() {
		_, err := i.Capabilities(s.soon())
		s.must(err)
	})
}
