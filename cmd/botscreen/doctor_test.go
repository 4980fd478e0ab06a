// SPDX-License-Identifier: MPL-2.0

package main

import (
	"os"
	"path/filepath"
	"testing"
)

// doctor runs the driver's own diagnosis.
func TestDoctor(t *testing.T) {
	use(t, t.TempDir())
	dir := t.TempDir()
	script := func(text string) {
		if err := os.WriteFile(filepath.Join(dir, pluginName), []byte("#!/bin/sh\n"+text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	script(`[ "$1 $2" = "doctor -json" ] || exit 2
echo '{"isolations":[],"checks":[{"name":"programs","ok":false,"found":"missing: xfwm4","why":"Host isolation cannot start a desktop without xfwm4.","fix":"apt-get install xfwm4"},{"name":"memory","ok":true,"found":"23165 MB"}]}'
exit 1`)
	r := call(t, "doctor", "-plugin-dir", dir)
	r.want(t, exitFailed, "MISSING\tprograms\tmissing: xfwm4", "")
	r.want(t, exitFailed, "apt-get install xfwm4", "")
	call(t, "doctor", "-json", "-plugin-dir", dir).want(t, exitFailed, `"fix": "apt-get install xfwm4"`, "")
	script(`echo '{"isolations":["host"],"checks":[]}'`)
	call(t, "doctor", "-plugin-dir", dir).want(t, exitOK, "CHECK", "")
	script(`echo nonsense; echo why >&2`)
	call(t, "doctor", "-plugin-dir", dir).want(t, exitFailed, "", "Its last words: why")
	call(t, "doctor", "-plugin-dir", t.TempDir()).want(t, exitFailed, "", "the driver is not installed")
}
