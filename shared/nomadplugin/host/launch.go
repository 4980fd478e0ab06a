// SPDX-License-Identifier: MPL-2.0

package host

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/hashicorp/go-plugin"
	"google.golang.org/grpc"

	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/basepb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// The range of a Nomad client; only TCP listeners use it.
const (
	minPort = 10000
	maxPort = 25000
)

// process is a running plugin and the one connection to it.
type process struct {
	client *plugin.Client
	conn   *grpc.ClientConn
	base   basepb.BasePluginClient
	driver driverpb.DriverClient
	// exited is done when the operating system says that the process is gone.
	exited context.Context
	pid    int
}

// dispenser hands out the connection: both services share it.
type dispenser struct{ plugin.NetRPCUnsupportedPlugin }

func (dispenser) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return nomadplugin.ErrNotSupported
}

func (dispenser) GRPCClient(exited context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return &process{
		conn:   conn,
		base:   basepb.NewBasePluginClient(conn),
		driver: driverpb.NewDriverClient(conn),
		exited: exited,
	}, nil
}

func (h *Host) clientConfig(services ...string) *plugin.ClientConfig {
	set := plugin.PluginSet{}
	for _, name := range services {
		set[name] = dispenser{}
	}
	return &plugin.ClientConfig{
		HandshakeConfig:  nomadplugin.Handshake,
		Plugins:          set,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		Logger:           h.options.Logger,
		StartTimeout:     h.options.StartTimeout,
		MinPort:          minPort,
		MaxPort:          maxPort,
	}
}

// launch executes the binary and connects. The context bounds the launch only.
func (h *Host) launch(ctx context.Context, services ...string) (*process, error) {
	running, kill := context.WithCancel(context.Background())
	stop := context.AfterFunc(ctx, kill)
	defer stop()
	config := h.clientConfig(services...)
	config.Cmd = exec.CommandContext(running, h.options.Path, h.options.Args...)
	p, err := connect(config, services[len(services)-1])
	if err == nil && !stop() {
		p.client.Kill()
		err = ctx.Err()
	}
	if err != nil {
		kill()
		if ctx.Err() != nil {
			err = ctx.Err()
		}
		return nil, fmt.Errorf("launch plugin %s: %w", h.options.Path, err)
	}
	p.pid = config.Cmd.Process.Pid
	// Whatever ends the process later, the context that could kill it ends with it.
	context.AfterFunc(p.exited, kill)
	return p, nil
}

func connect(config *plugin.ClientConfig, service string) (*process, error) {
	client := plugin.NewClient(config)
	protocol, err := client.Client()
	if err != nil {
		client.Kill()
		return nil, err
	}
	raw, err := protocol.Dispense(service)
	if err != nil {
		client.Kill()
		return nil, err
	}
	p, ok := raw.(*process)
	if !ok {
		client.Kill()
		return nil, fmt.Errorf("dispense %s: got %T", service, raw)
	}
	p.client = client
	return p, nil
}

// end asks the process to exit and kills it after go-plugin's 2 s, or at once when ctx is done. It
// returns when the process is gone.
func (p *process) end(ctx context.Context) {
	stop := context.AfterFunc(ctx, p.kill)
	defer stop()
	p.client.Kill()
}

// release drops the connection and whatever is still running over it. The process is left alone.
func (i *Instance) release() {
	i.cancel()
	_ = i.proc.conn.Close()
}

// announce is Shutdown outside of the instance's context, which is over by then.
func (i *Instance) announce(ctx context.Context) error {
	_, err := i.proc.driver.Shutdown(ctx, &driverpb.ShutdownRequest{})
	if i.dead() {
		return nil
	}
	return implemented(err)
}
