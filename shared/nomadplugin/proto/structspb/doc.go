// SPDX-License-Identifier: MPL-2.0

// Package structspb holds the messages that Nomad's plugin kinds share, generated from
// plugins/shared/structs/proto.
package structspb
