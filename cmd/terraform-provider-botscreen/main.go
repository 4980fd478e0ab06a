// SPDX-License-Identifier: MPL-2.0

// terraform-provider-botscreen is the Terraform provider. Terraform and OpenTofu start it;
// with -debug it waits for a debugger and says how to point them at it.
package main

import (
	"flag"
	"log"

	"github.com/botscreen/botscreen/provider"
)

// version is set at build time.
var version = "dev"

func main() {
	debug := flag.Bool("debug", false, "run for a debugger such as delve")
	flag.Parse()
	if err := provider.Serve(version, *debug); err != nil {
		log.Fatal(err)
	}
}
