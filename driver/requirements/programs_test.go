// SPDX-License-Identifier: MPL-2.0

package requirements

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fakeHost is a machine with the programs given, in /usr/bin, and an os-release.
func fakeHost(t *testing.T, release string, programs ...string) Host {
	t.Helper()
	h := Host{Root: t.TempDir()}
	write(t, h, "/etc/os-release", release, 0o644)
	for _, p := range programs {
		write(t, h, "/usr/bin/"+p, "#!/bin/sh\n", 0o755)
	}
	return h
}

func write(t *testing.T, h Host, path, text string, mode os.FileMode) {
	t.Helper()
	path = h.at(path)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

const (
	debian = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n"
	fedora = "NAME=\"Fedora Linux\"\nPRETTY_NAME='Fedora Linux 41'\nID=fedora\n"
	rocky  = "PRETTY_NAME=\"Rocky Linux 9\"\nID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n"
	arch   = "PRETTY_NAME=\"Arch Linux\"\nID=arch\n"
	alpine = "PRETTY_NAME=\"Alpine Linux v3.20\"\nID=alpine\n"
)

// S14: everything that is missing at once, with this distribution's packages, and one of three endings.
func TestS14Endings(t *testing.T) {
	for name, tc := range map[string]struct {
		release      string
		programs     []string
		unprivileged bool
		ending       Ending
		command      string
	}{
		"apt as root": {
			release: debian, programs: []string{"apt-get"}, ending: Command,
			command: "apt-get install -y --no-install-recommends tigervnc-standalone-server dbus xfwm4 xfdesktop4 xfce4-panel xfce4-settings xfce4-terminal fonts-dejavu-core",
		},
		"apt with sudo, some there": {
			release: debian, programs: []string{"apt-get", "sudo", "Xvnc", "dbus-daemon", "xfwm4", "xfce4-terminal"}, unprivileged: true, ending: Command,
			command: "sudo apt-get install -y --no-install-recommends xfdesktop4 xfce4-panel xfce4-settings fonts-dejavu-core",
		},
		"dnf as root": {
			release: fedora, programs: []string{"dnf"}, ending: Command,
			command: "dnf install -y tigervnc-x11-server dbus-daemon xfwm4 xfdesktop xfce4-panel xfce4-settings xfce4-terminal dejavu-sans-fonts",
		},
		"dnf of a relative, apt lying about": {
			release: rocky, programs: []string{"apt-get", "dnf", "Xvnc", "dbus-daemon", "xfwm4", "xfdesktop", "xfce4-panel", "xfsettingsd", "xfce4-terminal"},
			ending: Command, command: "dnf install -y dejavu-sans-fonts",
		},
		"pacman as root": {
			release: arch, programs: []string{"pacman"}, ending: Command,
			command: "pacman -S --needed --noconfirm tigervnc dbus xfwm4 xfdesktop xfce4-panel xfce4-settings xfce4-terminal ttf-dejavu",
		},
		"derivative that hides its origin": {
			release: "ID=unheard-of\n", programs: []string{"pacman", "Xvnc", "dbus-daemon", "xfwm4", "xfdesktop", "xfce4-panel", "xfsettingsd", "xfce4-terminal"},
			ending: Command, command: "pacman -S --needed --noconfirm ttf-dejavu",
		},
		"unprivileged without sudo": {release: debian, programs: []string{"apt-get"}, unprivileged: true, ending: CannotInstall},
		"no known manager":          {release: alpine, programs: []string{"apk"}, ending: NoManager},
		"no known manager, not root": {
			release: alpine, programs: []string{"apk"}, unprivileged: true, ending: NoManager,
		},
	} {
		t.Run(name, func(t *testing.T) {
			if os.Geteuid() != 0 && !tc.unprivileged {
				t.Skip("the case is root's")
			}
			h := fakeHost(t, tc.release, tc.programs...)
			h.Unprivileged = tc.unprivileged
			got := h.Missing().Remedy
			if got.Ending != tc.ending || got.Command != tc.command {
				t.Errorf("got  %s %q\nwant %s %q", got.Ending, got.Command, tc.ending, tc.command)
			}
			said := h.Missing().Sentence()
			want := map[Ending]string{Command: "Run: " + tc.command, CannotInstall: "newer image", NoManager: "No known package manager"}[tc.ending]
			if !strings.Contains(said, want) {
				t.Errorf("%q lacks %q", said, want)
			}
			if (tc.ending == CannotInstall) != strings.Contains(said, "cannot be installed") {
				t.Errorf("%q says two things", said)
			}
		})
	}
}

func TestS14NothingMissing(t *testing.T) {
	var all []string
	for _, p := range Programs {
		if len(p.files) == 0 {
			all = append(all, p.Name)
		}
	}
	h := fakeHost(t, debian, all...)
	write(t, h, "/usr/share/fonts/truetype/dejavu/DejaVuSans.ttf", "", 0o644)
	m := h.Missing()
	if len(m.Programs) > 0 || m.Sentence() != "" {
		t.Errorf("missing %v, %q", m.Required(), m.Sentence())
	}
	if c := h.CheckPrograms(); !c.OK || c.Fix != "" || c.Why != "" {
		t.Errorf("check %+v", c)
	}
}

func TestS14EveryProgramHasAPackageEverywhere(t *testing.T) {
	for _, p := range Programs {
		for _, m := range []Manager{Apt, Dnf, Pacman} {
			if p.Package(m) == "" {
				t.Errorf("%s has no package for %s", p.Name, m)
			}
		}
	}
}

func TestOptionalProgramsAreToldApart(t *testing.T) {
	h := fakeHost(t, debian, "Xvnc", "dbus-daemon", "xfwm4", "xfdesktop", "xfce4-panel")
	m := h.Missing()
	if !slices.Equal(m.Required(), []string{"xfsettingsd"}) || !slices.Equal(m.Optional(), []string{"xfce4-terminal", "fonts"}) {
		t.Errorf("required %v, optional %v", m.Required(), m.Optional())
	}
	c := h.CheckPrograms()
	if c.OK || !strings.Contains(c.Why, "without xfsettingsd") || !strings.Contains(c.Found, "fonts") {
		t.Errorf("check %+v", c)
	}
	write(t, h, "/usr/bin/xfsettingsd", "", 0o755)
	if c := h.CheckPrograms(); c.OK || strings.Contains(c.Why, "cannot") {
		t.Errorf("only optional ones missing: %+v", c)
	}
}

func TestFindWantsAnExecutableFile(t *testing.T) {
	h := fakeHost(t, debian)
	write(t, h, "/usr/bin/Xvnc", "", 0o644)
	if got := h.Find("Xvnc"); got != "" {
		t.Errorf("found %s, which cannot be executed", got)
	}
	if err := os.Mkdir(h.at("/usr/bin/xfwm4"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got := h.Find("xfwm4"); got != "" {
		t.Errorf("found %s, a directory", got)
	}
	write(t, h, "/usr/local/bin/Xvnc", "", 0o755)
	if got := h.Find("Xvnc"); got != h.at("/usr/local/bin/Xvnc") {
		t.Errorf("found %q", got)
	}
}

// The environment's PATH does not choose what we find.
func TestX8PathIsConstant(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "botscreen-test-program"), nil, 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir)
	if got := (Host{}).Find("botscreen-test-program"); got != "" {
		t.Errorf("found %s by the environment", got)
	}
}

func FuzzParseOSRelease(f *testing.F) {
	f.Add([]byte(debian))
	f.Add([]byte("A='b\"\nC=\"\\x1b[31m\"\n=x\n#ID=no\nID"))
	f.Fuzz(func(t *testing.T, data []byte) {
		for key, value := range parseOSRelease(data) {
			if key == "" || len(value) > 80 || strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }) {
				t.Fatalf("%q: %q=%q", data, key, value)
			}
		}
	})
}
