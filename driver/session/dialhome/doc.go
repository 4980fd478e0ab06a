// SPDX-License-Identifier: MPL-2.0

// Package dialhome is the wire between a session and its supervisor (wire.md
// section 3): JSON packets with passed descriptors on a SOCK_SEQPACKET socket.
// The session is not trusted: the supervisor's half bounds every packet, owns every
// descriptor the moment it arrives and ends the connection at anything unasked.
package dialhome
