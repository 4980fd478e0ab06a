// SPDX-License-Identifier: MPL-2.0

package screen

import (
	"errors"
	"fmt"
	"net/url"
	"path"
	"slices"
	"strings"
	"time"
	"unicode"
)

// BrowserOptions is the one browser of a screen, the person's and the bot's (rule W1).
type BrowserOptions struct {
	Enabled    bool     `json:"enabled"`
	Executable string   `json:"executable,omitempty"` // inside the isolation; empty: one is looked for
	Args       []string `json:"args,omitempty"`
	Sandbox    bool     `json:"sandbox"` // the browser's own
	StartURL   string   `json:"start_url,omitempty"`
}

// KnownVersion is what an executable of the node said when it was asked for its version.
type KnownVersion struct {
	Path  string       `json:"path"`
	Says  string       `json:"says"` // untrusted
	File  FileIdentity `json:"file"` // which was asked
	Asked time.Time    `json:"asked"`
}

// FileIdentity tells a file from the one that takes its place, see inode(7).
type FileIdentity struct {
	Device    uint64 `json:"device"`
	Inode     uint64 `json:"inode"`
	SizeBytes int64  `json:"size_bytes"`
	ChangedNS int64  `json:"changed_ns"` // since 1970
}

const (
	maxBrowserArgs = 64
	maxURLBytes    = 8 << 10
)

// ourSwitches are switches of the browser that a job cannot set, and what it can do instead
// (X17). A * stands for any rest.
var ourSwitches = []struct{ pattern, why string }{
	{"remote-debugging-*", "the driver talks to the browser over a pipe, which nobody else reaches; use `botscreen cdp`"},
	{"remote-allow-origins", "there is no debugging port to allow origins on; use `botscreen cdp`"},
	{"user-data-dir", "the browser's profile is a folder in the home of the screen's profile"},
	{"profile-directory", "one screen has one profile"},
	{"load-extension", "an extension sees every page and every login"},
	{"disable-extensions-except", "it loads extensions, which see every page and every login"},
	{"*-cmd-prefix", "it runs another program"},
	{"*-launcher", "it runs another program"},
	{"browser-subprocess-path", "it runs another program"},
	{"no-*sandbox", "write `sandbox = false`, which the status shows"},
	{"disable-*-sandbox", "write `sandbox = false`, which the status shows"},
	{"single-process", "pages would run without a sandbox"},
	{"headless*", "the browser is the one people see on the screen"},
	{"disk-cache-size", "the driver bounds it"},
	{"disk-cache-dir", "the cache lies in the browser's profile"},
	{"enable-automation", "people use this browser, too; an agent asks for what it needs over `botscreen cdp`"},
}

func (c Config) validateBrowser(faults *Faults) BrowserOptions {
	o := BrowserOptions{
		Enabled: c.BrowserEnabled, Executable: c.BrowserExecutable, Args: c.BrowserArgs, Sandbox: c.BrowserSandbox,
	}
	if fault := browserExecutableFault(c.BrowserExecutable); fault != "" {
		faults.Add("browser.executable", c.BrowserExecutable, fault)
	}
	if len(c.BrowserArgs) > maxBrowserArgs {
		faults.Add("browser.args", "", fmt.Sprintf("has %d entries; at most %d", len(c.BrowserArgs), maxBrowserArgs))
	}
	for _, arg := range c.BrowserArgs {
		if fault := browserArgFault(arg); fault != "" {
			faults.Add("browser.args", arg, fault)
		}
	}
	if c.BrowserStartURL != "" {
		address, err := ParseBrowserURL(c.BrowserStartURL)
		if err != nil {
			faults.Add("browser.start_url", "", err.Error()) // an address may hold a password
		}
		o.StartURL = address
	}
	return o
}

func browserExecutableFault(executable string) string {
	switch {
	case executable == "":
		return ""
	case !path.IsAbs(executable) || len(executable) > maxArgBytes || strings.ContainsFunc(executable, unicode.IsControl):
		return "must be an absolute path inside the screen"
	case strings.Contains(path.Base(executable), "headless"):
		return "is a headless shell, which shows no window"
	}
	return ""
}

// browserArgFault says why an argument is not the job's to give. Chromium takes a switch
// behind one hyphen as well as behind two, see base/command_line.cc.
func browserArgFault(arg string) string {
	name, ok := strings.CutPrefix(arg, "-")
	name, _, _ = strings.Cut(strings.TrimPrefix(name, "-"), "=")
	switch {
	case len(arg) > maxArgBytes || strings.ContainsFunc(arg, unicode.IsControl):
		return fmt.Sprintf("must be at most %d bytes without control characters", maxArgBytes)
	case !ok || name == "" || strings.HasPrefix(name, "-"):
		return "must be a switch such as --lang=de; an address goes into start_url"
	}
	for _, s := range ourSwitches {
		if matched, _ := path.Match(s.pattern, name); matched {
			return "is not for jobs: " + s.why
		}
	}
	return ""
}

// ParseBrowserURL reads an address that a browser may be asked to open and returns it in
// its normal form: http, https, about:blank, or a file by an absolute path. What runs in
// the page that is open (javascript:), or changes or crashes the browser (chrome:, most of
// about:), is no address. The error repeats nothing of it: it may hold a password.
func ParseBrowserURL(text string) (string, error) {
	if len(text) > maxURLBytes {
		return "", fmt.Errorf("has %d bytes; at most %d", len(text), maxURLBytes)
	}
	if strings.ContainsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }) {
		return "", errors.New("holds a space or a control character; write it as %20 or the like")
	}
	u, err := url.Parse(text)
	if err != nil {
		return "", errors.New("is not an address")
	}
	switch scheme := strings.ToLower(u.Scheme); {
	case slices.Contains([]string{"http", "https"}, scheme):
		if u.Hostname() == "" {
			return "", errors.New("names no host")
		}
	case scheme == "about":
		if u.Opaque != "blank" {
			return "", errors.New("may be about:blank and no other page of the browser itself")
		}
	case scheme == "file":
		if u.Host != "" && u.Host != "localhost" || !path.IsAbs(u.Path) {
			return "", errors.New("must name a file of the screen by its absolute path, as in file:///tmp/page.html")
		}
	default:
		return "", errors.New("must begin with http://, https:// or file:///, or be about:blank")
	}
	escaped := u.String()
	if len(escaped) > maxURLBytes {
		return "", fmt.Errorf("has %d bytes when it is escaped; at most %d", len(escaped), maxURLBytes)
	}
	return escaped, nil
}
