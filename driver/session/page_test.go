// SPDX-License-Identifier: MPL-2.0

package session

import (
	"strings"
	"testing"
)

// X25: of an address only what names the site is told.
func TestX25Origin(t *testing.T) {
	for address, want := range map[string]string{
		"https://user:CANARY@bank.example:8443/CANARY?code=CANARY#CANARY": "https://bank.example:8443",
		"http://[::1]:80/CANARY": "http://[::1]:80", "about:blank": "about:", "file:///home/CANARY": "file:", "data:text/html,CANARY": "data:",
		"chrome://settings/CANARY": "chrome:", "": "", "CANARY": "", "://CANARY": "",
	} {
		if got := originOf(address); got != want || strings.Contains(got, "CANARY") {
			t.Errorf("%s: %q, want %q", address, got, want)
		}
	}
}
