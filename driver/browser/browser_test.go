// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == ProbeCommand {
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// plain starts programs without a reaper.
type plain struct{}

func (plain) Start(c *exec.Cmd) error { return c.Start() }
func (plain) Wait(c *exec.Cmd) error  { return c.Wait() }

// script makes an executable.
func script(t *testing.T, path, body string) string {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(path), 0o755))
	must(t, os.WriteFile(path, []byte("#!/bin/sh\n"+body+"\n"), 0o755))
	return path
}

// W3: the job's own browser and no other; else the system's; else the newest bundle of
// Playwright; never a headless shell.
func TestW3Candidates(t *testing.T) {
	dir := t.TempDir()
	bin, home := filepath.Join(dir, "bin"), filepath.Join(dir, "home")
	o := Options{Env: []string{"PATH=relative:" + filepath.Join(dir, "empty") + ":" + bin, "HOME=" + home}}
	if got := candidates(o); len(got) > 0 {
		t.Errorf("of nothing: %v", got)
	}
	cache := filepath.Join(home, ".cache/ms-playwright")
	older := script(t, filepath.Join(cache, "chromium-999/chrome-linux/chrome"), "")
	newer := script(t, filepath.Join(cache, "chromium-1148/chrome-linux64/chrome"), "")
	script(t, filepath.Join(cache, "chromium_headless_shell-1148/chrome-linux/headless_shell"), "")
	script(t, filepath.Join(cache, "chromium-tip/chrome-linux/chrome"), "")
	if got := candidates(o); !slices.Equal(got, []string{newer, older}) {
		t.Errorf("bundles: %v", got)
	}
	chrome, chromium := script(t, filepath.Join(bin, "google-chrome"), ""), script(t, filepath.Join(bin, "chromium"), "")
	must(t, os.Mkdir(filepath.Join(bin, "chromium-browser"), 0o755))
	if got := candidates(o); !slices.Equal(got, []string{chromium, chrome, newer, older}) {
		t.Errorf("with a system's: %v", got)
	}
	o.Env = append(o.Env, "PLAYWRIGHT_BROWSERS_PATH="+filepath.Join(dir, "elsewhere"))
	there := script(t, filepath.Join(dir, "elsewhere/chromium-7/chrome-linux/chrome"), "")
	if got := candidates(o); !slices.Equal(got, []string{chromium, chrome, there}) {
		t.Errorf("with a folder of their own: %v", got)
	}
	o.Executable = "/opt/mine"
	if got := candidates(o); !slices.Equal(got, []string{"/opt/mine"}) {
		t.Errorf("with the job's own: %v", got)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	o := Options{Starter: plain{}, Env: []string{"PATH=" + dir, "HOME=" + dir}}
	if _, err := find(t.Context(), o); !errors.Is(err, ErrNone) {
		t.Errorf("of nothing: %v", err)
	}
	script(t, filepath.Join(dir, "chromium"), "echo You need to install a snap")
	good := script(t, filepath.Join(dir, "google-chrome"), "echo Google Chrome 131.0.6778.85")
	found, err := find(t.Context(), o)
	if err != nil || found.Executable != good || found.Version.String() != "Google Chrome 131.0.6778.85" || found.Confined != Off {
		t.Errorf("found %+v, %v", found, err)
	}
	o.Executable = filepath.Join(dir, "chromium")
	if _, err := find(t.Context(), o); err == nil || !strings.Contains(err.Error(), "You need to install a snap") {
		t.Errorf("a wrapper without its browser: %v", err)
	}
}

// BRW-11, W3: where user namespaces cannot be made a browser without a helper is refused,
// with the fix; the job's own word is the only way without a sandbox.
func TestBRW11NoNamespaces(t *testing.T) {
	path := script(t, filepath.Join(t.TempDir(), "chrome"), "echo Chromium 1.2.3.4")
	o := Options{Starter: plain{}, Sandbox: true}
	_, err := judge(t.Context(), o, path, errors.New("user.max_user_namespaces is 0"))
	var refused *SandboxError
	if !errors.As(err, &refused) || !strings.Contains(err.Error(), "Fix: ") || !strings.Contains(err.Error(), "sandbox = false") || len(err.Error()) > 250 {
		t.Errorf("%d bytes: %v", len(err.Error()), err)
	}
	if slices.Contains(arguments(o, Namespaces), "--no-sandbox") || slices.Contains(arguments(o, Setuid), "--no-sandbox") {
		t.Error("a browser with a sandbox is started without")
	}
	o.Sandbox = false
	found, err := judge(t.Context(), o, path, nil)
	if err != nil || found.Confined != Off || !slices.Contains(arguments(o, found.Confined), "--no-sandbox") {
		t.Errorf("without: %+v, %v", found, err)
	}
}

// The kernel's word decides: a limit of no user namespaces refuses what works otherwise.
func TestTryNamespaces(t *testing.T) {
	if err := tryNamespaces(plain{}); err != nil {
		t.Skipf("this machine allows none: %v", err)
	}
	if err := tryNamespaces(refusing{}); err == nil {
		t.Error("a start that fails is taken for a good one")
	}
}

type refusing struct{ plain }

func (refusing) Start(*exec.Cmd) error { return unix.EPERM }

// BRW-11: a helper counts only with its privilege.
func TestHelper(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root, to make a set-user-ID file")
	}
	dir := t.TempDir()
	chrome := script(t, filepath.Join(dir, "chrome"), "")
	helper := script(t, filepath.Join(dir, "chrome-sandbox"), "")
	if hasHelper(chrome) {
		t.Error("a helper without its privilege counts")
	}
	must(t, unix.Chmod(helper, 0o4755))
	var fs unix.Statfs_t
	must(t, unix.Statfs(dir, &fs))
	nosuid := fs.Flags&unix.ST_NOSUID != 0
	if hasHelper(chrome) == nosuid {
		t.Errorf("a helper with it: %t, on a mount with nosuid %t", hasHelper(chrome), nosuid)
	}
	must(t, os.Chown(helper, 1000, 1000))
	must(t, unix.Chmod(helper, 0o4755))
	if hasHelper(chrome) {
		t.Error("somebody else's counts")
	}
}

// X22: asking for a version has two seconds and four kilobytes, and goes with what it started.
func TestX22VersionIsBounded(t *testing.T) {
	dir := t.TempDir()
	flood := script(t, filepath.Join(dir, "flood"), "echo Chromium 1.2.3.4; exec yes")
	if v, err := askVersion(t.Context(), plain{}, flood); err != nil || v.String() != "Chromium 1.2.3.4" {
		t.Errorf("one that floods: %v, %v", v, err)
	}
	marker := filepath.Join(dir, "pid")
	hang := script(t, filepath.Join(dir, "hang"), fmt.Sprintf("sleep 3600 & echo $! >%s; wait", marker))
	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error, 1)
	go func() {
		_, err := askVersion(ctx, plain{}, hang)
		done <- err
	}()
	for {
		if text, err := os.ReadFile(marker); err == nil && strings.HasSuffix(string(text), "\n") {
			break
		}
	}
	cancel(errors.New("called off"))
	if err := <-done; err == nil || !strings.Contains(err.Error(), "called off") {
		t.Errorf("one that hangs: %v", err)
	}
}

func TestParseVersion(t *testing.T) {
	for output, want := range map[string]string{
		"Chromium 156.0.8078.114 built on Debian GNU/Linux 12 (bookworm)\n": "Chromium 156.0.8078.114",
		"Google Chrome 131.0.6778.85 \n":                                    "Google Chrome 131.0.6778.85",
		"Google Chrome for Testing 131.0.6778.33\n":                         "Google Chrome for Testing 131.0.6778.33",
		"warning: something\nChromium 90.0\n":                               "Chromium 90.0",
		"HeadlessChrome 131.0.6778.85":                                      "",
		"Chromium 131 headless shell":                                       "",
		"chrome-headless-shell 131.0.6778.33":                               "",
		"":                                                                  "", "Chromium": "", "1.2.3": "", "Mozilla Firefox 128.0": "",
	} {
		got, err := ParseVersion(output)
		if (err == nil) != (want != "") || err == nil && got.String() != want {
			t.Errorf("%q: %v, %v, want %q", output, got, err, want)
		}
	}
}

func FuzzParseVersion(f *testing.F) {
	f.Add("Chromium 156.0.8078.114 built on Debian\n")
	f.Add("Google Chrome 1.2")
	f.Fuzz(func(t *testing.T, output string) {
		v, err := ParseVersion(output)
		if err != nil {
			return
		}
		if again, err := ParseVersion(v.String()); err != nil || !slices.Equal(again.Number, v.Number) {
			t.Errorf("%q gave %s, which gives %v, %v", output, v, again, err)
		}
	})
}

// W4: an older browser is refused by number, not by text; what Chromium itself could not
// read is no version.
func TestW4Versions(t *testing.T) {
	dir := t.TempDir()
	has := Number{100, 0, 1, 2}
	if err := checkVersion(dir, has); err != nil {
		t.Errorf("a new profile: %v", err)
	}
	for last, accepted := range map[string]bool{
		"100.0.1.2": true, "99.9.9.9": true, "100.0.1.2\n": true, "100.0.1.3": false, "100.0.2": false, "1000.0.0.0": false, "101.0.0.0": false,
		"": true, "newest": true, "9999999.0": true,
	} {
		must(t, os.WriteFile(filepath.Join(dir, lastVersionFile), []byte(last), 0o600))
		err := checkVersion(dir, has)
		var older *OlderError
		if (err == nil) != accepted || err != nil && !errors.As(err, &older) {
			t.Errorf("%q: %v", last, err)
		}
	}
}

// BRW-05: the folder of a browser without one is refused, behind a link too.
func TestBRW05DefaultProfile(t *testing.T) {
	home := t.TempDir()
	env := []string{"HOME=" + home}
	theirs := filepath.Join(home, ".config/google-chrome")
	must(t, os.MkdirAll(theirs, 0o700))
	link := filepath.Join(home, "browser")
	must(t, os.Symlink(theirs, link))
	for _, dir := range []string{theirs, link} {
		_, err := openProfile(dir, env)
		var refused *DefaultProfileError
		if !errors.As(err, &refused) {
			t.Errorf("%s: %v", dir, err)
		}
	}
	p, err := openProfile(filepath.Join(home, "own"), env)
	must(t, err)
	p.release()
	if _, err := openProfile(filepath.Join(home, "elsewhere"), []string{"XDG_CONFIG_HOME=" + home, "HOME=/"}); err != nil {
		t.Errorf("another folder: %v", err)
	}
}

// W2: two sessions never have one profile, whatever they see of each other.
func TestW2ProfileIsHeld(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "browser")
	p, err := openProfile(dir, nil)
	must(t, err)
	if _, err := openProfile(dir, nil); err == nil || !strings.Contains(err.Error(), "in use") {
		t.Errorf("a second one: %v", err)
	}
	p.release()
	again, err := openProfile(dir, nil)
	must(t, err)
	again.release()
}

// W2: the process that has a profile is known by its arguments and not by a pid in a lock;
// a helper of a browser and a program that only talks of the folder are none.
func TestW2User(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a profile")
	p, err := openProfile(dir, nil)
	must(t, err)
	defer p.release()
	must(t, os.Symlink(dir, dir+" by another name"))
	for _, tc := range []struct {
		args []string
		uses bool
	}{
		{[]string{"--user-data-dir=" + dir}, true},
		{[]string{"--user-data-dir=" + dir + " by another name", "about:blank"}, true},
		{[]string{"--user-data-dir=" + filepath.Base(dir)}, true}, // relative to where it runs
		{[]string{"--user-data-dir=" + dir, "--type=renderer"}, false},
		{[]string{"--user-data-dir=/tmp"}, false},
		{[]string{"talks of --user-data-dir=" + dir}, false},
	} {
		cmd := exec.Command("/bin/sh", append([]string{"-c", "echo up; read wait", "browser"}, tc.args...)...)
		cmd.Dir = filepath.Dir(dir)
		in, err := cmd.StdinPipe()
		must(t, err)
		out, err := cmd.StdoutPipe()
		must(t, err)
		must(t, cmd.Start())
		// A process that was only just executed has no arguments yet.
		_, err = io.ReadFull(out, make([]byte, len("up\n")))
		must(t, err)
		if got := p.user(); (got == cmd.Process.Pid) != tc.uses || !tc.uses && got != 0 {
			t.Errorf("%q: pid %d, it is %d and uses it: %t", tc.args, got, cmd.Process.Pid, tc.uses)
		}
		_ = in.Close()
		_ = cmd.Wait()
	}
}

// X17: what a distribution's wrapper would add to the switches is kept from it; a job's
// switches cannot undo ours.
func TestX17Environment(t *testing.T) {
	got := environment([]string{"A=b", "CHROMIUM_FLAGS=--remote-debugging-port=9222", "CHROMIUM_USER_FLAGS=x", "HTTP_PROXY=http://p:1"})
	if !slices.Equal(got, []string{"A=b", "HTTP_PROXY=http://p:1"}) {
		t.Errorf("the browser sees %v", got)
	}
	args := arguments(Options{Args: []string{"--lang=de"}, Profile: "/p"}, Namespaces)
	if args[0] != "--lang=de" || !slices.Contains(args, "--remote-debugging-pipe") || !slices.Contains(args, "--user-data-dir=/p") {
		t.Errorf("arguments %v", args)
	}
}
