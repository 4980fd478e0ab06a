// SPDX-License-Identifier: MPL-2.0

package cgroup

import (
	"regexp"
	"sync"
)

// form is a regular expression that is compiled when it is first asked. Every process of
// the driver has this package, and few ask.
func form(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
