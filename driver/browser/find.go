// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Found is the browser of a screen.
type Found struct {
	Executable string // absolute
	Version    Version
	Confined   Confinement
	Recalled   bool // Version is what the node knew; nobody has asked for this start
}

// Confinement is how the browser confines its pages.
type Confinement string

// The ways, and none of them: that is only ever the job's own choice (rule W3).
const (
	Namespaces Confinement = "namespaces"
	Setuid     Confinement = "setuid"
	Off        Confinement = "off"
)

// ErrNone says that there is no headed browser.
var ErrNone = errors.New("there is no headed browser in this screen: install chromium or Google Chrome where the desktop runs, or name one in browser.executable")

// SystemNames are looked for in PATH, in this order.
var SystemNames = []string{
	"chromium", "chromium-browser", "google-chrome-stable", "google-chrome", "microsoft-edge-stable", "brave-browser",
}

// candidates are the executables that may be the screen's browser, the best first: the
// job's own and no other, else the system's, else what Playwright brought along.
func candidates(o Options) []string {
	if o.Executable != "" {
		return []string{o.Executable}
	}
	path := variable(o.Env, "PATH")
	var found []string
	for _, name := range SystemNames {
		for _, dir := range filepath.SplitList(path) {
			if file := filepath.Join(dir, name); filepath.IsAbs(file) && isProgram(file) {
				found = append(found, file)
				break
			}
		}
	}
	return append(found, bundled(o.Env)...)
}

// bundled are the browsers that Playwright downloaded, the newest first. Its headless
// shells lie in folders of another name, and show no window (rule W3).
func bundled(env []string) []string {
	root := variable(env, "PLAYWRIGHT_BROWSERS_PATH")
	if !filepath.IsAbs(root) {
		root = filepath.Join(variable(env, "HOME"), ".cache", "ms-playwright")
	}
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil
	}
	type bundle struct {
		revision int
		path     string
	}
	var all []bundle
	for _, e := range entries {
		number, ok := strings.CutPrefix(e.Name(), "chromium-")
		revision, err := strconv.Atoi(number)
		if !ok || err != nil {
			continue
		}
		for _, platform := range []string{"chrome-linux64", "chrome-linux"} {
			if file := filepath.Join(root, e.Name(), platform, "chrome"); isProgram(file) {
				all = append(all, bundle{revision, file})
			}
		}
	}
	slices.SortStableFunc(all, func(a, b bundle) int { return b.revision - a.revision })
	paths := make([]string, len(all))
	for i, b := range all {
		paths[i] = b.path
	}
	return paths
}

func isProgram(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular() && info.Mode()&0o111 != 0
}

// variable is the last value of a name in an environment, empty where it has none.
func variable(env []string, name string) string {
	value := ""
	for _, entry := range env {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}

// find chooses the browser: of the candidates the first whose sandbox works here, and
// whose version can be told.
func find(ctx context.Context, o Options) (Found, error) {
	paths := candidates(o)
	if len(paths) == 0 {
		return Found{}, ErrNone
	}
	namespaces := error(nil)
	if o.Sandbox {
		namespaces = tryNamespaces(o.Starter)
	}
	var faults []error
	for _, path := range paths {
		found, err := judge(ctx, o, path, namespaces)
		if err == nil {
			return found, nil
		}
		faults = append(faults, err)
	}
	return Found{}, errors.Join(faults...)
}

// judge says what a candidate is. Where user namespaces cannot be made only one with a
// helper of its own will do, which bundles never have (rule W3).
func judge(ctx context.Context, o Options, path string, namespaces error) (Found, error) {
	found := Found{Executable: path, Confined: Namespaces}
	switch {
	case !isProgram(path):
		return found, fmt.Errorf("%s is no program in this screen", path)
	case !o.Sandbox:
		found.Confined = Off
	case namespaces != nil && hasHelper(path):
		found.Confined = Setuid
	case namespaces != nil:
		return found, &SandboxError{Executable: path, Reason: namespaces.Error()}
	}
	if found.Version, found.Recalled = recall(o.Known, path); found.Recalled {
		return found, nil
	}
	var err error
	found.Version, err = askVersion(ctx, o.Starter, path)
	return found, err
}

// Icon is the icon theme's name for the browser that a job chose, or for browsers at all.
func Icon(executable string) string {
	switch name := filepath.Base(executable); {
	case strings.Contains(name, "chromium"):
		return "chromium"
	case strings.Contains(name, "chrome"):
		return "google-chrome"
	}
	// A theme may have neither; the system's browser brings its own picture along.
	for _, name := range []string{"chromium", "google-chrome"} {
		if _, err := os.Stat("/usr/share/icons/hicolor/48x48/apps/" + name + ".png"); err == nil {
			return name
		}
	}
	return "web-browser"
}
