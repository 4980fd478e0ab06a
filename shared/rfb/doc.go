// SPDX-License-Identifier: MPL-2.0

// Package rfb is the remote framebuffer protocol (RFC 6143 and the extensions of
// rfbproto) as far as botscreen speaks it: the handshake and the framing of both
// sides, a client that takes pictures, and what is done with a picture.
//
// Lengths that the other side declares are bounded before anything is allocated
// or read for them.
package rfb
