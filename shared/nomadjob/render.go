// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/screen"
)

// Names inside of the jobs that Render makes.
const (
	GroupName = "screen"
	TaskName  = "desktop"
)

// Keys of a job's meta: what the job was rendered from.
const (
	MetaName       = "botscreen_name"
	MetaProfile    = "botscreen_profile_ref"
	MetaPlacement  = "botscreen_placement_ref"
	MetaImage      = "botscreen_image"
	MetaImageRef   = "botscreen_image_ref"
	MetaTriggers   = "botscreen_triggers"
	MetaGeneration = "botscreen_generation"
	// MetaReason is why somebody restarted or stopped the screen, in their words.
	MetaReason = "botscreen_reason"
	// MetaRecords is the prefix of the records, where it is not the default.
	MetaRecords = "botscreen_records"
	// MetaPrefix begins every key that is ours.
	MetaPrefix = "botscreen_"
)

// IsolationsAttribute lists what a node can run, by commas.
const IsolationsAttribute = "${attr.driver.botscreen.isolations}"

// Wanted is one screen as somebody declared it, with everything it names looked up.
type Wanted struct {
	Namespace string
	Region    string // empty: the agent's
	Name      string
	JobID     string
	// ProfileName is the bot. ProfileRef and PlacementRef are the versions of the records;
	// PlacementRef is empty for the built-in placement.
	ProfileName  string
	ProfileRef   string
	Profile      Profile
	PlacementRef string
	Placement    Placement
	// Image is what a sandbox runs, pinned; empty: the node's default. ImageRef is the version
	// of the record that it is from, if it is from one.
	Image    string
	ImageRef string
	// Stopped registers the job without running it.
	Stopped bool
	// Records is the prefix that the records are below; empty: DefaultPrefix.
	Records string
	// Triggers and Generation change the job, so that the desktop starts anew.
	Triggers   string
	Generation string
	Meta       map[string]string
}

// Render makes the job of a screen. It is pure: the same Wanted gives the same job.
func Render(w Wanted) *api.Job {
	job := api.NewServiceJob(w.JobID, w.JobID, w.Region, int(w.Placement.Priority))
	if w.Region == "" {
		job.Region = nil
	}
	job.Namespace = &w.Namespace
	job.NodePool = &w.Placement.NodePool
	job.Datacenters = slices.Clone(w.Placement.Datacenters)
	job.Constraints = constraints(w.Placement)
	job.Meta = meta(w)
	if w.Profile.Exits() {
		// A service that ends would be started again at once.
		batch := api.JobTypeBatch
		job.Type = &batch
	} else {
		// Without deployments: one desktop is replaced, never doubled, and Await follows it.
		none := 0
		job.Update = &api.UpdateStrategy{MaxParallel: &none}
	}
	job.TaskGroups = []*api.TaskGroup{group(w)}
	if w.Stopped {
		job.Stop = &w.Stopped
	}
	return job
}

func meta(w Wanted) map[string]string {
	m := maps.Clone(w.Meta)
	if m == nil {
		m = map[string]string{}
	}
	records := w.Records
	if records == DefaultPrefix {
		records = ""
	}
	for key, value := range map[string]string{
		MetaRecords: records, MetaName: w.Name, MetaProfile: w.ProfileRef, MetaPlacement: w.PlacementRef, MetaImage: w.Image, MetaImageRef: w.ImageRef,
		MetaTriggers: w.Triggers, MetaGeneration: w.Generation,
	} {
		if value != "" {
			m[key] = value
		}
	}
	return m
}

func constraints(p Placement) []*api.Constraint {
	out := []*api.Constraint{isolationConstraint(p)}
	if len(p.NodeClasses) > 0 {
		quoted := make([]string, len(p.NodeClasses))
		for i, c := range p.NodeClasses {
			quoted[i] = regexp.QuoteMeta(c)
		}
		out = append(out, api.NewConstraint("${node.class}", api.ConstraintRegex, "^("+strings.Join(quoted, "|")+")$"))
	}
	for _, c := range p.Constraints {
		out = append(out, api.NewConstraint(c.Attribute, c.Operator, c.Value))
	}
	return out
}

// isolationConstraint keeps a screen away from nodes that could only refuse it.
func isolationConstraint(p Placement) *api.Constraint {
	if p.Isolation != string(screen.Auto) {
		return api.NewConstraint(IsolationsAttribute, api.ConstraintSetContains, p.Isolation)
	}
	return api.NewConstraint(IsolationsAttribute, api.ConstraintSetContainsAny, strings.Join(p.IsolationOrder, ","))
}

func group(w Wanted) *api.TaskGroup {
	g := api.NewTaskGroup(GroupName, 1)
	attempts, never, off := 1, 0, false
	interval, delay, mode := 10*time.Minute, 5*time.Second, "fail"
	g.RestartPolicy = &api.RestartPolicy{Attempts: &attempts, Interval: &interval, Delay: &delay, Mode: &mode}
	// The bot's home is on its node: another node would begin with an empty one.
	g.ReschedulePolicy = &api.ReschedulePolicy{Attempts: &never, Unlimited: &off}
	g.Networks = w.Profile.Viewer.network()
	g.Tasks = []*api.Task{task(w)}
	return g
}

func task(w Wanted) *api.Task {
	t := api.NewTask(TaskName, Driver)
	t.Config = taskConfig(w)
	t.Env = maps.Clone(w.Profile.Env)
	cpu, memory := int(w.Profile.CPU), int(w.Profile.Memory)
	t.Resources = &api.Resources{CPU: &cpu, MemoryMB: &memory}
	if w.Profile.MemoryMax != 0 {
		most := int(w.Profile.MemoryMax)
		t.Resources.MemoryMaxMB = &most
	}
	kill := 10 * time.Second
	t.KillTimeout = &kill
	if len(w.Profile.SecretEnv) > 0 {
		t.Templates = []*api.Template{secretTemplate(w.Profile.SecretEnv)}
	}
	t.Templates = append(t.Templates, w.Profile.Viewer.templates()...)
	return t
}

// taskConfig is the driver's `config {}`. Options that a driver of an earlier version would
// not know are left out where they are as the driver's default.
func taskConfig(w Wanted) map[string]any {
	p := w.Profile
	c := map[string]any{
		"profile": w.ProfileName, "isolation": isolationOf(w.Placement),
		"geometry": p.Geometry, "depth": int(p.Depth), "dpi": int(p.DPI),
		"min_free_memory_mb": int(p.MinFreeMemoryMB), "keyboard_layout": p.KeyboardLayout, "look": p.Look,
	}
	if c["isolation"] == string(screen.Auto) {
		// Always: a node whose own order names the host must not choose it for this one.
		c["isolation_order"] = slices.Clone(w.Placement.IsolationOrder)
	}
	if p.StartTimeout != "" {
		c["start_timeout"] = p.StartTimeout
	}
	if p.GLX {
		c["glx"] = true
	}
	d := DefaultProfile()
	for name, one := range map[string][2]string{
		"watch": {p.Watch, d.Watch}, "thumbnails": {p.Thumbnails, d.Thumbnails}, "clipboard": {p.Clipboard, d.Clipboard},
		"takeover": {p.Takeover, d.Takeover}, "away_limit": {p.AwayLimit, d.AwayLimit}, "max_geometry": {p.MaxGeometry, ""},
		"idle_stop": {p.IdleStop, d.IdleStop}, "idle_action": {p.IdleAction, d.IdleAction},
	} {
		if one[0] != one[1] {
			c[name] = one[0]
		}
	}
	if p.Consent {
		c["consent"] = true
	}
	p.doorBlocks(c)
	if w.Image != "" && c["isolation"] != string(screen.Host) {
		c["image"] = w.Image
	}
	return c
}

// isolationOf is the word for the driver: where the order leaves no choice, that one.
func isolationOf(p Placement) string {
	if p.Isolation == string(screen.Auto) && len(p.IsolationOrder) == 1 {
		return p.IsolationOrder[0]
	}
	return p.Isolation
}

// secretTemplate has the task itself read its secrets from Nomad variables, with its own
// identity: they are in no job and in no state.
func secretTemplate(secrets map[string]string) *api.Template {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(secrets)) {
		fmt.Fprintf(&b, "%s={{ with nomadVar %q }}{{ .%s.Value | toJSON }}{{ end }}\n", name, pathOf(secrets[name]), keyOf(secrets[name]))
	}
	text, dest, mode := b.String(), "secrets/botscreen.env", "noop"
	env := true
	return &api.Template{EmbeddedTmpl: &text, DestPath: &dest, Envvars: &env, ChangeMode: &mode}
}

// pathOf and keyOf are the two parts of PATH#KEY.
func pathOf(ref string) string { return ref[:max(0, strings.IndexByte(ref, '#'))] }
func keyOf(ref string) string  { return ref[strings.IndexByte(ref, '#')+1:] }
