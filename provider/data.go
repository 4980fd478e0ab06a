// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/datasource/schema"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// computedText is what a data source finds.
func computedText(description string) schema.StringAttribute {
	return schema.StringAttribute{Computed: true, MarkdownDescription: description}
}

// dataNamespace is where a data source looks.
func dataNamespace() schema.StringAttribute {
	return schema.StringAttribute{Optional: true, Computed: true, Validators: []validator.String{namespaceValidator{}},
		MarkdownDescription: "Nomad namespace. Default: the provider's."}
}

// ask reads what a data source is asked for into a model and connects. A namespace that
// is not given is the provider's; nil: the model has none.
func (c *cluster) ask(ctx context.Context, req datasource.ReadRequest, into any, namespace *types.String, diags *diag.Diagnostics) *api.Client {
	diags.Append(req.Config.Get(ctx, into)...)
	client, more := c.client(ctx)
	diags.Append(more...)
	if !diags.HasError() && namespace != nil && namespace.IsNull() {
		*namespace = c.namespace
	}
	return client
}
