// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"encoding/json"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
)

// served is everything the provider tells a CLI about itself.
func served(t *testing.T) *tfprotov6.GetProviderSchemaResponse {
	t.Helper()
	server, err := providerserver.NewProtocol6WithError(New("test")())()
	if err != nil {
		t.Fatal(err)
	}
	resp, err := server.GetProviderSchema(t.Context(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range resp.Diagnostics {
		t.Errorf("%s: %s", d.Summary, d.Detail)
	}
	return resp
}

// T-DOC: every attribute says what it is.
func TestDescriptions(t *testing.T) {
	resp := served(t)
	check := func(name string, s *tfprotov6.Schema) {
		if s.Block.Description == "" && name != "provider" {
			t.Errorf("%s has no description", name)
		}
		attributes(t, name, s.Block.Attributes)
	}
	check("provider", resp.Provider)
	for name, s := range resp.ResourceSchemas {
		check(name, s)
	}
	for name, s := range resp.DataSourceSchemas {
		check("data "+name, s)
	}
	for name, s := range resp.EphemeralResourceSchemas {
		check("ephemeral "+name, s)
	}
	for name, s := range resp.ActionSchemas {
		check("action "+name, s.Schema)
	}
	for name, s := range resp.ListResourceSchemas {
		check("list "+name, s)
	}
	for name, f := range resp.Functions {
		if f.Description == "" || f.Summary == "" {
			t.Errorf("function %s has no description", name)
		}
	}
	got := []int{len(resp.ResourceSchemas), len(resp.DataSourceSchemas), len(resp.EphemeralResourceSchemas), len(resp.Functions), len(resp.ActionSchemas), len(resp.ListResourceSchemas)}
	if want := []int{4, 8, 1, 2, 3, 4}; !slices.Equal(got, want) {
		t.Errorf("resources, data sources, ephemeral resources, functions, actions, lists: %v, want %v", got, want)
	}
}

func attributes(t *testing.T, path string, all []*tfprotov6.SchemaAttribute) {
	t.Helper()
	for _, a := range all {
		// The library for timeouts describes its object itself, in its members.
		if a.Description == "" && a.Name != "timeouts" {
			t.Errorf("%s.%s has no description", path, a.Name)
		}
		if a.NestedType != nil {
			attributes(t, path+"."+a.Name, a.NestedType.Attributes)
		}
	}
}

// TFM-08: what is a secret is marked as one, and nothing else that sounds like one is there.
func TestSecretsAreMarked(t *testing.T) {
	secrets := map[string]bool{"secret_id": true, "http_auth": true, "headers": true, "key_pem": true, "login_token": true, "ticket": true, "url": true}
	var walk func(path string, all []*tfprotov6.SchemaAttribute)
	walk = func(path string, all []*tfprotov6.SchemaAttribute) {
		for _, a := range all {
			if a.Sensitive != secrets[a.Name] {
				t.Errorf("%s.%s: sensitive is %v", path, a.Name, a.Sensitive)
			}
			if a.NestedType != nil {
				walk(path+"."+a.Name, a.NestedType.Attributes)
			}
		}
	}
	resp := served(t)
	walk("provider", resp.Provider.Block.Attributes)
	for name, s := range resp.ResourceSchemas {
		walk(name, s.Block.Attributes)
	}
	for name, s := range resp.EphemeralResourceSchemas {
		walk(name, s.Block.Attributes)
	}
}

// T-DOC: the registry is told the protocol that is served.
func TestManifest(t *testing.T) {
	text, err := os.ReadFile("terraform-registry-manifest.json")
	if err != nil {
		t.Fatal(err)
	}
	var manifest struct {
		Metadata struct {
			Versions []string `json:"protocol_versions"`
		} `json:"metadata"`
	}
	if err := json.Unmarshal(text, &manifest); err != nil {
		t.Fatal(err)
	}
	serve, err := os.ReadFile("serve.go")
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Metadata.Versions) != 1 || manifest.Metadata.Versions[0] != "6.0" || !strings.Contains(string(serve), "tf6server.Serve(") {
		t.Errorf("the manifest says %v", manifest.Metadata.Versions)
	}
}

// T-DOC: the generated pages have every attribute there is; `make terraform-docs` writes them.
func TestPagesAreComplete(t *testing.T) {
	resp := served(t)
	check := func(page string, s *tfprotov6.Schema) {
		text, err := os.ReadFile("../docs/terraform/" + page)
		if err != nil {
			t.Error(err)
			return
		}
		for _, a := range s.Block.Attributes {
			if !strings.Contains(string(text), "- `"+a.Name+"` (") || a.Description != "" && !strings.Contains(string(text), a.Description) {
				t.Errorf("%s is not up to date about %s: run `make terraform-docs`", page, a.Name)
			}
		}
	}
	check("index.md", resp.Provider)
	for name, s := range resp.ResourceSchemas {
		check("resources/"+strings.TrimPrefix(name, "botscreen_")+".md", s)
	}
	for name, s := range resp.DataSourceSchemas {
		check("data-sources/"+strings.TrimPrefix(name, "botscreen_")+".md", s)
	}
	for name, s := range resp.ActionSchemas {
		check("actions/"+strings.TrimPrefix(name, "botscreen_")+".md", s.Schema)
	}
	for name, s := range resp.ListResourceSchemas {
		check("list-resources/"+strings.TrimPrefix(name, "botscreen_")+".md", s)
	}
	for name, s := range resp.EphemeralResourceSchemas {
		check("ephemeral-resources/"+strings.TrimPrefix(name, "botscreen_")+".md", s)
	}
}
