// SPDX-License-Identifier: MPL-2.0

// Package relay stands between one Xvnc and everybody who uses its screen: people's
// viewers and the agent. All input goes over one connection that the relay owns, so
// that a change of hands has an order; every viewer has a second connection of its
// own for the picture. The relay knows nothing of Nomad, X or Terraform: it is given
// a dialer and the lease.
package relay
