// SPDX-License-Identifier: MPL-2.0

// terraform-provider-botscreen is the Terraform provider. Terraform and OpenTofu start it;
// with -debug it waits for a debugger and says how to point them at it.
package main

import (
	"context"
	"flag"
	"log"

	"github.com/hashicorp/terraform-plugin-framework/providerserver"

	"github.com/botscreen/botscreen/provider"
)

// version is set at build time.
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "run for a debugger such as delve")
	flag.Parse()
	err := providerserver.Serve(context.Background(), provider.New(version), providerserver.ServeOpts{
		Address: provider.Address, Debug: *debug, ProtocolVersion: 6,
	})
	if err != nil {
		log.Fatal(err)
	}
}
