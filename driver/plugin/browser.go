// SPDX-License-Identifier: MPL-2.0

package plugin

import h "github.com/botscreen/botscreen/shared/nomadplugin/hclspec"

// jobBrowser is a job's `browser {}`.
type jobBrowser struct {
	Enabled    bool     `codec:"enabled"`
	Executable string   `codec:"executable"`
	Args       []string `codec:"args"`
	Sandbox    bool     `codec:"sandbox"`
	StartURL   string   `codec:"start_url"`
}

var browserSpec = h.Default(
	h.Block("browser", h.Object(h.Fields{
		"enabled":    h.Default(h.Attr("enabled", "bool"), h.Bool(true)),
		"executable": h.Default(h.Attr("executable", "string"), h.String("")),
		"args":       h.Default(h.Attr("args", "list(string)"), h.Strings()),
		"sandbox":    h.Default(h.Attr("sandbox", "bool"), h.Bool(true)),
		"start_url":  h.Default(h.Attr("start_url", "string"), h.String("")),
	})),
	h.Literal(`{ enabled = true, executable = "", args = [], sandbox = true, start_url = "" }`),
)
