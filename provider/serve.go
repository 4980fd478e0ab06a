// SPDX-License-Identifier: MPL-2.0

package provider

import (
	"os"
	"runtime/debug"
	"strings"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6"
	"github.com/hashicorp/terraform-plugin-go/tfprotov6/tf6server"
)

// gcPercent lets the heap grow to one and a half of what is in use, not to twice: the calls'
// garbage is most of a provider's memory, and collecting it is cheap beside making it.
const gcPercent = 50

// Serve serves the provider to the CLI that has started this process, until it is told to
// end. Debugged, it waits for a debugger and says how to point a CLI at it.
func Serve(version string, debugged bool) error {
	quieten(os.Environ(), os.Setenv)
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(gcPercent)
	}
	var options []tf6server.ServeOpt
	if debugged {
		options = append(options, tf6server.WithManagedDebug())
	}
	return tf6server.Serve(Address, func() tfprotov6.ProviderServer { return NewServer(version) }, options...)
}

// Server is the provider as a CLI of any version speaks with it.
type Server interface {
	tfprotov6.ProviderServer
	tfprotov6.ListResourceServer
	tfprotov6.ActionServer
}

// NewServer makes the provider that Serve serves.
func NewServer(version string) Server {
	return &frugal{Server: providerserver.NewProtocol6(New(version)())().(Server)}
}

// quieten turns the libraries' logs off where the environment of the CLI asks for none. The
// CLI would drop them line by line: some twenty lines of trace for each call.
func quieten(environment []string, set func(key, value string) error) {
	for _, entry := range environment {
		if strings.HasPrefix(entry, "TF_LOG") {
			return
		}
	}
	for _, key := range []string{"TF_LOG_SDK", "TF_LOG_SDK_PROTO", "TF_LOG_SDK_FRAMEWORK", "TF_LOG_PROVIDER_BOTSCREEN"} {
		_ = set(key, "OFF") // without it they are only dropped later
	}
}
