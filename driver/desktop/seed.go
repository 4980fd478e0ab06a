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
	layoutChannel  = channelDir + "/keyboard-layout.xml"
	launcherFolder = "xfce4/panel/launcher-9" // plugin-9 of the full look
)

// Seed is one file to be written below XDG_CONFIG_HOME where it is absent.
type Seed struct {
	Path    string // relative, slash-separated
	Content []byte
	// Decides says whether an existing file is to be replaced; nil never does.
	Decides func(existing []byte) bool
}

// seeds are the settings of the look that o asks for.
func seeds(o Options) ([]Seed, error) {
	layouts, variants := splitLayout(o.KeyboardLayout)
	values := placeholders(o, layouts, variants)
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
			s := Seed{Path: seedPath(entry.Name()), Content: []byte(values.Replace(string(text)))}
			if s.Path == layoutChannel {
				s.Decides = func(existing []byte) bool { return layoutDiffers(existing, layouts, variants) }
			}
			all = append(all, s)
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

func placeholders(o Options, layouts, variants string) *strings.Replacer {
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
		// Leaving Xvnc's own layout alone saves compiling it again.
		"@XKB_DISABLE@", strconv.FormatBool(o.KeyboardLayout == builtinLayout),
		"@XKB_LAYOUT@", layouts,
		"@XKB_VARIANT@", variants,
	)
}

func escapeXML(s string) string {
	var b bytes.Buffer
	_ = xml.EscapeText(&b, []byte(s)) // a bytes.Buffer takes everything
	return b.String()
}

// splitLayout turns "de(nodeadkeys),us" into XKB's parallel lists "de,us" and
// "nodeadkeys,".
func splitLayout(spec string) (layouts, variants string) {
	var names, kinds []string
	for part := range strings.SplitSeq(spec, ",") {
		name, rest, _ := strings.Cut(part, "(")
		names = append(names, name)
		kinds = append(kinds, strings.TrimSuffix(rest, ")"))
	}
	variants = strings.Join(kinds, ",")
	if strings.Trim(variants, ",") == "" {
		variants = ""
	}
	return strings.Join(names, ","), variants
}

// layoutDiffers reports whether the channel file names another layout than the
// job does. The layout is the one setting that the job decides at each start
// and not the person at the desktop; an unreadable file does not decide either.
func layoutDiffers(existing []byte, layouts, variants string) bool {
	var channel struct {
		Properties []struct {
			Name       string `xml:"name,attr"`
			Properties []struct {
				Name  string `xml:"name,attr"`
				Value string `xml:"value,attr"`
			} `xml:"property"`
		} `xml:"property"`
	}
	if err := xml.Unmarshal(existing, &channel); err != nil {
		return true
	}
	found := map[string]string{}
	for _, group := range channel.Properties {
		for _, p := range group.Properties {
			found[group.Name+"/"+p.Name] = p.Value
		}
	}
	return found["Default/XkbLayout"] != layouts || found["Default/XkbVariant"] != variants
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
	err := create(root, f.Path, f.Content)
	if !errors.Is(err, fs.ErrExist) {
		return leaveAlone(err)
	}
	if f.Decides == nil {
		return nil
	}
	info, err := root.Lstat(f.Path)
	if err != nil || !info.Mode().IsRegular() {
		return nil
	}
	existing, err := root.ReadFile(f.Path)
	if err != nil || !f.Decides(existing) {
		return nil
	}
	return replace(root, f.Path, f.Content)
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
