// SPDX-License-Identifier: MPL-2.0

package nomadplugin

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	"github.com/botscreen/botscreen/shared/nomadplugin/proto/basepb"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

// badDriver answers every call with what a test says, mostly with nothing.
type badDriver struct {
	Driver
	spec        *Spec
	caps        *Capabilities
	err         error
	fingerprint func(context.Context, func(*Fingerprint) error) error
	events      func(context.Context, func(*TaskEvent) error) error
	start       func(context.Context, *TaskConfig) (*TaskHandle, *NetworkOverride, error)
	wait        func(context.Context, TaskID) (*ExitResult, error)
	inspect     *TaskInspection
	stats       func(context.Context, func(*TaskStats) error) error
	exec        *ExecResult
	stream      func(context.Context, ExecRequest) (*ExitResult, error)
}

func (d *badDriver) Info() Info                                         { return Info{Name: "bad", Version: "1.0.0"} }
func (d *badDriver) ConfigSchema() *Spec                                { return d.spec }
func (d *badDriver) TaskConfigSchema() *Spec                            { return d.spec }
func (d *badDriver) Capabilities() *Capabilities                        { return d.caps }
func (d *badDriver) SetConfig(context.Context, *SetConfigRequest) error { return d.err }
func (d *badDriver) Init(context.Context) error                         { return d.err }
func (d *badDriver) Shutdown(context.Context) error                     { return d.err }

func (d *badDriver) Fingerprint(ctx context.Context, send func(*Fingerprint) error) error {
	return d.fingerprint(ctx, send)
}

func (d *badDriver) TaskEvents(ctx context.Context, send func(*TaskEvent) error) error {
	return d.events(ctx, send)
}

func (d *badDriver) StartTask(ctx context.Context, task *TaskConfig) (*TaskHandle, *NetworkOverride, error) {
	return d.start(ctx, task)
}

func (d *badDriver) RecoverTask(context.Context, *TaskHandle) error { return d.err }

func (d *badDriver) WaitTask(ctx context.Context, id TaskID) (*ExitResult, error) {
	return d.wait(ctx, id)
}

func (d *badDriver) StopTask(context.Context, TaskID, time.Duration, string) error { return d.err }
func (d *badDriver) DestroyTask(context.Context, TaskID, bool) error               { return d.err }
func (d *badDriver) SignalTask(context.Context, TaskID, string) error              { return d.err }

func (d *badDriver) InspectTask(context.Context, TaskID) (*TaskInspection, error) {
	return d.inspect, d.err
}

func (d *badDriver) TaskStats(ctx context.Context, _ TaskID, _ time.Duration, send func(*TaskStats) error) error {
	return d.stats(ctx, send)
}

func (d *badDriver) ExecTask(context.Context, TaskID, []string, time.Duration) (*ExecResult, error) {
	return d.exec, d.err
}

func (d *badDriver) ExecTaskStreaming(ctx context.Context, _ TaskID, req ExecRequest) (*ExitResult, error) {
	return d.stream(ctx, req)
}

// serve offers a driver over an in-memory connection, by the same server as Serve does.
func serve(t *testing.T, driver Driver) (basepb.BasePluginClient, driverpb.DriverClient) {
	t.Helper()
	logger := hclog.NewNullLogger()
	server := newGRPCServer(nil, &guard{logger: logger, first: func() {}, used: func() {}, call: func() func() { return func() {} }})
	basepb.RegisterBasePluginServer(server, &baseServer{driver: driver})
	driverpb.RegisterDriverServer(server, &driverServer{driver: driver, logger: logger})
	listener := bufconn.Listen(1 << 20)
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	conn, err := grpc.NewClient("passthrough:///memory", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		server.Stop()
		<-served
	})
	return basepb.NewBasePluginClient(conn), driverpb.NewDriverClient(conn)
}

func testContext(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}
