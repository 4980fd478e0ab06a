// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"strings"

	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tftypes"

	"github.com/botscreen/botscreen/provider"
)

// served is the provider without a CLI between: the test speaks the protocol itself, for
// what only later CLIs than those at hand ask for.
type served struct {
	*bench
	server provider.Server
	schema *tfprotov6.GetProviderSchemaResponse
	opened map[string]string // what the newest ticket is
}

// serve makes a provider that is configured as the CLI's is.
func (b *bench) serve() *served {
	b.Helper()
	made := provider.NewServer("test")
	s := &served{bench: b, server: made}
	var err error
	if s.schema, err = made.GetProviderSchema(b.Context(), &tfprotov6.GetProviderSchemaRequest{}); err != nil {
		b.Fatal(err)
	}
	config := map[string]any{"address": b.proxy.URL, "secret_id": b.token, "variable_prefix": b.prefix}
	resp, err := made.ConfigureProvider(b.Context(), &tfprotov6.ConfigureProviderRequest{Config: s.dynamic(s.schema.Provider, config)})
	if err != nil {
		b.Fatal(err)
	}
	s.clean(resp.Diagnostics)
	return s
}

// dynamic is a configuration as a CLI sends it: what is not written is null.
func (s *served) dynamic(schema *tfprotov6.Schema, config map[string]any) *tfprotov6.DynamicValue {
	s.Helper()
	object := schema.ValueType().(tftypes.Object)
	values := map[string]tftypes.Value{}
	for name, kind := range object.AttributeTypes {
		values[name] = tftypes.NewValue(kind, nil)
	}
	for name, value := range config {
		if table, ok := value.(map[string]string); ok {
			elements := map[string]tftypes.Value{}
			for key, text := range table {
				elements[key] = tftypes.NewValue(tftypes.String, text)
			}
			value = elements
		}
		values[name] = tftypes.NewValue(object.AttributeTypes[name], value)
	}
	out, err := tfprotov6.NewDynamicValue(object, tftypes.NewValue(object, values))
	if err != nil {
		s.Fatal(err)
	}
	return &out
}

// invoke runs an action and gives what it said, progress and errors.
func (s *served) invoke(action string, config map[string]any) (progress, errors string) {
	s.Helper()
	schema := s.schema.ActionSchemas[action]
	if schema == nil {
		s.Fatalf("there is no action %s", action)
	}
	value := s.dynamic(schema.Schema, config)
	checked, err := s.server.ValidateActionConfig(s.Context(), &tfprotov6.ValidateActionConfigRequest{ActionType: action, Config: value})
	if err != nil {
		s.Fatal(err)
	}
	if text := words(checked.Diagnostics); text != "" {
		return "", text
	}
	planned, err := s.server.PlanAction(s.Context(), &tfprotov6.PlanActionRequest{ActionType: action, Config: value})
	if err != nil {
		s.Fatal(err)
	}
	s.clean(planned.Diagnostics)
	stream, err := s.server.InvokeAction(s.Context(), &tfprotov6.InvokeActionRequest{ActionType: action, Config: value})
	if err != nil {
		s.Fatal(err)
	}
	completed := false
	for event := range stream.Events {
		switch e := event.Type.(type) {
		case tfprotov6.ProgressInvokeActionEventType:
			progress += e.Message + "\n"
		case tfprotov6.CompletedInvokeActionEventType:
			completed, errors = true, words(e.Diagnostics)
		}
	}
	if !completed {
		s.Errorf("%s has no end", action)
	}
	return progress, errors
}

// works expects an action to succeed and to say all of the words.
func (s *served) works(action string, config map[string]any, words ...string) {
	s.Helper()
	progress, errors := s.invoke(action, config)
	if errors != "" {
		s.Fatalf("%s: %s", action, errors)
	}
	s.hasAll(progress, words)
}

// refuses expects an action to fail with all of the words.
func (s *served) refuses(action string, config map[string]any, words ...string) {
	s.Helper()
	progress, errors := s.invoke(action, config)
	if errors == "" {
		s.Fatalf("%s was done: %s", action, progress)
	}
	s.hasAll(errors, words)
}

func (s *served) hasAll(text string, words []string) {
	s.Helper()
	for _, w := range words {
		if !strings.Contains(text, w) {
			s.Errorf("no %q in %q", w, text)
		}
	}
}

func (s *served) clean(diags []*tfprotov6.Diagnostic) {
	s.Helper()
	if text := words(diags); text != "" {
		s.Fatal(text)
	}
}

// words are diagnostics as one text.
func words(diags []*tfprotov6.Diagnostic) string {
	var b strings.Builder
	for _, d := range diags {
		b.WriteString(d.Summary + ": " + d.Detail + "\n")
	}
	return b.String()
}

// listed is one result of a list: texts of its identity and its resource by attribute.
type listed struct {
	name               string
	identity, resource map[string]string
}

// list asks a list resource and expects no trouble.
func (s *served) list(resource string, config map[string]any, include bool, limit int64) []listed {
	s.Helper()
	schema := s.schema.ListResourceSchemas[resource]
	if schema == nil {
		s.Fatalf("there is no list resource %s", resource)
	}
	stream, err := s.server.ListResource(s.Context(), &tfprotov6.ListResourceRequest{
		TypeName: resource, Config: s.dynamic(schema, config), IncludeResource: include, Limit: limit,
	})
	if err != nil {
		s.Fatal(err)
	}
	identities, err := s.server.GetResourceIdentitySchemas(s.Context(), &tfprotov6.GetResourceIdentitySchemasRequest{})
	if err != nil {
		s.Fatal(err)
	}
	var out []listed
	for result := range stream.Results {
		s.clean(result.Diagnostics)
		one := listed{name: result.DisplayName, identity: s.texts(result.Identity.IdentityData, identities.IdentitySchemas[resource].ValueType())}
		if result.Resource != nil {
			one.resource = s.texts(result.Resource, s.schema.ResourceSchemas[resource].ValueType())
		}
		out = append(out, one)
	}
	return out
}

// texts are the attributes of an object that are texts.
func (s *served) texts(value *tfprotov6.DynamicValue, kind tftypes.Type) map[string]string {
	s.Helper()
	object, err := value.Unmarshal(kind)
	if err != nil {
		s.Fatal(err)
	}
	if object.IsNull() {
		return nil
	}
	all := map[string]tftypes.Value{}
	if err := object.As(&all); err != nil {
		s.Fatal(err)
	}
	out := map[string]string{}
	for name, v := range all {
		if text := ""; v.Type().Is(tftypes.String) && !v.IsNull() && v.As(&text) == nil {
			out[name] = text
		}
	}
	return out
}

// openTicket makes a viewer ticket as a run does; end closes it as the run's end does.
func (s *served) openTicket(screen string) (ticket string, end func()) {
	s.Helper()
	const resource = "botscreen_viewer_ticket"
	schema := s.schema.EphemeralResourceSchemas[resource]
	open, err := s.server.OpenEphemeralResource(s.Context(), &tfprotov6.OpenEphemeralResourceRequest{
		TypeName: resource, Config: s.dynamic(schema, map[string]any{"screen": screen}),
	})
	if err != nil {
		s.Fatal(err)
	}
	s.clean(open.Diagnostics)
	s.opened = s.texts(open.Result, schema.ValueType())
	ticket = s.opened["ticket"]
	if len(ticket) < 20 {
		s.Fatalf("a ticket of %d bytes", len(ticket))
	}
	return ticket, func() {
		s.Helper()
		closed, err := s.server.CloseEphemeralResource(s.Context(), &tfprotov6.CloseEphemeralResourceRequest{TypeName: resource, Private: open.Private})
		if err != nil {
			s.Fatal(err)
		}
		s.clean(closed.Diagnostics)
	}
}
