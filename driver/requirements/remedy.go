// SPDX-License-Identifier: MPL-2.0

package requirements

import (
	"os"
	"slices"
	"strconv"
	"strings"
)

// Manager is a package manager.
type Manager string

const (
	Apt    Manager = "apt"
	Dnf    Manager = "dnf"
	Pacman Manager = "pacman"
	// UnknownManager: packages are installed by hand.
	UnknownManager Manager = ""
)

// managers are what we know, each with its program, the families of distributions (os-release(5), ID and ID_LIKE)
// that use it, and the command that installs without a question.
var managers = []struct {
	manager  Manager
	program  string
	families []string
	install  string
}{
	{Apt, "apt-get", []string{"debian", "ubuntu"}, "apt-get install -y --no-install-recommends"},
	{Dnf, "dnf", []string{"fedora", "rhel", "centos"}, "dnf install -y"},
	{Pacman, "pacman", []string{"arch"}, "pacman -S --needed --noconfirm"},
}

// Ending is how a remedy ends.
type Ending string

const (
	// Command: run Remedy.Command.
	Command Ending = "command"
	// CannotInstall: we are not root and there is no sudo, as in most containers.
	CannotInstall Ending = "cannot_install"
	// NoManager: no package manager that we know.
	NoManager Ending = "no_manager"
)

// Remedy is how missing programs are got here.
type Remedy struct {
	Ending  Ending
	Manager Manager
	// Command is what to type, set for the ending Command.
	Command string
	// Distribution is its name from os-release, for the text.
	Distribution string
}

// Sentence says for a person what to do.
func (r Remedy) Sentence() string {
	switch r.Ending {
	case Command:
		return "Run: " + r.Command
	case CannotInstall:
		return "They cannot be installed here (not root, and there is no sudo); use a newer image that has them, or a docker or apptainer screen."
	default:
		return "No known package manager (apt, dnf, pacman) was found on " + r.Distribution +
			"; install the programs by its own means, or use a docker or apptainer screen."
	}
}

func (h Host) remedy(missing []Program) Remedy {
	release := h.osRelease()
	r := Remedy{Distribution: "this system"}
	if name := release["PRETTY_NAME"]; name != "" {
		r.Distribution = name
	}
	install := ""
	r.Manager, install = h.manager(release)
	switch {
	case r.Manager == UnknownManager:
		r.Ending = NoManager
	case !h.root() && h.Find("sudo") == "":
		r.Ending = CannotInstall
	default:
		r.Ending = Command
		if !h.root() {
			install = "sudo " + install
		}
		r.Command = install
		for _, p := range missing {
			r.Command += " " + p.Package(r.Manager)
		}
	}
	return r
}

// manager is the one that this distribution uses, if it is there, else any that is there: a derivative may not
// say what it comes from.
func (h Host) manager(release map[string]string) (Manager, string) {
	family := append([]string{release["ID"]}, strings.Fields(release["ID_LIKE"])...)
	fallback := -1
	for i, m := range managers {
		if h.Find(m.program) == "" {
			continue
		}
		if slices.ContainsFunc(family, func(f string) bool { return slices.Contains(m.families, f) }) {
			return m.manager, m.install
		}
		if fallback < 0 {
			fallback = i
		}
	}
	if fallback < 0 {
		return UnknownManager, ""
	}
	return managers[fallback].manager, managers[fallback].install
}

func (h Host) osRelease() map[string]string {
	for _, path := range []string{"/etc/os-release", "/usr/lib/os-release"} {
		if data, err := os.ReadFile(h.at(path)); err == nil {
			return parseOSRelease(data)
		}
	}
	return nil
}

// parseOSRelease reads os-release(5): shell-like assignments, values perhaps in quotes. What is no assignment is
// left out, and so are control characters: the values go into texts for people.
func parseOSRelease(data []byte) map[string]string {
	found := map[string]string{}
	for line := range strings.Lines(string(data)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), "=")
		if !ok || key == "" || strings.HasPrefix(key, "#") {
			continue
		}
		if unquoted, err := strconv.Unquote(value); err == nil {
			value = unquoted
		} else {
			value = strings.Trim(value, `"'`)
		}
		found[key] = plain(value, 80)
	}
	return found
}

// plain keeps the printable ASCII of a text that somebody else wrote, at most limit bytes of it.
func plain(text string, limit int) string {
	text = strings.Map(func(r rune) rune {
		if r < ' ' || r > '~' {
			return -1
		}
		return r
	}, text)
	return text[:min(len(text), limit)]
}
