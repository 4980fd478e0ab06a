// SPDX-License-Identifier: MPL-2.0

// Package acctest holds black-box tests of the built binaries.
package acctest
