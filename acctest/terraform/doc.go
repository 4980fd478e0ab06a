// SPDX-License-Identifier: MPL-2.0

// Package terraform holds the acceptance tests of the Terraform provider: the built
// binaries, a real Terraform and a real OpenTofu, the embedded agent and a real Nomad.
package terraform
