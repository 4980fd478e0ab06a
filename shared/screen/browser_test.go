// SPDX-License-Identifier: MPL-2.0

package screen

import (
	"errors"
	"strings"
	"testing"
	"unicode"
)

// X17: what would open a debugging port, swap the profile, run another program or take the
// sandbox away is not the job's to give, however it is written; all faults come at once.
func TestX17BrowserArgs(t *testing.T) {
	refused := []string{
		"--remote-debugging-port=9222", "-remote-debugging-port=0", "--remote-debugging-pipe", "--remote-debugging-address=0.0.0.0",
		"--remote-allow-origins=*", "--user-data-dir=/tmp/x", "--profile-directory=Default", "--load-extension=/x", "--disable-extensions-except=/x",
		"--renderer-cmd-prefix=gdb", "--utility-cmd-prefix=x", "--gpu-launcher=x", "--browser-subprocess-path=/x",
		"--no-sandbox", "--no-zygote-sandbox", "--disable-setuid-sandbox", "--disable-seccomp-filter-sandbox", "--disable-namespace-sandbox",
		"--single-process", "--headless", "--headless=new", "--disk-cache-size=1", "--enable-automation",
		"https://example.org/", "", "-", "--", "---x", "--lang=de\n", "--a\x00b", strings.Repeat("-", 2) + strings.Repeat("a", maxArgBytes),
	}
	c := valid()
	c.BrowserArgs = refused
	_, err := c.Validate()
	var faults Faults
	if !errors.As(err, &faults) || len(faults) != len(refused) {
		t.Errorf("%d faults, want one each for %d: %v", len(faults), len(refused), err)
	}
	c.BrowserArgs = []string{"--lang=de", "--force-device-scale-factor=1.5", "-incognito", "--disable-features=Translate", "--proxy-server=http://proxy:3128"}
	if _, err := c.Validate(); err != nil {
		t.Errorf("refused: %v", err)
	}
	c.BrowserArgs = make([]string, maxBrowserArgs+1)
	for i := range c.BrowserArgs {
		c.BrowserArgs[i] = "--a"
	}
	if _, err := c.Validate(); err == nil {
		t.Error("any number of them is accepted")
	}
}

func TestBrowserExecutable(t *testing.T) {
	for path, accepted := range map[string]bool{
		"": true, "/usr/bin/chromium": true, "/opt/my browser/chrome": true,
		"chromium": false, "./chrome": false, "/opt/chrome-headless-shell": false, "/a\nb": false,
	} {
		c := valid()
		c.BrowserExecutable = path
		if _, err := c.Validate(); (err == nil) != accepted {
			t.Errorf("%q: %v", path, err)
		}
	}
}

func TestParseBrowserURL(t *testing.T) {
	for text, want := range map[string]string{
		"https://example.org/a?b=c#d": "https://example.org/a?b=c#d",
		"HTTP://EXAMPLE.org":          "http://EXAMPLE.org",
		"http://127.0.0.1:8080/":      "http://127.0.0.1:8080/",
		"about:blank":                 "about:blank",
		"file:///tmp/a%20b.html":      "file:///tmp/a%20b.html",
		"file://localhost/tmp/a":      "file://localhost/tmp/a",
		"":                            "", "example.org": "", "javascript:alert(1)": "", "data:text/html,x": "", "chrome://settings": "",
		"about:settings": "", "about:crash": "", "about:kill": "", "view-source:https://a/": "", "http://": "", "http:///x": "",
		"file://server/share": "", "file:relative": "", "http://a b/": "", "http://a/\nx": "", "-http://a": "", "--http://a": "",
		"https://" + strings.Repeat("a", maxURLBytes): "",
	} {
		got, err := ParseBrowserURL(text)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	if _, err := ParseBrowserURL("ftp://user:CANARY@host/"); err == nil || strings.Contains(err.Error(), "CANARY") {
		t.Errorf("the error repeats the password: %v", err)
	}
}

// What was accepted is accepted again, as it is, and never a switch.
func FuzzParseBrowserURL(f *testing.F) {
	for _, seed := range []string{"https://a/b?c#d", "about:blank", "file:///x", "http://[::1]:80/", "http://a\\b", "HTTPS:%2f%2fa", "http://a/#" + strings.Repeat("\xd8", maxURLBytes/2)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		once, err := ParseBrowserURL(text)
		if err != nil {
			return
		}
		again, err := ParseBrowserURL(once)
		if err != nil || again != once {
			t.Errorf("%q became %q and then %q, %v", text, once, again, err)
		}
		if strings.HasPrefix(once, "-") || strings.ContainsFunc(once, unicode.IsControl) {
			t.Errorf("%q became %q", text, once)
		}
	})
}
