// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"context"
	"fmt"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/hashicorp/terraform-plugin-framework/resource/schema/planmodifier"
	"github.com/hashicorp/terraform-plugin-framework/schema/validator"
)

// describe is the text half of a validator.
type describe string

func (d describe) Description(context.Context) string         { return string(d) }
func (d describe) MarkdownDescription(context.Context) string { return string(d) }

// value is what is to be validated; false while there is none.
func value(req validator.StringRequest) (string, bool) {
	return req.ConfigValue.ValueString(), !req.ConfigValue.IsNull() && !req.ConfigValue.IsUnknown()
}

type addressValidator struct{ describe }

func (addressValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	text, ok := value(req)
	if !ok || text == "" {
		return
	}
	u, err := url.Parse(text)
	good := err == nil && ((u.Scheme == "http" || u.Scheme == "https") && u.Host != "" || u.Scheme == "unix" && u.Path != "")
	if !good || u != nil && u.User != nil {
		// The text is not repeated: it may hold a password.
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid address",
			"`address` must be http://HOST:PORT, https://HOST:PORT or unix:///PATH, without user and password (use http_auth).")
	}
}

var namespaceForm = regexp.MustCompile(`^[a-zA-Z0-9-]{1,128}$`)

type namespaceValidator struct{ describe }

func (namespaceValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	if text, ok := value(req); ok && !namespaceForm.MatchString(text) {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid namespace",
			fmt.Sprintf("`namespace` must be one Nomad namespace: 1 to 128 letters, digits and hyphens, not a wildcard; it is %q.", text))
	}
}

var prefixForm = regexp.MustCompile(`^[a-zA-Z0-9_~-]+(/[a-zA-Z0-9_~-]+)*$`)

type prefixValidator struct{ describe }

func (prefixValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	text, ok := value(req)
	if ok && (!prefixForm.MatchString(text) || len(text) > 48 || text == "nomad" || strings.HasPrefix(text, "nomad/")) {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid variable_prefix",
			fmt.Sprintf("`variable_prefix` must be a path of letters, digits, -, _ and ~, at most 48 bytes, not below nomad/ (Nomad keeps that to itself); it is %q.", text))
	}
}

// durationValidator takes durations of at least so many nanoseconds.
type durationValidator struct {
	describe
	least, most time.Duration
}

func (v durationValidator) ValidateString(_ context.Context, req validator.StringRequest, resp *validator.StringResponse) {
	text, ok := value(req)
	if !ok {
		return
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < v.least || v.most > 0 && d > v.most {
		resp.Diagnostics.AddAttributeError(req.Path, "Invalid duration",
			fmt.Sprintf("`%s` must be a duration such as \"30s\" or \"1h30m\"%s; it is %q.", req.Path, v.bounds(), text))
	}
}

func (v durationValidator) bounds() string {
	switch {
	case v.most > 0:
		return fmt.Sprintf(", from %s to %s", v.least, v.most)
	case v.least > 0:
		return ", more than 0"
	}
	return ""
}

// sameDuration keeps the old spelling of a duration that did not change: 90m is 1h30m.
type sameDuration struct{ describe }

func (sameDuration) PlanModifyString(_ context.Context, req planmodifier.StringRequest, resp *planmodifier.StringResponse) {
	if req.StateValue.IsNull() || req.PlanValue.IsNull() || req.PlanValue.IsUnknown() {
		return
	}
	old, err := time.ParseDuration(req.StateValue.ValueString())
	if err != nil {
		return
	}
	if now, err := time.ParseDuration(req.PlanValue.ValueString()); err == nil && now == old {
		resp.PlanValue = req.StateValue
	}
}
