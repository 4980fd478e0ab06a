// SPDX-License-Identifier: MPL-2.0

package desktop

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
)

// A profile that is older than the browser's icon, or that had no browser at first, has a
// panel without it: settings are seeded only where there are none. It gets the icon once.
// Who takes it off the panel then does not get it again (rule S4).

const (
	panelSettings = channelDir + "/xfce4-panel.xml"
	// iconGiven is a file that says that this profile's panel has had the icon.
	iconGiven = "botscreen/icon-given"
	// maxPanel bounds what is read of a panel's settings, in bytes.
	maxPanel = 1 << 20

	iconID     = `<value type="int" value="11"/>`
	iconName   = "plugin-11"
	iconPlugin = `<property name="` + iconName + `" type="string" value="launcher">
      <property name="items" type="array">
        <value type="string" value="` + openerEntry + `"/>
      </property>
    </property>`
)

// giveIcon puts the icon on a panel that never had it. Settings that nobody can read are
// left alone.
func (o Options) giveIcon() error {
	if o.Opener == nil {
		return nil
	}
	root, err := os.OpenRoot(o.ConfigHome)
	if err != nil {
		return fmt.Errorf("give the panel the browser's icon: %w", err)
	}
	defer root.Close()
	if _, err := root.Lstat(iconGiven); err == nil {
		return nil
	}
	text, err := readPanel(root)
	if err == nil {
		if with, ok := withIcon(text); ok {
			err = replace(root, panelSettings, []byte(with))
		}
	}
	if err == nil {
		err = root.MkdirAll(path.Dir(iconGiven), 0o700)
	}
	if err == nil {
		err = create(root, iconGiven, nil)
	}
	if err := leaveAlone(err); err != nil && !errors.Is(err, fs.ErrPermission) {
		return fmt.Errorf("give the panel the browser's icon: %w", err)
	}
	return nil
}

func readPanel(root *os.Root) (string, error) {
	f, err := root.Open(panelSettings)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPanel))
	return string(text), err
}

// withIcon adds the icon to a panel's settings, as xfconfd writes them: behind the first
// plugin of the last panel. ok is false where it is there, or where the settings have not
// the form they should have.
func withIcon(text string) (with string, ok bool) {
	var open []string // names of the properties around
	ids, plugins := -1, -1
	d := xml.NewDecoder(strings.NewReader(text))
	for {
		begin := d.InputOffset()
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return "", false
		}
		switch element := token.(type) {
		case xml.StartElement:
			name := attributeOf(element, "name")
			if element.Name.Local == "property" && name == iconName {
				return "", false
			}
			open = append(open, name)
		case xml.EndElement:
			inside := open[:len(open)-1]
			switch {
			case element.Name.Local == "value" && len(inside) > 1 && inside[len(inside)-1] == "plugin-ids" && !slices.Contains(inside, "plugins"):
				if first := strings.LastIndex(text[:begin], `name="plugin-ids"`); ids < first {
					ids = int(d.InputOffset())
				}
			case element.Name.Local == "property" && open[len(open)-1] == "plugins" && len(inside) == 1:
				plugins = int(begin)
			}
			open = inside
		}
	}
	if ids < 0 || plugins < ids {
		return "", false
	}
	return text[:ids] + "\n        " + iconID + text[ids:plugins] + "  " + iconPlugin + "\n  " + text[plugins:], true
}

func attributeOf(element xml.StartElement, name string) string {
	for _, a := range element.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}
