// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
)

// Opener is what opens addresses on a desktop, whoever wants that: the panel's icon, the
// menu, xdg-open, a terminal's link.
type Opener struct {
	Command string // absolute; called with one address, or none
	Icon    string // of an icon theme
}

// Names below XDir, where nobody's settings lie and which ends with the screen; so they
// are right whatever directory this screen runs in now.
const (
	openerData   = "share" // an XDG_DATA_DIRS of its own
	openerConfig = "xdg"   // an XDG_CONFIG_DIRS of its own

	systemDataDirs   = "/usr/local/share:/usr/share"
	systemConfigDirs = "/etc/xdg"
)

const (
	openerName  = "botscreen-browser"
	openerEntry = openerName + ".desktop"
	// openerLauncher holds plugin-11 of the panels in settings.
	openerLauncher = "xfce4/panel/launcher-11"
)

// ownFirst puts our directory before the system's. A path with a colon cannot stand in a
// list of paths.
func (o Options) ownFirst(name, system string) string {
	own := filepath.Join(o.XDir, name)
	if o.Opener == nil || strings.Contains(own, ":") {
		return system
	}
	return own + ":" + system
}

// replaced are entries of browsers that would start with another profile than the screen's
// (rule W1). Ours stand before them, and in no menu twice.
var replaced = []string{
	"chromium.desktop", "chromium-browser.desktop", "google-chrome.desktop", "com.google.Chrome.desktop", "org.chromium.Chromium.desktop",
}

// openedTypes are what it is the default application for, see the Association between MIME
// types and applications 1.0.1.
var openedTypes = []string{"text/html", "application/xhtml+xml", "x-scheme-handler/http", "x-scheme-handler/https", "x-scheme-handler/about"}

// plantOpener writes the opener's entries, each time: the command moves with the screen.
// The panel's own copy lies among the settings and belongs to us by its name.
func (o Options) plantOpener() error {
	if o.Opener == nil {
		return nil
	}
	entry := o.Opener.entry("")
	files := map[string]string{
		path.Join(openerData, "applications", openerEntry):     entry,
		path.Join(openerData, "xfce4/helpers", openerEntry):    o.Opener.helper(),
		path.Join(openerConfig, "mimeapps.list"):               defaultApplications(),
		path.Join(openerConfig, "xfce4", "helpers.rc"):         "WebBrowser=" + openerName + "\n",
		path.Join(openerConfig, "xfce4-mimeapps.list"):         defaultApplications(),
		path.Join(openerData, "applications", "mimeapps.list"): defaultApplications(),
	}
	for _, name := range replaced {
		files[path.Join(openerData, "applications", name)] = o.Opener.entry("NoDisplay=true\n")
	}
	if err := replaceFiles(o.XDir, files); err != nil {
		return fmt.Errorf("say what opens addresses: %w", err)
	}
	if err := replaceFiles(o.ConfigHome, map[string]string{path.Join(openerLauncher, openerEntry): entry}); err != nil {
		return fmt.Errorf("say what opens addresses: %w", err)
	}
	return nil
}

func defaultApplications() string {
	var b strings.Builder
	b.WriteString("[Default Applications]\n")
	for _, t := range openedTypes {
		b.WriteString(t + "=" + openerEntry + "\n")
	}
	return b.String()
}

// entry is a Desktop Entry 1.5.
func (p *Opener) entry(more string) string {
	return "[Desktop Entry]\nVersion=1.0\nType=Application\nName=Web Browser\nComment=The browser of this screen\n" +
		"Exec=" + quoteExec(p.Command) + " %u\nIcon=" + p.Icon + "\nTerminal=false\nStartupNotify=false\n" +
		"Categories=Network;WebBrowser;\nMimeType=" + strings.Join(openedTypes, ";") + ";\n" + more
}

// helper is what Xfce calls a preferred application, for exo-open --launch WebBrowser.
func (p *Opener) helper() string {
	command := quoteExec(p.Command)
	return "[Desktop Entry]\nVersion=1.0\nType=X-XFCE-Helper\nName=Web Browser\nIcon=" + p.Icon + "\nNoDisplay=true\nStartupNotify=false\n" +
		"X-XFCE-Category=WebBrowser\nX-XFCE-Commands=" + command + ";\nX-XFCE-CommandsWithParameter=" + command + " \"%s\";\n"
}

// quoteExec writes a program's path as one argument of an Exec key: in quotes, with a
// backslash before the four characters that are special between them, a percent sign
// doubled, and then every backslash doubled, since the value is a string in which it is an
// escape (Desktop Entry Specification 1.5, "The Exec key"; rule S13).
func quoteExec(program string) string {
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`, "`", "\\`", "$", `\$`, "%", "%%").Replace(program)
	return `"` + strings.ReplaceAll(quoted, `\`, `\\`) + `"`
}

// replaceFiles writes files below dir, in the place of those there are, and follows no
// link out of it. A link that leads out of it is somebody's own arrangement.
func replaceFiles(dir string, files map[string]string) error {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	defer root.Close()
	for name, text := range files {
		err := root.MkdirAll(path.Dir(name), 0o700)
		if err == nil {
			err = replace(root, name, []byte(text))
		}
		if err := leaveAlone(err); err != nil && !errors.Is(err, fs.ErrPermission) {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	return nil
}
