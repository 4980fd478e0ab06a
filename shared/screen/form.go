// SPDX-License-Identifier: MPL-2.0

package screen

import (
	"regexp"
	"sync"
)

// form is a regular expression that is compiled when it is first asked. Every process of
// ours has this package, few of them ask, and with their bounds these are large: together
// most of a megabyte, and milliseconds of each start.
func form(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
