// SPDX-License-Identifier: MPL-2.0

// Package screen holds the nouns every part of botscreen shares (profile,
// isolation, geometry, state) and their rules, so that the driver, the provider
// and the CLI refuse the same input with the same words.
package screen
