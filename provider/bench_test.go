// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/botscreen/botscreen/shared/nomadjob"
)

// BenchmarkProfile is what one profile costs the provider itself in a refresh and a plan
// without changes: the calls a CLI makes, without its way and without a cluster.
func BenchmarkProfile(b *testing.B) {
	spec, err := nomadjob.Canonical(nomadjob.DefaultProfile())
	if err != nil {
		b.Fatal(err)
	}
	agent := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(api.Variable{Namespace: "default", Path: "botscreen/profile/x", ModifyIndex: 7, Items: api.VariableItems{"schema": "1", "spec": string(spec)}})
	}))
	defer agent.Close()
	server, err := providerserver.NewProtocol6WithError(New("test")())()
	if err != nil {
		b.Fatal(err)
	}
	schema, err := server.GetProviderSchema(b.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		b.Fatal(err)
	}
	config := configOf(b, schema.Provider, map[string]tftypes.Value{"address": tftypes.NewValue(tftypes.String, agent.URL), "secret_id": tftypes.NewValue(tftypes.String, "x")})
	if _, err := server.ConfigureProvider(b.Context(), &tfprotov6.ConfigureProviderRequest{Config: config}); err != nil {
		b.Fatal(err)
	}
	const kind = "botscreen_profile"
	block := schema.ResourceSchemas[kind]
	name := map[string]tftypes.Value{"name": tftypes.NewValue(tftypes.String, "x")}
	prior := configOf(b, block, map[string]tftypes.Value{
		"name": name["name"], "namespace": tftypes.NewValue(tftypes.String, "default"), "id": tftypes.NewValue(tftypes.String, "x@default")})
	b.ReportAllocs()
	for b.Loop() {
		read, err := server.ReadResource(b.Context(), &tfprotov6.ReadResourceRequest{TypeName: kind, CurrentState: prior})
		if err != nil || len(read.Diagnostics) > 0 {
			b.Fatal(err, read.Diagnostics)
		}
		plan, err := server.PlanResourceChange(b.Context(), &tfprotov6.PlanResourceChangeRequest{
			TypeName: kind, PriorState: read.NewState, ProposedNewState: read.NewState, Config: configOf(b, block, name), PriorPrivate: read.Private})
		if err != nil || len(plan.Diagnostics) > 0 {
			b.Fatal(err, plan.Diagnostics)
		}
	}
}

// configOf is an object of a schema in which everything else is null.
func configOf(b testing.TB, schema *tfprotov6.Schema, set map[string]tftypes.Value) *tfprotov6.DynamicValue {
	b.Helper()
	object := schema.ValueType().(tftypes.Object)
	values := map[string]tftypes.Value{}
	for name, kind := range object.AttributeTypes {
		values[name] = tftypes.NewValue(kind, nil)
		if v, ok := set[name]; ok {
			values[name] = v
		}
	}
	out, err := tfprotov6.NewDynamicValue(object, tftypes.NewValue(object, values))
	if err != nil {
		b.Fatal(err)
	}
	return &out
}
