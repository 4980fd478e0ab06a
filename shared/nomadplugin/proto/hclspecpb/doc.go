// SPDX-License-Identifier: MPL-2.0

// Package hclspecpb is the description of a configuration block as data, generated from
// plugins/shared/hclspec/hcl_spec.proto. Package hclspec builds such descriptions.
package hclspecpb
