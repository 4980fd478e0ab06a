// SPDX-License-Identifier: MPL-2.0

// Package basepb is the service every Nomad plugin offers, generated from plugins/base/proto/base.proto.
package basepb
