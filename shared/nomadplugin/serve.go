// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"context"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"

	"github.com/botscreen/botscreen/shared/nomadplugin/proto/basepb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// What both sides agree on before the first call.
const (
	// APIVersion is the only version of Nomad's plugin API.
	APIVersion = "v0.1.0"
	// BasePluginName and DriverPluginName are the services by the names go-plugin dispenses.
	BasePluginName   = "base"
	DriverPluginName = "driver"
	// MaxMessageBytes is the largest request a driver accepts. A task's environment may be large;
	// gRPC's own limit of 4 MiB would refuse it.
	MaxMessageBytes = 64 << 20
)

// Handshake tells a plugin that an agent started it. It is no secret.
var Handshake = plugin.HandshakeConfig{
	ProtocolVersion:  2,
	MagicCookieKey:   "NOMAD_PLUGIN_MAGIC_COOKIE",
	MagicCookieValue: "e4327c2e01eabfd75a8a67adb114fb34a757d57eee7728d857a8cec6e91a7255",
}

// NewLogger writes the JSON lines that an agent reads from a plugin's standard error and prints at
// its own level. Make it before Serve and use it for everything: after Serve has begun, other output
// of the process reaches the agent only as unstructured lines.
func NewLogger(name string) hclog.Logger {
	return hclog.New(&hclog.LoggerOptions{
		Name:       name,
		Level:      hclog.Trace,
		Output:     os.Stderr,
		JSONFormat: true,
	})
}

// Serve offers the driver to the agent that started this process and returns when the agent ends it;
// main should then return without touching the tasks. The process exits when the agent dies before it
// has made use of the driver, and Serve returns when no agent called for 10 min and the driver is an
// [Idler] that is idle. Started by anything else it prints what the program is and exits with
// status 1. Serve does not set SIGPIPE to ignored but handles it, so that
// the loss of the agent's pipe is harmless here while children start with the default.
func Serve(driver Driver, logger hclog.Logger) { serveUntil(driver, logger, forsakenAfter) }

// serveUntil is Serve with another limit for a process without an agent.
func serveUntil(driver Driver, logger hclog.Logger, limit time.Duration) {
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	g := &guard{logger: logger, first: sync.OnceFunc(adoptStdio), used: untilUsed(unix.Stdout, func() { os.Exit(0) })}
	plugin.Serve(&plugin.ServeConfig{
		HandshakeConfig: Handshake,
		Plugins: plugin.PluginSet{
			BasePluginName:   &servedBase{server: &baseServer{driver: driver}},
			DriverPluginName: &servedDriver{server: &driverServer{driver: driver, logger: logger}},
		},
		GRPCServer: func(opts []grpc.ServerOption) *grpc.Server {
			server := newGRPCServer(opts, g)
			g.call = attend(limit, func() bool { return idle(driver) }, func() {
				logger.Info("no agent has called for " + limit.String() + " and there is nothing to look after: the plugin ends")
				server.Stop()
			}).call
			return server
		},
		Logger: logger,
	})
}

func idle(driver Driver) bool {
	d, ok := driver.(Idler)
	return ok && d.Idle()
}

func newGRPCServer(opts []grpc.ServerOption, g *guard) *grpc.Server {
	// The children of a driver have no business with the invitation of the agent.
	_ = os.Unsetenv(Handshake.MagicCookieKey)
	return grpc.NewServer(append(opts,
		grpc.MaxRecvMsgSize(MaxMessageBytes),
		grpc.ChainUnaryInterceptor(g.unary),
		grpc.ChainStreamInterceptor(g.stream),
	)...)
}

// adoptStdio lets what libraries print end in the agent's log. By the time of the first call go-plugin
// has replaced os.Stdout and os.Stderr by pipes whose content every agent throws away and which
// block the writer as soon as no agent reads; here those pipes are replaced by the real standard
// error, below the os.File, so that nobody's variable changes.
func adoptStdio() {
	for _, file := range []*os.File{os.Stdout, os.Stderr} {
		conn, err := file.SyscallConn()
		if err != nil {
			continue
		}
		_ = conn.Control(func(fd uintptr) {
			if fd > 2 {
				_ = unix.Dup3(2, int(fd), unix.O_CLOEXEC)
			}
		})
	}
}

type servedBase struct {
	plugin.NetRPCUnsupportedPlugin
	server *baseServer
}

func (p *servedBase) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	basepb.RegisterBasePluginServer(s, p.server)
	return nil
}

func (p *servedBase) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, ErrNotSupported
}

type servedDriver struct {
	plugin.NetRPCUnsupportedPlugin
	server *driverServer
}

func (p *servedDriver) GRPCServer(_ *plugin.GRPCBroker, s *grpc.Server) error {
	driverpb.RegisterDriverServer(s, p.server)
	return nil
}

func (p *servedDriver) GRPCClient(context.Context, *plugin.GRPCBroker, *grpc.ClientConn) (any, error) {
	return nil, ErrNotSupported
}
