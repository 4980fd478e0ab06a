// SPDX-License-Identifier: MPL-2.0

// Package browser runs the one browser of a screen (rules W): it finds it, starts it over
// a pipe for whoever asks first, lets the others attach, keeps its profile folder whole
// and asks it to go before the desktop ends. It runs inside the isolation, under the
// screen's own uid.
package browser
