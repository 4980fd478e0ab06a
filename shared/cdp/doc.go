// SPDX-License-Identifier: MPL-2.0

// Package cdp shares one browser among many clients of the Chrome DevTools Protocol. The
// browser is spoken to over the pipe of --remote-debugging-pipe alone, so it has no port;
// clients get what such a port would serve, over connections that somebody else lets in:
// the /json endpoints and a WebSocket for the browser or for one page. Each client has a
// browser session of its own (Target.attachToBrowserTarget, flat): its ids are its own, it
// hears its own events, and when it leaves, the browser ends all that it attached.
//
// The protocol is described at https://chromedevtools.github.io/devtools-protocol/.
package cdp
