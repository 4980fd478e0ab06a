// SPDX-License-Identifier: MPL-2.0

// Package form has the forms that texts must have, compiled when one is first asked. Every
// process of ours has packages with many of them, few processes ask, and with their bounds
// they are large: together most of a megabyte, and milliseconds of each start.
package form

import (
	"regexp"
	"sync"
)

// Of is the form that a regular expression describes. Asking for one that cannot be
// compiled panics.
func Of(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
