// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"runtime"
	"testing"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"
)

// What a call was given ends with its answer: a run of a thousand objects is no larger at its
// end than at its start, whatever the framework remembers.
func TestCallsAreLetGoOf(t *testing.T) {
	server := NewServer("test")
	schema, err := server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	const kind, calls, each = "botscreen_profile", 50, 1 << 20
	config := configOf(t, schema.ResourceSchemas[kind], map[string]tftypes.Value{"name": tftypes.NewValue(tftypes.String, "x")})
	type key struct{}
	for range calls {
		ctx := context.WithValue(t.Context(), key{}, make([]byte, each))
		resp, err := server.ValidateResourceConfig(ctx, &tfprotov6.ValidateResourceConfigRequest{TypeName: kind, Config: config})
		if err != nil || len(resp.Diagnostics) > 0 {
			t.Fatal(err, resp.Diagnostics)
		}
	}
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	if m.HeapAlloc > calls*each/2 {
		t.Errorf("%d MiB are kept after %d calls with 1 MiB each", m.HeapAlloc>>20, calls)
	}
	runtime.KeepAlive(server)
}

// A call sees the context it was given, its end too, and afterwards a cancelled one.
func TestLentContext(t *testing.T) {
	type key struct{}
	from, cancel := context.WithCancelCause(context.WithValue(t.Context(), key{}, "value"))
	var kept context.Context
	answer, err := lend(from, "request", func(ctx context.Context, request string) (string, error) {
		kept = ctx
		inner, end := context.WithCancel(ctx) // as the framework makes one
		defer end()
		if ctx.Value(key{}) != "value" || ctx.Err() != nil || inner.Err() != nil {
			t.Errorf("the call sees %v, %v", ctx.Value(key{}), ctx.Err())
		}
		cancel(nil)
		<-ctx.Done()
		<-inner.Done()
		return request + " answered", ctx.Err()
	})
	if answer != "request answered" || !errors.Is(err, context.Canceled) {
		t.Errorf("answer %q, %v", answer, err)
	}
	<-kept.Done()
	if kept.Value(key{}) != nil || !errors.Is(kept.Err(), context.Canceled) {
		t.Errorf("after the answer: %v, %v", kept.Value(key{}), kept.Err())
	}
}

// The libraries' logs are off only where the CLI was asked for none.
func TestQuieten(t *testing.T) {
	for _, tc := range []struct {
		environment []string
		want        int
	}{
		{[]string{"PATH=/bin", "NOMAD_ADDR=x"}, 4},
		{[]string{"PATH=/bin", "TF_LOG=TRACE"}, 0},
		{[]string{"TF_LOG_PROVIDER_BOTSCREEN=debug"}, 0},
		{[]string{"TF_LOG_SDK_PROTO_DATA_DIR=/tmp/x"}, 0},
	} {
		set := map[string]string{}
		quieten(tc.environment, func(key, value string) error { set[key] = value; return nil })
		if len(set) != tc.want || tc.want > 0 && set["TF_LOG_SDK"] != "OFF" {
			t.Errorf("%v: %v", tc.environment, set)
		}
	}
}
