// SPDX-License-Identifier: MPL-2.0

package fingerprint

import (
	"slices"
	"strings"

	"github.com/botscreen/botscreen/driver/isolation"
	"github.com/botscreen/botscreen/driver/memory"
	"github.com/botscreen/botscreen/driver/requirements"
)

// facts are what the sources said last.
type facts struct {
	reports map[string]Report
	missing requirements.Missing
	xvnc    string
	browser requirements.Browser
	// userns is what CheckUserNamespaces found.
	userns requirements.Check

	displays     Value
	displayError string

	memory       Value
	memoryReason string
}

const prefix = "driver.botscreen."

// kinds are all isolations there are, in the order in which they are named.
var kinds = []string{Docker, Apptainer, Host}

func (f *facts) setDisplays(free int, err error) {
	f.displays, f.displayError = number(int64(free)), ""
	if err != nil {
		f.displays, f.displayError = Value{}, err.Error()
	}
}

// memoryStepMB is the least difference that is worth an update of the node at Nomad's servers.
const memoryStepMB = 128

// setMemory keeps the figure as long as it is about right: memory moves all the time, and every changed attribute
// costs the cluster a write.
func (f *facts) setMemory(r memory.Reading) {
	f.memoryReason = ""
	if !r.Known {
		f.memory, f.memoryReason = Value{}, "available memory is unknown"
		return
	}
	now, last := int64(r.AvailableMB()), f.memory.Int
	step := max(memoryStepMB, last/16)
	// Across the default floor even a small step decides whether a start is refused.
	crossed := (now < memory.DefaultFloorMB) != (last < memory.DefaultFloorMB)
	if f.memory.empty() || crossed || now >= last+step || now <= last-step {
		f.memory = number(now)
	}
	if now < memory.DefaultFloorMB {
		f.memoryReason = "only " + r.String()
	}
}

// snapshot puts the facts into Nomad's form.
func (f *facts) snapshot(p *Fingerprinter) Snapshot {
	ready := f.ready(p.Order)
	attributes := map[string]Value{
		prefix + "version":             text(p.Version),
		prefix + "isolations":          text(strings.Join(ready, ",")),
		prefix + "xvnc.version":        text(f.xvnc),
		prefix + "browser":             text(f.browser.Name),
		prefix + "browser.executable":  text(plain(f.browser.Path)),
		prefix + "user_namespaces":     text(f.namespaces()),
		prefix + "missing":             text(strings.Join(f.missing.Required(), ",")),
		prefix + "displays.free":       f.displays,
		prefix + "memory.available_mb": f.memory,
	}
	for _, kind := range kinds {
		report := f.report(kind)
		state := "ready"
		if !report.Ready {
			state = report.Reason
		}
		attributes[prefix+"isolation."+kind] = text(state)
		if kind != Host {
			attributes[prefix+kind+".version"] = text(plain(report.Version))
		}
	}
	s := Snapshot{Health: Healthy, Attributes: attributes, Description: f.describe(ready)}
	if len(ready) == 0 {
		s.Health = Unhealthy
	}
	return s
}

// namespaces is "allowed", or why a browser's own sandbox and apptainer get none, with what
// would change that.
func (f *facts) namespaces() string {
	if f.userns.OK || f.userns.Found == "" { // not looked at yet
		return f.userns.Found
	}
	return plain(f.userns.Found + ". Fix: " + f.userns.Fix)
}

// ready are the isolations that a job may use here now, those of the order first.
func (f *facts) ready(order []string) []string {
	var ready []string
	for _, kind := range slices.Concat(order, kinds) {
		if f.report(kind).Ready && !slices.Contains(ready, kind) {
			ready = append(ready, kind)
		}
	}
	return ready
}

// report is a kind's last report, its reason fit for one line of anybody's terminal.
func (f *facts) report(kind string) Report {
	report, ok := f.reports[kind]
	if !ok {
		return Report{Reason: "this plugin does not have it"}
	}
	if report.Ready {
		return report
	}
	report.Reason = plain(report.Reason)
	if report.Reason == "" {
		report.Reason = "not ready, and its probe does not say why"
	}
	return report
}

// describe says what works and, for everything that does not, why.
func (f *facts) describe(ready []string) string {
	said := []string{"No isolation is ready"}
	if len(ready) > 0 {
		said = []string{"Ready: " + strings.Join(ready, ", ")}
	}
	for _, kind := range kinds {
		if report := f.report(kind); !report.Ready {
			said = append(said, kind+": "+strings.TrimSuffix(report.Reason, "."))
		}
	}
	if f.displayError != "" {
		said = append(said, "displays: "+plain(f.displayError))
	} else if f.displays == number(0) {
		said = append(said, "displays: none free, widen `displays` in the plugin's config")
	}
	if f.browser.Name == requirements.NoBrowser && slices.Contains(ready, Host) {
		said = append(said, "browser: host screens have no headed browser, install chromium or google-chrome")
	}
	if !f.userns.OK && f.userns.Found != "" && slices.Contains(ready, Host) {
		said = append(said, "browser: its sandbox needs user namespaces or a set-user-ID helper: "+strings.TrimSuffix(f.namespaces(), "."))
	}
	if f.memoryReason != "" {
		said = append(said, "memory: "+f.memoryReason)
	}
	return strings.Join(said, "; ") + "."
}

// maxReason bounds a reason: it becomes part of a node's record at the servers.
const maxReason = 400

// plain is one line of a text that an engine wrote, and keeps its beginning.
func plain(s string) string {
	s = isolation.OneLine(s)
	if len(s) > maxReason {
		s = strings.ToValidUTF8(s[:maxReason], "") + "…"
	}
	return s
}
