// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/terraform-plugin-framework/attr"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/provider"
	"github.com/hashicorp/terraform-plugin-framework/types"

	"github.com/botscreen/botscreen/provider/connection"
	"github.com/botscreen/botscreen/shared/nomadjob"
)

// cluster is what resources know of the provider block. A nil one has no provider yet: the
// framework validates without.
type cluster struct {
	conn *connection.Client
	// unknown says that part of the connection comes from a resource that is not made yet.
	unknown bool
	// namespace is the default one; unknown while it comes from such a resource.
	namespace  types.String
	region     string
	prefix     string
	planChecks string
	jobs       jobCache
	planned    planned
	offers     offers
}

// known says whether the cluster can be asked.
func (c *cluster) known() bool { return c != nil && !c.unknown }

// Configure asks nobody and keeps everything lazy.
func (p *botscreen) Configure(ctx context.Context, req provider.ConfigureRequest, resp *provider.ConfigureResponse) {
	var m providerModel
	resp.Diagnostics.Append(req.Config.Get(ctx, &m)...)
	if resp.Diagnostics.HasError() {
		return
	}
	c, diags := m.cluster(ctx, p.userAgent(req.TerraformVersion))
	resp.Diagnostics.Append(diags...)
	if diags.HasError() {
		return
	}
	resp.ResourceData, resp.DataSourceData, resp.EphemeralResourceData = c, c, c
	resp.ActionData, resp.ListResourceData = c, c
}

func (p *botscreen) userAgent(terraform string) string {
	return fmt.Sprintf("terraform-provider-botscreen/%s (+https://github.com/botscreen/botscreen) Terraform/%s", p.version, terraform)
}

func (m providerModel) cluster(ctx context.Context, agent string) (*cluster, diag.Diagnostics) {
	var diags diag.Diagnostics
	s := connection.Settings{
		Address: or(m.Address, "NOMAD_ADDR"), Region: m.Region.ValueString(),
		HTTPAuth: or(m.HTTPAuth, "NOMAD_HTTP_AUTH"), CAPEM: m.CAPEM.ValueString(), CertPEM: m.CertPEM.ValueString(),
		KeyPEM: m.KeyPEM.ValueString(), TLSServerName: or(m.TLSServerName, "NOMAD_TLS_SERVER_NAME"),
		RequestTimeout: 30 * time.Second, MaxRetries: 4, UserAgent: agent,
	}
	if s.CAPEM == "" {
		s.CAFile = or(m.CAFile, "NOMAD_CACERT")
	}
	if s.CertPEM == "" {
		s.CertFile = or(m.CertFile, "NOMAD_CLIENT_CERT")
	}
	if s.KeyPEM == "" {
		s.KeyFile = or(m.KeyFile, "NOMAD_CLIENT_KEY")
	}
	s.SkipVerify = m.SkipVerify.ValueBool()
	if m.SkipVerify.IsNull() {
		s.SkipVerify, _ = strconv.ParseBool(os.Getenv("NOMAD_SKIP_VERIFY"))
	}
	if !m.MaxRetries.IsNull() {
		s.MaxRetries = int(m.MaxRetries.ValueInt64())
	}
	if d, err := time.ParseDuration(m.RequestTimeout.ValueString()); err == nil {
		s.RequestTimeout = d
	}
	diags.Append(m.Headers.ElementsAs(ctx, &s.Headers, true)...)
	diags.Append(m.token(ctx, &s)...)
	c := &cluster{
		conn: connection.New(s), unknown: m.unknown(), region: s.Region,
		namespace: m.Namespace, prefix: m.VariablePrefix.ValueString(), planChecks: m.PlanChecks.ValueString(),
	}
	if m.Namespace.IsNull() {
		c.namespace = types.StringValue(first(os.Getenv("BOTSCREEN_NAMESPACE"), "default"))
	}
	c.prefix = first(c.prefix, nomadjob.DefaultPrefix)
	c.planChecks = first(c.planChecks, "warn")
	return c, diags
}

// token fills in who asks: a token, or a login for one.
func (m providerModel) token(ctx context.Context, s *connection.Settings) diag.Diagnostics {
	if m.AuthJWT.IsNull() || m.AuthJWT.IsUnknown() {
		s.SecretID = or(m.SecretID, "NOMAD_TOKEN")
		return nil
	}
	var login struct {
		Method types.String `tfsdk:"auth_method"`
		Token  types.String `tfsdk:"login_token"`
	}
	diags := m.AuthJWT.As(ctx, &login, objectAs)
	s.AuthMethod, s.LoginToken = login.Method.ValueString(), login.Token.ValueString()
	return diags
}

// unknown says whether anything that a connection needs is not known yet.
func (m providerModel) unknown() bool {
	for _, v := range []attr.Value{
		m.Address, m.Region, m.SecretID, m.AuthJWT, m.HTTPAuth, m.Headers, m.CAFile, m.CAPEM, m.CertFile, m.CertPEM,
		m.KeyFile, m.KeyPEM, m.TLSServerName, m.SkipVerify, m.VariablePrefix, m.RequestTimeout, m.MaxRetries,
	} {
		if v.IsUnknown() {
			return true
		}
	}
	for _, v := range m.AuthJWT.Attributes() {
		if v.IsUnknown() {
			return true
		}
	}
	return false
}

// or is the value of the block, else of the environment. An empty text in the block is a
// value: it says "none".
func or(v types.String, variable string) string {
	if v.IsNull() {
		return os.Getenv(variable)
	}
	return v.ValueString()
}

func first(words ...string) string {
	for _, w := range words {
		if w != "" {
			return w
		}
	}
	return ""
}

// client gives Nomad's client; the diagnostic, where it cannot be had, says what to write.
func (c *cluster) client(ctx context.Context) (*api.Client, diag.Diagnostics) {
	var diags diag.Diagnostics
	switch {
	case c == nil || c.unknown:
		diags.AddError("The Nomad address is not known yet",
			"It, or another part of the connection, depends on a resource that is created in this apply. "+
				"Resources wait for it; a data source or an import cannot. Apply the cluster first, or read the value from the resource that made it.")
		return nil, diags
	case c.conn.Address() == "":
		diags.AddAttributeError(path.Root("address"), "No Nomad address",
			"Nothing says where Nomad is. Set `address` in the provider block, or the environment variable NOMAD_ADDR.")
		return nil, diags
	}
	client, err := c.conn.API(ctx)
	if err != nil {
		diags.Append(c.notConnected(err))
		return nil, diags
	}
	return client, diags
}

// notConnected says why there is no client: what is in the way, or a login that was refused.
func (c *cluster) notConnected(err error) diag.Diagnostic {
	var login *connection.LoginError
	if !errors.As(err, &login) {
		return c.explain(err, operation{doing: "connect"})
	}
	switch connection.Classify(err) {
	case connection.Unreachable, connection.Untrusted, connection.Foreign, connection.Setting:
		return c.explain(err, operation{doing: "log in"})
	}
	return diag.NewAttributeErrorDiagnostic(path.Root("auth_jwt"), "Nomad refused the login",
		fmt.Sprintf("Cannot log in with the authentication method %q: %s. Check that there is such a method, that login_token is from its issuer and has not expired, "+
			"and that a binding rule matches its claims. %s", login.Method, cause(login.Err), unchanged))
}

func (c *cluster) records(client *api.Client) nomadjob.Records {
	return nomadjob.Records{Client: client, Prefix: c.prefix}
}

// asCluster takes what Configure of the provider gave.
func asCluster(data any, into **cluster) {
	if c, ok := data.(*cluster); ok {
		*into = c
	}
}
