// SPDX-License-Identifier: MPL-2.0

// Package requirements knows the programs that a desktop on the raw host needs, which of them are missing, and
// what to type to get them on this machine. It runs nothing as root that anybody but root could have put there.
package requirements

import (
	"cmp"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// Path is where programs of the system are looked for. It is a constant: a PATH from the environment would choose
// what runs.
const Path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Program is something a desktop needs.
type Program struct {
	// Name is the executable's name, or what stands for it where there is none (fonts).
	Name string
	// Optional: a desktop starts without it, only poorer.
	Optional bool
	// packages has its package per manager.
	packages map[Manager]string
	// files are glob patterns, one of which has to match, for what is no executable.
	files []string
}

// Package is the name of the program's package for a package manager.
func (p Program) Package(m Manager) string { return p.packages[m] }

// Programs are what a host desktop needs, with their packages (rule S14). Umbrella packages are left out: Fedora
// retires them now and then, and dnf then refuses the whole command.
var Programs = []Program{
	{Name: "Xvnc", packages: packages("tigervnc-standalone-server", "tigervnc-x11-server", "tigervnc")},
	{Name: "dbus-daemon", packages: packages("dbus", "dbus-daemon", "dbus")},
	{Name: "xfwm4", packages: packages("xfwm4", "xfwm4", "xfwm4")},
	{Name: "xfdesktop", packages: packages("xfdesktop4", "xfdesktop", "xfdesktop")},
	{Name: "xfce4-panel", packages: packages("xfce4-panel", "xfce4-panel", "xfce4-panel")},
	{Name: "xfsettingsd", packages: packages("xfce4-settings", "xfce4-settings", "xfce4-settings")},
	{Name: "xfce4-terminal", Optional: true, packages: packages("xfce4-terminal", "xfce4-terminal", "xfce4-terminal")},
	{
		Name: "fonts", Optional: true, packages: packages("fonts-dejavu-core", "dejavu-sans-fonts", "ttf-dejavu"),
		files: []string{
			"/usr/share/fonts/*/DejaVuSans.ttf", "/usr/share/fonts/*/*/DejaVuSans.ttf",
			"/usr/share/fonts/DejaVuSans.ttf", "/usr/local/share/fonts/*/DejaVuSans.ttf",
		},
	},
}

func packages(apt, dnf, pacman string) map[Manager]string {
	return map[Manager]string{Apt: apt, Dnf: dnf, Pacman: pacman}
}

// Host is the machine to look at. The zero value is this one.
type Host struct {
	// Root is prefixed to every path; empty means none.
	Root string
	// Path is where programs are looked for; empty means the constant Path.
	Path string
	// Unprivileged says that we are not root, whatever our uid. It is for tests.
	Unprivileged bool
	// Versions remembers what browsers said; nil: each is asked each time.
	Versions *Memory
}

func (h Host) root() bool { return os.Geteuid() == 0 && !h.Unprivileged }

func (h Host) at(path string) string { return filepath.Join(cmp.Or(h.Root, "/"), path) }

// Find returns the absolute path of a program below Root, or "".
func (h Host) Find(program string) string {
	for _, dir := range filepath.SplitList(cmp.Or(h.Path, Path)) {
		candidate := h.at(filepath.Join(dir, program))
		info, err := os.Stat(candidate)
		if err == nil && info.Mode().IsRegular() && unix.Access(candidate, unix.X_OK) == nil {
			return candidate
		}
	}
	return ""
}

func (h Host) has(p Program) bool {
	if len(p.files) == 0 {
		return h.Find(p.Name) != ""
	}
	return slices.ContainsFunc(p.files, func(pattern string) bool {
		found, err := filepath.Glob(h.at(pattern))
		return err == nil && len(found) > 0
	})
}

// Missing is what a host lacks and what to do about it.
type Missing struct {
	// Programs are the missing ones in the order of [Programs], optional ones included.
	Programs []Program
	// Remedy is how to get them.
	Remedy Remedy
}

// Required names the missing programs without which no desktop starts.
func (m Missing) Required() []string { return m.names(false) }

// Optional names the missing programs that only make a desktop poorer.
func (m Missing) Optional() []string { return m.names(true) }

func (m Missing) names(optional bool) []string {
	var names []string
	for _, p := range m.Programs {
		if p.Optional == optional {
			names = append(names, p.Name)
		}
	}
	return names
}

// Sentence says for a person what is missing and how to get it; empty when nothing is.
func (m Missing) Sentence() string {
	if len(m.Programs) == 0 {
		return ""
	}
	var names []string
	for _, p := range m.Programs {
		name := p.Name
		if pkg := p.Package(m.Remedy.Manager); pkg != "" && pkg != name {
			name += " (package " + pkg + ")"
		}
		names = append(names, name)
	}
	return "Missing for a desktop on this node: " + strings.Join(names, ", ") + ". " + m.Remedy.Sentence()
}

// Missing looks for everything a host desktop needs, all at once.
func (h Host) Missing() Missing {
	var m Missing
	for _, p := range Programs {
		if !h.has(p) {
			m.Programs = append(m.Programs, p)
		}
	}
	if len(m.Programs) > 0 {
		m.Remedy = h.remedy(m.Programs)
	}
	return m
}
