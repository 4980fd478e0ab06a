// SPDX-License-Identifier: MPL-2.0

package main

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// openBrowser opens a file in the user's browser and reports whether there seems to be
// one. What fails later is reported.
func openBrowser(file string, report func(error)) bool {
	argv := browserCommand(os.Getenv)
	if argv == nil {
		return false
	}
	cmd := exec.Command(argv[0], append(argv[1:], file)...)
	if err := cmd.Start(); err != nil {
		return false
	}
	go func() {
		if err := cmd.Wait(); err != nil {
			report(fmt.Errorf("the browser could not be opened (%s: %w). Open the file yourself: %s", argv[0], err, file))
		}
	}()
	return true
}

// browserCommand is $BROWSER's first choice, or what opens files on a desktop.
func browserCommand(getenv func(string) string) []string {
	first, _, _ := strings.Cut(getenv("BROWSER"), ":")
	if argv := strings.Fields(first); len(argv) > 0 {
		return argv
	}
	if getenv("DISPLAY") == "" && getenv("WAYLAND_DISPLAY") == "" {
		return nil
	}
	if path, err := exec.LookPath("xdg-open"); err == nil {
		return []string{path}
	}
	return nil
}
