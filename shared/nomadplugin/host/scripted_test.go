// SPDX-License-Identifier: MPL-2.0

package host

import (
	"context"
	"fmt"
	"net/rpc"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/hclspec"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/basepb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// scripted is a plugin without the SDK: it answers with raw messages, good or bad, as its script says,
// and notes every call in a file that all its processes share.
type scripted struct {
	basepb.UnimplementedBasePluginServer
	driverpb.UnimplementedDriverServer
	script map[string]string
	notes  string

	mu    sync.Mutex // guards exits
	exits map[string]chan struct{}
}

const scriptedFlag = "scripted-plugin"

func TestMain(m *testing.M) {
	if len(os.Args) > 3 && os.Args[1] == scriptedFlag {
		serveScript(os.Args[2], os.Args[3])
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func serveScript(script, notes string) {
	p := &scripted{script: map[string]string{}, notes: notes, exits: map[string]chan struct{}{}}
	for _, line := range strings.Fields(script) {
		key, value, _ := strings.Cut(line, "=")
		p.script[key] = value
	}
	if p.first("die_at_launch") {
		os.Exit(3)
	}
	logger := nomadplugin.NewLogger("scripted")
	logger.Warn("a warning of the plugin", "size", strings.Repeat("x", 100<<10))
	logger.Info("an information of the plugin")
	if _, ok := p.script["netrpc"]; ok {
		fmt.Println("1|2|unix|" + os.TempDir() + "/nothing|netrpc|")
		select {}
	}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: nomadplugin.Handshake,
		Plugins:         plugin.PluginSet{"base": rawPlugin{p}, "driver": rawPlugin{p}},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			server := grpc.NewServer(opts...)
			basepb.RegisterBasePluginServer(server, p)
			driverpb.RegisterDriverServer(server, p)
			return server
		},
		Logger: logger,
	})
}

type rawPlugin struct{ *scripted }

func (rawPlugin) Server(*plugin.MuxBroker) (any, error)              { return nil, nil }
func (rawPlugin) Client(*plugin.MuxBroker, *rpc.Client) (any, error) { return nil, nil }
func (rawPlugin) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error  { return nil }
func (rawPlugin) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, nil
}

// note appends a call to the notes.
func (p *scripted) note(format string, args ...any) {
	file, err := os.OpenFile(p.notes, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	defer file.Close()
	fmt.Fprintf(file, "%d "+format+"\n", append([]any{os.Getpid()}, args...)...)
}

// first is true once for a step of the script, over all processes.
func (p *scripted) first(step string) bool {
	if _, ok := p.script[step]; !ok {
		return false
	}
	file, err := os.OpenFile(p.notes+"."+step, os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return false
	}
	return file.Close() == nil
}

func (p *scripted) has(step string) bool { _, ok := p.script[step]; return ok }

func (p *scripted) PluginInfo(context.Context, *basepb.PluginInfoRequest) (*basepb.PluginInfoResponse, error) {
	p.note("PluginInfo")
	info := &basepb.PluginInfoResponse{Type: basepb.PluginType_DRIVER, PluginApiVersions: []string{"v0.1.0"}, PluginVersion: "1.0.0", Name: "scripted"}
	switch {
	case p.has("no_type"):
		info.Type = basepb.PluginType_UNKNOWN
	case p.has("api"):
		info.PluginApiVersions = []string{p.script["api"]}
	case p.has("version"):
		info.PluginVersion = p.script["version"]
	case p.has("no_name"):
		info.Name = ""
	case p.has("no_info"):
		return nil, status.Error(codes.Unknown, "no info today")
	}
	return info, nil
}

func (p *scripted) ConfigSchema(context.Context, *basepb.ConfigSchemaRequest) (*basepb.ConfigSchemaResponse, error) {
	p.note("ConfigSchema")
	if p.has("no_schema") {
		return &basepb.ConfigSchemaResponse{}, nil
	}
	return &basepb.ConfigSchemaResponse{Spec: hclspec.Object(hclspec.Fields{"n": hclspec.Attr("n", "number")})}, nil
}

func (p *scripted) SetConfig(_ context.Context, req *basepb.SetConfigRequest) (*basepb.SetConfigResponse, error) {
	p.note("SetConfig node=%v api=%s config=%x", req.GetNomadConfig() != nil, req.GetPluginApiVersion(), req.GetMsgpackConfig())
	if p.has("bad_config") {
		return nil, status.Error(codes.Unknown, "config refused")
	}
	return &basepb.SetConfigResponse{}, nil
}

func (p *scripted) Init(context.Context, *driverpb.InitRequest) (*driverpb.InitResponse, error) {
	p.note("Init")
	switch {
	case p.has("old"):
		return nil, status.Error(codes.Unimplemented, "unknown method Init")
	case p.has("bad_init"):
		return nil, status.Error(codes.Unknown, "init refused")
	}
	return &driverpb.InitResponse{}, nil
}

func (p *scripted) Shutdown(context.Context, *driverpb.ShutdownRequest) (*driverpb.ShutdownResponse, error) {
	p.note("Shutdown")
	if p.has("old") {
		return nil, status.Error(codes.Unimplemented, "unknown method Shutdown")
	}
	return &driverpb.ShutdownResponse{}, nil
}

func (p *scripted) TaskConfigSchema(context.Context, *driverpb.TaskConfigSchemaRequest) (*driverpb.TaskConfigSchemaResponse, error) {
	return &driverpb.TaskConfigSchemaResponse{Spec: hclspec.Object(nil)}, nil
}

func (p *scripted) Capabilities(context.Context, *driverpb.CapabilitiesRequest) (*driverpb.CapabilitiesResponse, error) {
	return &driverpb.CapabilitiesResponse{}, nil
}

// Fingerprint does what the script has for its nth call.
func (p *scripted) Fingerprint(_ *driverpb.FingerprintRequest, stream grpc.ServerStreamingServer[driverpb.FingerprintResponse]) error {
	p.note("Fingerprint")
	notes, err := os.ReadFile(p.notes)
	if err != nil {
		return err
	}
	f := &driverpb.FingerprintResponse{Health: driverpb.FingerprintResponse_HEALTHY, HealthDescription: "Healthy"}
	step := ""
	if steps, n := strings.Split(p.script["fingerprint"], ","), strings.Count(string(notes), " Fingerprint\n"); n <= len(steps) {
		step = steps[n-1]
	}
	switch step {
	case "dies":
		os.Exit(4)
	case "err":
		f.Err = "probe broke"
	}
	if err := stream.Send(f); err != nil {
		return err
	}
	switch step {
	case "err", "ends":
		return nil
	case "fails":
		return status.Error(codes.Unknown, "probe failed")
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

func (p *scripted) TaskEvents(_ *driverpb.TaskEventsRequest, stream grpc.ServerStreamingServer[driverpb.DriverTaskEvent]) error {
	p.note("TaskEvents")
	if err := stream.Send(&driverpb.DriverTaskEvent{TaskId: "a/t/1", Message: "event"}); err != nil || p.first("events_end") {
		return err
	}
	<-stream.Context().Done()
	return stream.Context().Err()
}

func (p *scripted) exit(id string) chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.exits[id] == nil {
		p.exits[id] = make(chan struct{})
	}
	return p.exits[id]
}

func (p *scripted) StartTask(_ context.Context, req *driverpb.StartTaskRequest) (*driverpb.StartTaskResponse, error) {
	task := req.GetTask()
	p.note("StartTask %s parent=%q", task.GetId(), task.GetParentJobId())
	if p.first("start_dies") || p.has("start_always_dies") {
		os.Exit(5)
	}
	resp := &driverpb.StartTaskResponse{Handle: &driverpb.TaskHandle{Version: 1, Config: task, DriverState: []byte("state")},
		NetworkOverride: &driverpb.NetworkOverride{Addr: "192.0.2.1"}}
	switch {
	case p.has("start_nil"):
		resp.Handle = nil
	case p.has("start_other"):
		resp.Handle.Config = &driverpb.TaskConfig{Id: "other"}
	case p.has("start_fatal"):
		resp.Result, resp.DriverErrorMsg = driverpb.StartTaskResponse_FATAL, "ignored"
	case p.has("start_error"):
		return nil, status.Error(codes.Unknown, "start refused")
	}
	return resp, nil
}

func (p *scripted) RecoverTask(_ context.Context, req *driverpb.RecoverTaskRequest) (*driverpb.RecoverTaskResponse, error) {
	config := req.GetHandle().GetConfig()
	p.note("RecoverTask id=%q handle=%s config=%d", req.GetTaskId(), config.GetId(), len(config.GetMsgpackDriverConfig()))
	if p.has("bad_recover") {
		return nil, status.Error(codes.Unknown, "recover refused")
	}
	return &driverpb.RecoverTaskResponse{}, nil
}

func (p *scripted) WaitTask(ctx context.Context, req *driverpb.WaitTaskRequest) (*driverpb.WaitTaskResponse, error) {
	p.note("WaitTask %s", req.GetTaskId())
	switch {
	case p.first("wait_dies"):
		os.Exit(6)
	case p.has("wait_nil"):
		return &driverpb.WaitTaskResponse{}, nil
	case p.has("wait_error"):
		return nil, status.Error(codes.Unknown, "task not found for given id")
	case p.has("wait_trouble"):
		return &driverpb.WaitTaskResponse{Result: &driverpb.ExitResult{}, Err: "trouble"}, nil
	case p.has("wait_exits"):
		return &driverpb.WaitTaskResponse{Result: &driverpb.ExitResult{ExitCode: 3}}, nil
	}
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-p.exit(req.GetTaskId()):
		return &driverpb.WaitTaskResponse{Result: &driverpb.ExitResult{ExitCode: 143, Signal: 15}}, nil
	}
}

func (p *scripted) StopTask(_ context.Context, req *driverpb.StopTaskRequest) (*driverpb.StopTaskResponse, error) {
	p.note("StopTask %v %q", req.GetTimeout().AsDuration(), req.GetSignal())
	if p.has("stop_fails") || p.first("stop_fails_once") {
		return nil, status.Error(codes.Unknown, "stop refused")
	}
	if p.has("stop_fails_but_ends") {
		close(p.exit(req.GetTaskId()))
		return nil, status.Error(codes.Unknown, "stop refused")
	}
	close(p.exit(req.GetTaskId()))
	return &driverpb.StopTaskResponse{}, nil
}

func (p *scripted) DestroyTask(_ context.Context, req *driverpb.DestroyTaskRequest) (*driverpb.DestroyTaskResponse, error) {
	p.note("DestroyTask force=%v", req.GetForce())
	return &driverpb.DestroyTaskResponse{}, nil
}

func (p *scripted) InspectTask(context.Context, *driverpb.InspectTaskRequest) (*driverpb.InspectTaskResponse, error) {
	full := &driverpb.TaskStatus{Result: &driverpb.ExitResult{}, StartedAt: timestamppb.Now(), CompletedAt: timestamppb.Now()}
	switch p.script["inspect"] {
	case "nothing":
		return &driverpb.InspectTaskResponse{}, nil
	case "result":
		full.Result = nil
	case "started":
		full.StartedAt = nil
	case "completed":
		full.CompletedAt = nil
	}
	return &driverpb.InspectTaskResponse{Task: full}, nil
}

func (p *scripted) TaskStats(_ *driverpb.TaskStatsRequest, stream grpc.ServerStreamingServer[driverpb.TaskStatsResponse]) error {
	good := &driverpb.TaskStats{Timestamp: timestamppb.Now(), AggResourceUsage: &driverpb.TaskResourceUsage{}}
	switch p.script["stats"] {
	case "nothing":
		good = nil
	case "usage":
		good.AggResourceUsage = nil
	case "time":
		good.Timestamp = nil
	}
	return stream.Send(&driverpb.TaskStatsResponse{Stats: good})
}

func (p *scripted) SignalTask(_ context.Context, req *driverpb.SignalTaskRequest) (*driverpb.SignalTaskResponse, error) {
	if p.has("signal_dies") {
		os.Exit(7)
	}
	return nil, status.Error(codes.Canceled, "signal "+req.GetSignal()+" refused")
}

func (p *scripted) ExecTask(context.Context, *driverpb.ExecTaskRequest) (*driverpb.ExecTaskResponse, error) {
	return &driverpb.ExecTaskResponse{}, nil
}

func (p *scripted) ExecTaskStreaming(stream grpc.BidiStreamingServer[driverpb.ExecTaskStreamingRequest, driverpb.ExecTaskStreamingResponse]) error {
	switch p.script["exec"] {
	case "nothing":
		return nil
	case "no_result":
		return stream.Send(&driverpb.ExecTaskStreamingResponse{Exited: true})
	case "twice":
		exit := &driverpb.ExecTaskStreamingResponse{Exited: true, Result: &driverpb.ExitResult{}}
		if err := stream.Send(exit); err != nil {
			return err
		}
		return stream.Send(exit)
	}
	return status.Error(codes.Unknown, "exec refused")
}
