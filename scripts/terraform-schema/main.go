// SPDX-License-Identifier: MPL-2.0

// Command terraform-schema completes the output of `terraform providers schema -json`,
// which it reads, with the actions and list resources that a Terraform before 1.14 leaves
// out: those it asks the provider itself for.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"

	"github.com/botscreen/botscreen/provider"
)

func main() {
	if err := run(os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "terraform-schema:", err)
		os.Exit(1)
	}
}

func run(in io.Reader, out io.Writer) error {
	var doc struct {
		FormatVersion string                    `json:"format_version"`
		Schemas       map[string]map[string]any `json:"provider_schemas"`
	}
	if err := json.NewDecoder(in).Decode(&doc); err != nil {
		return fmt.Errorf("read schema: %w", err)
	}
	server, err := providerserver.NewProtocol6WithError(provider.New("docs")())()
	if err != nil {
		return err
	}
	resp, err := server.GetProviderSchema(context.Background(), &tfprotov6.GetProviderSchemaRequest{})
	if err != nil {
		return err
	}
	for name, schemas := range doc.Schemas {
		actions, lists := map[string]any{}, map[string]any{}
		for kind, s := range resp.ActionSchemas {
			actions[kind] = map[string]any{"block": block(s.Schema)}
		}
		for kind, s := range resp.ListResourceSchemas {
			lists[kind] = map[string]any{"version": s.Version, "block": block(s)}
		}
		schemas["action_schemas"], schemas["list_resource_schemas"] = actions, lists
		doc.Schemas[name] = schemas
	}
	return json.NewEncoder(out).Encode(doc)
}

// block is a schema as Terraform prints it. Actions and lists have neither blocks nor
// nested attributes.
func block(s *tfprotov6.Schema) map[string]any {
	attributes := map[string]any{}
	for _, a := range s.Block.Attributes {
		attributes[a.Name] = map[string]any{
			"type": a.Type, "description": a.Description, "description_kind": "markdown",
			"required": a.Required, "optional": a.Optional, "sensitive": a.Sensitive,
		}
	}
	return map[string]any{"attributes": attributes, "description": s.Block.Description, "description_kind": "markdown"}
}
