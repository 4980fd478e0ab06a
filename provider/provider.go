// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"

	"github.com/hashicorp/terraform-plugin-framework-validators/int64validator"
	"github.com/hashicorp/terraform-plugin-framework-validators/stringvalidator"
	"github.com/hashicorp/terraform-plugin-framework/action"
	"github.com/hashicorp/terraform-plugin-framework/datasource"
	"github.com/hashicorp/terraform-plugin-framework/ephemeral"
	"github.com/hashicorp/terraform-plugin-framework/function"
	"github.com/hashicorp/terraform-plugin-framework/list"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/provider/schema"
	"github.com/hashicorp/terraform-plugin-framework/resource"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
	"github.com/hashicorp/terraform-plugin-framework/types"
)

// Address is the provider's name in the registries.
const Address = "registry.terraform.io/botscreen/botscreen"

// New gives a function that makes the provider, as the framework wants it.
func New(version string) func() provider.Provider {
	return func() provider.Provider { return &botscreen{version: version} }
}

type botscreen struct{ version string }

var (
	_ provider.Provider                       = (*botscreen)(nil)
	_ provider.ProviderWithFunctions          = (*botscreen)(nil)
	_ provider.ProviderWithEphemeralResources = (*botscreen)(nil)
	_ provider.ProviderWithActions            = (*botscreen)(nil)
	_ provider.ProviderWithListResources      = (*botscreen)(nil)
)

func (p *botscreen) Metadata(_ context.Context, _ provider.MetadataRequest, resp *provider.MetadataResponse) {
	resp.TypeName, resp.Version = "botscreen", p.version
}

func (p *botscreen) Resources(context.Context) []func() resource.Resource {
	return []func() resource.Resource{newProfile, newPlacement, newImage, newScreen}
}

func (p *botscreen) DataSources(context.Context) []func() datasource.DataSource {
	return []func() datasource.DataSource{
		newProfileData, newPlacementData, newImageData, newScreenData, newScreensData, newNodesData, newCheckData, newImagesData,
	}
}

func (p *botscreen) EphemeralResources(context.Context) []func() ephemeral.EphemeralResource {
	return []func() ephemeral.EphemeralResource{newTicket}
}

func (p *botscreen) Actions(context.Context) []func() action.Action {
	return []func() action.Action{newRestartAction, newStopAction, newRevokeAction}
}

func (p *botscreen) ListResources(context.Context) []func() list.ListResource {
	return []func() list.ListResource{newProfileList, newPlacementList, newImageList, newScreenList}
}

func (p *botscreen) Functions(context.Context) []func() function.Function {
	return []func() function.Function{newImageRef, newRecordRef}
}

// providerModel is the provider block.
type providerModel struct {
	Address        types.String `tfsdk:"address"`
	Region         types.String `tfsdk:"region"`
	Namespace      types.String `tfsdk:"namespace"`
	SecretID       types.String `tfsdk:"secret_id"`
	AuthJWT        types.Object `tfsdk:"auth_jwt"`
	HTTPAuth       types.String `tfsdk:"http_auth"`
	Headers        types.Map    `tfsdk:"headers"`
	CAFile         types.String `tfsdk:"ca_file"`
	CAPEM          types.String `tfsdk:"ca_pem"`
	CertFile       types.String `tfsdk:"cert_file"`
	CertPEM        types.String `tfsdk:"cert_pem"`
	KeyFile        types.String `tfsdk:"key_file"`
	KeyPEM         types.String `tfsdk:"key_pem"`
	TLSServerName  types.String `tfsdk:"tls_server_name"`
	SkipVerify     types.Bool   `tfsdk:"skip_verify"`
	VariablePrefix types.String `tfsdk:"variable_prefix"`
	PlanChecks     types.String `tfsdk:"plan_checks"`
	RequestTimeout types.String `tfsdk:"request_timeout"`
	MaxRetries     types.Int64  `tfsdk:"max_retries"`
}

func (p *botscreen) Schema(_ context.Context, _ provider.SchemaRequest, resp *provider.SchemaResponse) {
	text := func(description string, validators ...validator.String) schema.StringAttribute {
		return schema.StringAttribute{Optional: true, MarkdownDescription: description, Validators: validators}
	}
	secret := func(description string, validators ...validator.String) schema.StringAttribute {
		a := text(description, validators...)
		a.Sensitive = true
		return a
	}
	not := func(other string) validator.String { return stringvalidator.ConflictsWith(path.MatchRoot(other)) }
	resp.Schema = schema.Schema{
		MarkdownDescription: "Desktops for bots, on a Nomad cluster whose nodes have the driver `botscreen`.\n\n" +
			"The connection's names are those of the provider `hashicorp/nomad`. What stands in the block wins over the environment. " +
			"`NOMAD_NAMESPACE` and `NOMAD_REGION` are not read: they belong to whatever Terraform itself runs in. " +
			"Nothing is asked before a resource or a data source needs it, so the address may be that of a cluster which the same apply creates.",
		Attributes: map[string]schema.Attribute{
			"address":         text("Where Nomad is: `http://`, `https://` or `unix://`. Default: `NOMAD_ADDR`. There is no built-in default.", addressValidator{}),
			"region":          text("Nomad region. Default: the agent's."),
			"namespace":       text("Nomad namespace of resources that name none. Default: `BOTSCREEN_NAMESPACE`, else `default`.", namespaceValidator{}),
			"secret_id":       secret("Nomad token. Default: `NOMAD_TOKEN`. May be an ephemeral value.", not("auth_jwt")),
			"auth_jwt":        authJWT(),
			"http_auth":       secret("HTTP basic authentication, `user` or `user:password`, for a proxy in front of Nomad. Default: `NOMAD_HTTP_AUTH`."),
			"headers":         schema.MapAttribute{Optional: true, Sensitive: true, ElementType: types.StringType, MarkdownDescription: "Further HTTP headers of every request."},
			"ca_file":         text("File with the certificate authorities, PEM. Default: `NOMAD_CACERT`.", not("ca_pem")),
			"ca_pem":          text("Certificate authorities, PEM."),
			"cert_file":       text("File with the client certificate, PEM. Default: `NOMAD_CLIENT_CERT`.", not("cert_pem")),
			"cert_pem":        text("Client certificate, PEM."),
			"key_file":        text("File with the client certificate's key, PEM. Default: `NOMAD_CLIENT_KEY`.", not("key_pem")),
			"key_pem":         secret("The client certificate's key, PEM."),
			"tls_server_name": text("Name that the server's certificate must have, where it is not the address's. Default: `NOMAD_TLS_SERVER_NAME`."),
			"skip_verify": schema.BoolAttribute{Optional: true,
				MarkdownDescription: "Accept any server certificate. Default: `NOMAD_SKIP_VERIFY`, else `false`."},
			"variable_prefix": text("First part of the path of every record (Nomad variable). Default: `botscreen`.", prefixValidator{}),
			"plan_checks": text("What a screen that no node can host now does to the plan: `error`, `warn` (default) or `off`. At apply it is always an error.",
				stringvalidator.OneOf("error", "warn", "off")),
			"request_timeout": text("How long one request may take, for example `30s` (default).", durationValidator{least: 1}),
			"max_retries": schema.Int64Attribute{Optional: true, Validators: []validator.Int64{int64validator.Between(0, 10)},
				MarkdownDescription: "How often a reading request is tried again after trouble on the way, and a writing one that nobody took. Default: 4."},
		},
	}
}

func authJWT() schema.SingleNestedAttribute {
	return schema.SingleNestedAttribute{
		Optional:            true,
		MarkdownDescription: "Log in with a JSON web token on first use, instead of `secret_id`.",
		Attributes: map[string]schema.Attribute{
			"auth_method": schema.StringAttribute{Required: true, MarkdownDescription: "Name of Nomad's authentication method."},
			"login_token": schema.StringAttribute{Required: true, Sensitive: true, MarkdownDescription: "The JSON web token. May be an ephemeral value."},
		},
	}
}
