// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/hashicorp/terraform-plugin-framework/diag"
	"github.com/hashicorp/terraform-plugin-framework/path"
	"github.com/hashicorp/terraform-plugin-framework/types/basetypes"

	"github.com/botscreen/botscreen/provider/connection"
	"github.com/botscreen/botscreen/shared/nomadjob"
	"github.com/botscreen/botscreen/shared/screen"
)

// objectAs refuses nothing: unknown and null parts stay what they are.
var objectAs = basetypes.ObjectAsOptions{UnhandledNullAsEmpty: false, UnhandledUnknownAsEmpty: false}

// operation is what was tried when something went wrong, as far as a refusal depends on it.
type operation struct {
	doing     string // "read the profile \"desk\""
	namespace string
	// needs is what the token must be allowed, as a policy has it.
	needs string
	// kept says what is in the state now; empty where nothing was written.
	kept string
}

const unchanged = "State was not changed."

// explain puts an error of the cluster into words: what could not be done, why, what to do.
func (c *cluster) explain(err error, op operation) diag.Diagnostic {
	kept := first(op.kept, unchanged)
	address := "the address"
	if c != nil && c.conn != nil {
		address = c.conn.Address()
	}
	switch connection.Classify(err) {
	case connection.Denied:
		return diag.NewErrorDiagnostic("Nomad refused: the token may not "+op.doing, op.policy()+
			" Nomad answers an unknown, revoked or expired token in the same way. "+kept)
	case connection.BadToken:
		return diag.NewErrorDiagnostic("Nomad does not know this token",
			fmt.Sprintf("Cannot %s: the token in secret_id or NOMAD_TOKEN is malformed, was revoked, or has expired. Make another one with `nomad acl token create`. %s", op.doing, kept))
	case connection.Unreachable:
		return diag.NewErrorDiagnostic(fmt.Sprintf("Nomad at %s cannot be reached", address),
			fmt.Sprintf("Cannot %s: %s. %s", op.doing, cause(err), kept))
	case connection.Untrusted:
		return diag.NewErrorDiagnostic(fmt.Sprintf("The certificate of %s is not trusted", address),
			fmt.Sprintf("Cannot %s: %s. Name the authority with ca_file or ca_pem; where the certificate is for another name, name it with tls_server_name; "+
				"where the server asks for a client certificate, give cert_file and key_file. %s", op.doing, cause(err), kept))
	case connection.Foreign:
		var foreign *connection.ForeignError
		_ = errors.As(err, &foreign)
		return diag.NewErrorDiagnostic(fmt.Sprintf("The server at %s does not look like Nomad", address),
			fmt.Sprintf("Cannot %s: %s. Check `address`, and any proxy in front of Nomad. %s", op.doing, foreign.Detail, kept))
	case connection.Setting:
		var setting *connection.SettingError
		_ = errors.As(err, &setting)
		return diag.NewErrorDiagnostic("The connection to Nomad cannot be made",
			fmt.Sprintf("The provider's %s cannot be used: %s.", setting.Attribute, setting.Reason))
	}
	return c.explainOther(err, op, kept)
}

func (c *cluster) explainOther(err error, op operation, kept string) diag.Diagnostic {
	var newer *nomadjob.NewerError
	var damaged *nomadjob.DamagedError
	switch {
	case errors.As(err, &newer):
		return diag.NewErrorDiagnostic("This record was written by a newer version",
			fmt.Sprintf("Cannot %s: %s has schema %q, this provider knows %q. Nothing was overwritten. Upgrade the provider.", op.doing, newer.Path, newer.Schema, nomadjob.RecordSchema))
	case errors.As(err, &damaged):
		return diag.NewErrorDiagnostic("This record cannot be read",
			fmt.Sprintf("Cannot %s: the Nomad variable %s %s. Nothing was overwritten. Repair or delete it with `nomad var`, then plan again.", op.doing, damaged.Path, damaged.Reason))
	}
	return diag.NewErrorDiagnostic("Nomad did not do it", fmt.Sprintf("Cannot %s: %s. %s", op.doing, cause(err), kept))
}

// policy is the rule that the token lacks.
func (op operation) policy() string {
	if op.needs == "" {
		return "Give its policy the right to do so."
	}
	return fmt.Sprintf("Its policy needs, in namespace %q:\n\n%s\n\n", op.namespace, op.needs)
}

// cause is the innermost words of an error: addresses and verbs of HTTP are said once,
// and Nomad's own text stands without the client's frame.
func cause(err error) string {
	var answer api.UnexpectedResponseError
	if errors.As(err, &answer) {
		text := strings.TrimSpace(answer.Body())
		return screen.Distrust(fmt.Sprintf("Nomad answered %d: %s", answer.StatusCode(), text)).String()
	}
	for {
		inner := errors.Unwrap(err)
		if inner == nil {
			break
		}
		var request interface{ Timeout() bool }
		if errors.As(err, &request) && request.Timeout() && inner.Error() == "context deadline exceeded" {
			return "no answer in time (request_timeout)"
		}
		err = inner
	}
	return strings.TrimSuffix(screen.Distrust(err.Error()).String(), ".")
}

// faultPath is the attribute that a fault is about.
func faultPath(field string) path.Path {
	name, rest, indexed := strings.Cut(field, "[")
	if !indexed {
		name, member, nested := strings.Cut(field, ".")
		if nested {
			return path.Root(name).AtName(member)
		}
		return path.Root(name)
	}
	p := path.Root(name)
	var i int
	if _, err := fmt.Sscanf(rest, "%d]", &i); err != nil {
		return p
	}
	p = p.AtListIndex(i)
	if _, member, ok := strings.Cut(rest, "]."); ok {
		p = p.AtName(member)
	}
	return p
}

// addFaults reports each fault of a validation at its attribute.
func addFaults(diags *diag.Diagnostics, err error) {
	var faults screen.Faults
	if !errors.As(err, &faults) {
		if err != nil {
			diags.AddError("Invalid configuration", err.Error())
		}
		return
	}
	for _, f := range faults {
		if f.Want == nomadjob.HostRefused {
			diags.AddAttributeError(path.Root("isolation"), "Refusing to run desktops directly on the host",
				"This placement "+f.Want+".")
			continue
		}
		diags.AddAttributeError(faultPath(f.Field), "Invalid "+strings.FieldsFunc(f.Field, func(r rune) bool { return r == '[' || r == '.' })[0], sentence(f))
	}
}

// collections are attributes of which a fault names one element.
var collections = []string{"env", "secret_env", "labels", "isolation_order", "datacenters", "docker.labels", "agent_socket.uids", "browser.args"}

// sentence puts a fault into words.
func sentence(f screen.FieldError) string {
	switch {
	case f.Value == "":
		return fmt.Sprintf("`%s` %s.", f.Field, f.Want)
	case slices.Contains(collections, f.Field):
		return fmt.Sprintf("`%s`: %q %s.", f.Field, f.Value, f.Want)
	}
	return fmt.Sprintf("`%s` %s; it is %q.", f.Field, f.Want, screen.Distrust(f.Value))
}

// changed tells of a lost check-and-set.
func changed(word, name string, err *nomadjob.ConflictError) diag.Diagnostic {
	summary := fmt.Sprintf("The %s %q was changed by someone else since this plan", word, name)
	who := ""
	if c := err.Current; c != nil {
		who = fmt.Sprintf(", by %s at %s", screen.Distrust(first(c.ChangedBy, "an unknown program")), c.ChangedAt.UTC().Format(time.DateTime+" UTC"))
	}
	return diag.NewErrorDiagnostic(summary, fmt.Sprintf("Its record %s has index %d%s; this change was planned against %d. "+
		"Nothing was written. Run plan again to see their change.", err.Path, err.Found, who, err.Planned))
}

// exists tells of a create over something that is there.
func exists(word, name, namespace, resource string) diag.Diagnostic {
	return diag.NewAttributeErrorDiagnostic(path.Root("name"),
		fmt.Sprintf("A %s named %q already exists in namespace %q", word, name, namespace),
		fmt.Sprintf("It was not touched. To manage it here, import it:\n\n  terraform import ADDRESS %s@%s\n\nwhere ADDRESS is this resource's, for example %s.this.", name, namespace, resource))
}
