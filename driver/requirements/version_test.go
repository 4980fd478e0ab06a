// SPDX-License-Identifier: MPL-2.0

package requirements

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// rootDir is a directory that only root can change, all the way up.
func rootDir(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("needs root to make files that only root can change")
	}
	dir, err := os.MkdirTemp("/var/lib", "botscreen-test-")
	if err != nil {
		t.Skipf("no root-owned place to write to: %v", err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	if err := os.Chmod(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	return dir
}

func script(t *testing.T, path, text string) string {
	t.Helper()
	if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestX22Trusted(t *testing.T) {
	dir := rootDir(t)
	good := script(t, filepath.Join(dir, "good"), "echo hello")
	if got, err := Trusted(good); err != nil || got != good {
		t.Errorf("good: %q, %v", got, err)
	}
	for name, plant := range map[string]func(path string) error{
		"group-writable": func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o755), os.Chmod(p, 0o775)) },
		"world-writable": func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o755), os.Chmod(p, 0o757)) },
		"foreign":        func(p string) error { return errors.Join(os.WriteFile(p, nil, 0o755), os.Chown(p, 1001, 0)) },
		"directory":      func(p string) error { return os.Mkdir(p, 0o755) },
		"loop":           func(p string) error { return os.Symlink(p, p) },
		"missing":        func(string) error { return nil },
		"link into a writable directory": func(p string) error {
			return os.Symlink(script(t, filepath.Join(t.TempDir(), "x"), ""), p)
		},
		"in a foreign directory": func(p string) error {
			return errors.Join(os.Mkdir(p+".d", 0o755), os.WriteFile(p+".d/x", nil, 0o755), os.Chown(p+".d", 1001, 0), os.Symlink(p+".d/x", p))
		},
	} {
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-"))
		if err := plant(path); err != nil {
			t.Fatal(err)
		}
		if got, err := Trusted(path); err == nil {
			t.Errorf("%s: %s is trusted", name, got)
		}
	}
	if got, err := Trusted("relative"); err == nil {
		t.Errorf("a relative path: %s is trusted", got)
	}
	// Links of root's lead to the file itself, and dots are resolved before anything is run: a link of somebody
	// else's on the way there is not followed.
	others := filepath.Join(dir, "others")
	chain := filepath.Join(dir, "chain")
	if err := errors.Join(os.Symlink("good", chain+"1"), os.Symlink("./others/elsewhere/../../chain1", chain),
		os.Mkdir(others, 0o755), os.Symlink("/tmp", filepath.Join(others, "elsewhere")), os.Chown(others, 1001, 1001)); err != nil {
		t.Fatal(err)
	}
	if got, err := Trusted(chain); err != nil || got != good {
		t.Errorf("links of root to root's file: %q, %v, want %s", got, err, good)
	}
}

func TestX22AskNeverRunsWhatOthersCanChange(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root")
	}
	mark := filepath.Join(t.TempDir(), "ran")
	path := script(t, filepath.Join(t.TempDir(), "Xvnc"), "id > "+mark)
	_, err := Ask(context.Background(), path, "-version")
	var untrusted *UntrustedError
	if !errors.As(err, &untrusted) {
		t.Errorf("got %v, want an UntrustedError", err)
	}
	if _, err := os.Stat(mark); err == nil {
		t.Error("it was run")
	}
}

func TestX22AskIsNobodyWithAConstantEnvironment(t *testing.T) {
	dir := rootDir(t)
	t.Setenv("NOMAD_TOKEN", "canary")
	path := script(t, filepath.Join(dir, "who"), "id -u; id -G; env; exit 1")
	out, err := Ask(context.Background(), path)
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(out, "\n")
	if lines[0] != "65534" || lines[1] != "65534" {
		t.Errorf("uid %s, groups %s, want nobody alone", lines[0], lines[1])
	}
	if strings.Contains(out, "canary") || !strings.Contains(out, "PATH="+Path) {
		t.Errorf("environment:\n%s", out)
	}
}

func TestX22AskIsBounded(t *testing.T) {
	dir := rootDir(t)
	loud := script(t, filepath.Join(dir, "loud"), "head -c 1000000 /dev/zero | tr '\\0' x")
	out, err := Ask(context.Background(), loud)
	if err != nil || len(out) != versionOutput {
		t.Errorf("%d bytes, %v, want %d", len(out), err, versionOutput)
	}
	// A child keeps the output open and outlives its parent; both are ended.
	hung := script(t, filepath.Join(dir, "hung"), "sleep 98765.4321 & sleep 98765.4321")
	begin := time.Now()
	_, err = Ask(context.Background(), hung)
	if err == nil || !strings.Contains(err.Error(), "no answer within 8s") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(begin); took > 20*time.Second {
		t.Errorf("it took %s", took)
	}
	if out, err := exec.Command("pgrep", "-f", "98765[.]4321").Output(); err == nil {
		t.Errorf("left running: %s", out)
	}
	if _, err := Ask(context.Background(), script(t, filepath.Join(dir, "silent"), "exit 3")); err == nil {
		t.Error("a program that says nothing and fails is an answer")
	}
}

func TestRFB18OtherServersAreToldApart(t *testing.T) {
	for output, want := range map[string]XServer{
		"\nXvnc TigerVNC 1.12.0 - built 2023-01-06 16:01\nCopyright (C) 1999-2021 TigerVNC Team\n": {"TigerVNC", "1.12.0"},
		"Xvnc TigerVNC 1.15.0 - built Oct  1 2025 10:00:00\n":                                      {"TigerVNC", "1.15.0"},
		"\nXvnc KasmVNC 1.3.3 - built Oct 25 2024 03:47:37\n":                                      {"KasmVNC", "1.3.3"},
	} {
		got, err := ParseXvnc(output)
		if err != nil || got != want {
			t.Errorf("%q: %v, %v, want %v", output, got, err, want)
		}
		if err := got.Supported(); (err == nil) != (want.Vendor == "TigerVNC") {
			t.Errorf("%v supported: %v", got, err)
		}
	}
	for _, output := range []string{"", "Xvnc", "X.Org X Server 1.21.1.7", "TurboVNC Server (Xvnc) 64-bit v3.1", "xXvnc TigerVNC 1.12.0"} {
		if got, err := ParseXvnc(output); err == nil {
			t.Errorf("%q: %v", output, got)
		}
	}
}

func TestRealXvnc(t *testing.T) {
	h := Host{}
	if h.Find("Xvnc") == "" {
		t.Skip("Xvnc is not installed")
	}
	got, err := h.Xvnc(context.Background())
	if err != nil || got.Supported() != nil {
		t.Fatalf("%+v, %v", got, err)
	}
	t.Log(got.Vendor, got.Version)
}

func TestParseBrowser(t *testing.T) {
	for output, want := range map[string]string{
		"Google Chrome 128.0.6613.84 \n":                      "google-chrome/128.0.6613.84",
		"Chromium 128.0.6613.84 built on Debian 12.6\n":       "chromium/128.0.6613.84",
		"warning: x\nChromium 90.0\n":                         "chromium/90.0",
		"Google Chrome for Testing 140.0.7339.16\n":           "google-chrome/140.0.7339.16",
		"Microsoft Edge 128.0.2739.42\n":                      "microsoft-edge/128.0.2739.42",
		"HeadlessChrome 128.0.6613.84":                        "",
		"Chromium Headless Shell 128.0.6613.84":               "",
		"Command '/usr/bin/chromium-browser' requires a snap": "",
		"": "",
	} {
		got, err := ParseBrowser(output)
		if got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v, want %q", output, got, err, want)
		}
	}
}

func TestBrowserOfTheSystem(t *testing.T) {
	dir := rootDir(t)
	for name, text := range map[string]string{
		"google-chrome":    "exit 1",
		"chromium":         "echo Chromium 128.0.6613.84 built on Debian",
		"chromium-browser": "echo Chromium 1.2.3",
	} {
		script(t, filepath.Join(dir, name), text)
	}
	got, err := Host{Path: dir}.Browser(context.Background())
	if want := (Browser{"chromium/128.0.6613.84", filepath.Join(dir, "chromium")}); err != nil || got != want {
		t.Errorf("got %q, %v", got, err)
	}
	got, err = Host{Path: t.TempDir()}.Browser(context.Background())
	if err != nil || got.Name != NoBrowser {
		t.Errorf("without any: %q, %v", got, err)
	}
	broken := rootDir(t)
	script(t, filepath.Join(broken, "chromium"), "echo this needs the chromium snap")
	got, err = Host{Path: broken}.Browser(context.Background())
	if err == nil || got.Name != NoBrowser {
		t.Errorf("a wrapper without its browser: %q, %v, want none and why", got, err)
	}
}

func FuzzParseVersions(f *testing.F) {
	f.Add("Xvnc TigerVNC 1.12.0 - built")
	f.Add("Chromium 128.0.6613.84 built on Debian\x1b[31m")
	f.Fuzz(func(t *testing.T, output string) {
		x, err := ParseXvnc(output)
		b, err2 := ParseBrowser(output)
		for _, text := range []string{x.Vendor, x.Version, b, fmt.Sprint(err), fmt.Sprint(err2)} {
			if len(text) > 250 || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("%q gave %q", output, text)
			}
		}
	})
}
