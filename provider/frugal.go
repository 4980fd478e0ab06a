// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// frugal passes on what a CLI asks for each object of a configuration in a context that
// lets go of everything with the answer. The framework (1.19) keeps the context of each call
// until the provider ends, to cancel it if the CLI stops it, and with it the call's loggers:
// 18 kB a call, six calls an object.
type frugal struct{ Server }

func (s *frugal) ValidateResourceConfig(ctx context.Context, req *tfprotov6.ValidateResourceConfigRequest) (*tfprotov6.ValidateResourceConfigResponse, error) {
	return lend(ctx, req, s.Server.ValidateResourceConfig)
}

func (s *frugal) UpgradeResourceState(ctx context.Context, req *tfprotov6.UpgradeResourceStateRequest) (*tfprotov6.UpgradeResourceStateResponse, error) {
	return lend(ctx, req, s.Server.UpgradeResourceState)
}

func (s *frugal) UpgradeResourceIdentity(ctx context.Context, req *tfprotov6.UpgradeResourceIdentityRequest) (*tfprotov6.UpgradeResourceIdentityResponse, error) {
	return lend(ctx, req, s.Server.UpgradeResourceIdentity)
}

func (s *frugal) ReadResource(ctx context.Context, req *tfprotov6.ReadResourceRequest) (*tfprotov6.ReadResourceResponse, error) {
	return lend(ctx, req, s.Server.ReadResource)
}

func (s *frugal) PlanResourceChange(ctx context.Context, req *tfprotov6.PlanResourceChangeRequest) (*tfprotov6.PlanResourceChangeResponse, error) {
	return lend(ctx, req, s.Server.PlanResourceChange)
}

func (s *frugal) ApplyResourceChange(ctx context.Context, req *tfprotov6.ApplyResourceChangeRequest) (*tfprotov6.ApplyResourceChangeResponse, error) {
	return lend(ctx, req, s.Server.ApplyResourceChange)
}

func (s *frugal) ImportResourceState(ctx context.Context, req *tfprotov6.ImportResourceStateRequest) (*tfprotov6.ImportResourceStateResponse, error) {
	return lend(ctx, req, s.Server.ImportResourceState)
}

func (s *frugal) MoveResourceState(ctx context.Context, req *tfprotov6.MoveResourceStateRequest) (*tfprotov6.MoveResourceStateResponse, error) {
	return lend(ctx, req, s.Server.MoveResourceState)
}

func (s *frugal) ValidateDataResourceConfig(ctx context.Context, req *tfprotov6.ValidateDataResourceConfigRequest) (*tfprotov6.ValidateDataResourceConfigResponse, error) {
	return lend(ctx, req, s.Server.ValidateDataResourceConfig)
}

func (s *frugal) ReadDataSource(ctx context.Context, req *tfprotov6.ReadDataSourceRequest) (*tfprotov6.ReadDataSourceResponse, error) {
	return lend(ctx, req, s.Server.ReadDataSource)
}

func (s *frugal) CallFunction(ctx context.Context, req *tfprotov6.CallFunctionRequest) (*tfprotov6.CallFunctionResponse, error) {
	return lend(ctx, req, s.Server.CallFunction)
}

func lend[Q, R any](ctx context.Context, req Q, call func(context.Context, Q) (R, error)) (R, error) {
	l := &lent{}
	l.from.Store(&ctx)
	defer l.from.Store(nil)
	return call(l, req)
}

// lent is another context until its call has ended, and a cancelled one after that.
type lent struct {
	from atomic.Pointer[context.Context]
}

var over = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func (l *lent) context() context.Context {
	if ctx := l.from.Load(); ctx != nil {
		return *ctx
	}
	return over
}

func (l *lent) Deadline() (time.Time, bool) { return l.context().Deadline() }
func (l *lent) Done() <-chan struct{}       { return l.context().Done() }
func (l *lent) Err() error                  { return l.context().Err() }
func (l *lent) Value(key any) any           { return l.context().Value(key) }
