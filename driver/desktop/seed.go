// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"bytes"
	"embed"
	"encoding/xml"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strconv"
	"strings"
)

// settings holds the values of finished desktops. They are complete on purpose:
// xfwm4 writes every key it misses, and each write makes it load its theme
// again, 15 times on a fresh home. GTK's own settings.ini says the same as the
// xsettings channel, so that programs look right before xfsettingsd has come.
//
//go:embed settings
var settings embed.FS

const (
	channelDir     = "xfce4/xfconf/xfce-perchannel-xml"
	launcherFolder = "xfce4/panel/launcher-9" // plugin-9 of the full look
)

// Seed is one file to be written below XDG_CONFIG_HOME where it is absent.
type Seed struct {
	Path    string // relative, slash-separated
	Content []byte
}

// seeds are the settings of the look that o asks for.
func seeds(o Options) ([]Seed, error) {
	values := placeholders(o)
	var all []Seed
	for _, folder := range []string{"settings/common", "settings/" + string(o.Look)} {
		entries, err := settings.ReadDir(folder)
		if err != nil {
			return nil, fmt.Errorf("read settings: %w", err)
		}
		for _, entry := range entries {
			text, err := settings.ReadFile(path.Join(folder, entry.Name()))
			if err != nil {
				return nil, fmt.Errorf("read settings: %w", err)
			}
			all = append(all, Seed{Path: seedPath(entry.Name()), Content: []byte(values.Replace(string(text)))})
		}
	}
	return all, nil
}

func seedPath(name string) string {
	switch path.Ext(name) {
	case ".desktop":
		return path.Join(launcherFolder, name)
	case ".ini":
		return path.Join("gtk-3.0", name)
	default:
		return path.Join(channelDir, name)
	}
}

func placeholders(o Options) *strings.Replacer {
	workspaces := "1"
	if o.Look == LookFull {
		workspaces = "4"
	}
	return strings.NewReplacer(
		"@WORKSPACES@", workspaces,
		"@DPI@", strconv.Itoa(o.DPI),
		"@GTK_DPI@", strconv.Itoa(o.DPI*1024), // GTK counts in 1/1024 of a dot per inch
		"@WALLPAPER@", escapeXML(o.wallpaper()),
		"@HOME@", escapeXML(o.Home),
		"@BROWSER_ID@", whereOpener(o, iconID),
		"@BROWSER_PLUGIN@", whereOpener(o, iconPlugin),
	)
}

// whereOpener is text where something opens addresses, and nothing elsewhere.
func whereOpener(o Options, text string) string {
	if o.Opener == nil {
		return ""
	}
	return text
}

func escapeXML(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a bytes.Buffer takes everything
	return b.String()
}

// plant writes the seeds below the directory configHome, which is made if it is
// absent. Nothing outside it is ever touched, wherever links point (os.Root),
// and a name that exists, a dangling link too, is left alone (rules S4, X6).
// A name that cannot be written because of a link that leaves the directory is
// left alone as well: that is where somebody keeps their settings elsewhere.
func plant(configHome string, files []Seed) error {
	if err := os.MkdirAll(configHome, 0o700); err != nil {
		return fmt.Errorf("seed settings: %w", err)
	}
	root, err := os.OpenRoot(configHome)
	if err != nil {
		return fmt.Errorf("seed settings: %w", err)
	}
	defer root.Close()
	for _, f := range files {
		if err := plantOne(root, f); err != nil {
			return fmt.Errorf("seed settings: %s: %w", f.Path, err)
		}
	}
	return nil
}

func plantOne(root *os.Root, f Seed) error {
	dir := path.Dir(f.Path)
	if info, err := root.Stat(dir); err != nil || !info.IsDir() {
		if err := root.MkdirAll(dir, 0o700); err != nil {
			return leaveAlone(err)
		}
	}
	return leaveAlone(create(root, f.Path, f.Content))
}

// create makes a new file; O_EXCL does not follow a link in the last place.
func create(root *os.Root, name string, content []byte) error {
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(content)
	return errors.Join(err, f.Close())
}

// replace puts a new file in the place of name in one step.
func replace(root *os.Root, name string, content []byte) error {
	temporary := name + ".botscreen-new"
	if err := root.Remove(temporary); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := create(root, temporary, content); err != nil {
		return err
	}
	return root.Rename(temporary, name)
}

// leaveAlone turns the errors of a name that is not ours to make into nil: it
// escapes the directory, or something that is no directory is in the way.
func leaveAlone(err error) error {
	var failed *fs.PathError
	switch {
	case err == nil, errors.Is(err, fs.ErrExist), errors.Is(err, fs.ErrNotExist):
		return nil
	case errors.As(err, &failed) && strings.Contains(failed.Err.Error(), "escapes"):
		return nil
	}
	return err
}
