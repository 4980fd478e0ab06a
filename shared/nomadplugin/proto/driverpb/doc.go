// SPDX-License-Identifier: MPL-2.0

// Package driverpb is the task driver service of Nomad's plugin protocol, generated from
// plugins/drivers/proto/driver.proto. Fields are those of Nomad 2.0.5; package nomadplugin has the rules
// that the messages alone do not express.
package driverpb
