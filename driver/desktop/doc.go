// SPDX-License-Identifier: MPL-2.0

// Package desktop brings up one Linux desktop on one X display inside the
// session process: Xvnc, a private bus and the Xfce components, started fast,
// declared ready by events and stopped until nobody is left.
//
// The caller is the session: a process with the screen's own uid (never 0)
// that is the parent and the sub-reaper of everything here. It calls
// [PrepareProcess] once, runs one [Reaper] for its life, and may start and
// stop desktops one after another (sleep and wake).
package desktop
