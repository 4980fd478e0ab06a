// SPDX-License-Identifier: MPL-2.0

package acctest

import (
	"context"
	"errors"
	"os"
	"strings"

	"github.com/chromedp/chromedp"
)

// axeScript is of the package axe-core, which the page's lockfile pins; `make page`
// installs it.
const axeScript = "../shared/relay/webviewer/page/node_modules/axe-core/axe.min.js"

// accessible checks the page as it is now by axe's rules: names, roles, contrast, order.
// The picture is the screen's, not the page's.
func (b *browser) accessible(when string) {
	b.t.Helper()
	script, err := os.ReadFile(axeScript)
	if errors.Is(err, os.ErrNotExist) {
		b.t.Fatalf("%s is not there: run `make page`", axeScript)
	}
	if err != nil {
		b.t.Fatal(err)
	}
	const run = `;axe.run({exclude: ["#picture"]}).then((r) => r.violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + n.failureSummary + " in " + n.html)))`
	ctx, cancel := context.WithTimeout(b.ctx, actionLimit)
	defer cancel()
	faults, err := chromedp.Run(ctx, chromedp.Evaluate[[]string](string(script)+run, chromedp.EvalAwaitPromise))
	if err != nil {
		b.t.Fatalf("axe: %v", err)
	}
	if len(faults) > 0 {
		b.t.Errorf("%s, the page is hard to use:\n%s", when, strings.Join(faults, "\n"))
	}
}

// escape presses Escape.
var escape = chromedp.KeyEvent("\x1b")
