// SPDX-License-Identifier: MPL-2.0

// Package lease says who may control a screen: the agent or one human. Every
// change of hands raises an epoch, the fencing token that an action must carry.
package lease
