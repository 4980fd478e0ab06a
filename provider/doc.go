// SPDX-License-Identifier: MPL-2.0

// Package provider is the Terraform provider: schema, plan logic and CRUD. What profiles,
// placements and screens are, and how they become jobs and records, is in shared/.
package provider
