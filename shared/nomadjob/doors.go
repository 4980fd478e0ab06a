// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/screen"
)

// Viewer is a listener for people with a ticket, on a port that the job asks Nomad for.
type Viewer struct {
	Port string `json:"port"` // the port's label
	// StaticPort is the port itself; 0: one that Nomad chooses.
	StaticPort int64 `json:"static_port,omitempty"`
	// HostNetwork is the node's network that the port is of; empty: Nomad's default.
	HostNetwork string `json:"host_network,omitempty"`
	// TLSCert and TLSKey each name a Nomad variable and one of its keys, PATH#KEY: the task
	// reads them with its own identity.
	TLSCert string `json:"tls_cert,omitempty"`
	TLSKey  string `json:"tls_key,omitempty"`
}

// AgentSocket is the agent's door in the alloc's shared directory.
type AgentSocket struct {
	Mode  string  `json:"mode"`
	Group string  `json:"group,omitempty"`
	UIDs  []int64 `json:"uids,omitempty"`
}

// Docker is what a profile decides about a container.
type Docker struct {
	NetworkMode string            `json:"network_mode"`
	ShmSizeMB   int64             `json:"shm_size_mb"`
	PidsLimit   int64             `json:"pids_limit"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// Apptainer is what a profile decides about an apptainer container.
type Apptainer struct {
	Writable bool  `json:"writable,omitempty"`
	TmpfsMB  int64 `json:"tmpfs_mb"`
}

// Browser is what a profile decides about the screen's one browser. Which program it is, is
// the node's and the image's.
type Browser struct {
	Enabled  bool     `json:"enabled"`
	Args     []string `json:"args,omitempty"`
	Sandbox  bool     `json:"sandbox"`
	StartURL string   `json:"start_url,omitempty"`
}

// ViewerPort is the label of a viewer's port where a profile names none.
const ViewerPort = "viewer"

// Files that a viewer's certificate and key are written to, below the task's directory. What
// runs on the desktop does not see secrets.
const (
	viewerCert = "local/viewer-cert.pem"
	viewerKey  = "secrets/viewer-key.pem"
)

func (p *Profile) doorDefaults() {
	d := screen.Defaults()
	p.AgentSocket.Mode = d.AgentSocketMode
	p.Browser = Browser{Enabled: d.BrowserEnabled, Sandbox: d.BrowserSandbox}
	p.Docker = Docker{NetworkMode: string(screen.NetworkNone), ShmSizeMB: 1024, PidsLimit: 2048}
	p.Apptainer.TmpfsMB = 1024
}

// doorConfig adds the nested parts to what the driver is told.
func (p Profile) doorConfig(c *screen.Config) {
	c.AgentSocketMode, c.AgentSocketGroup, c.AgentSocketUIDs = p.AgentSocket.Mode, p.AgentSocket.Group, p.AgentSocket.UIDs
	c.BrowserEnabled, c.BrowserArgs, c.BrowserSandbox, c.BrowserStartURL = p.Browser.Enabled, p.Browser.Args, p.Browser.Sandbox, p.Browser.StartURL
	c.DockerNetworkMode, c.DockerShmSizeMB, c.DockerPidsLimit = p.Docker.NetworkMode, int(p.Docker.ShmSizeMB), int(p.Docker.PidsLimit)
	c.DockerLabels = p.Docker.Labels
	c.ApptainerWritable, c.ApptainerTmpfsMB = p.Apptainer.Writable, int(p.Apptainer.TmpfsMB)
	if v := p.Viewer; v != nil {
		c.ViewerPort = v.Port
		if v.TLSCert != "" || v.TLSKey != "" {
			c.ViewerTLSCert, c.ViewerTLSKey = viewerCert, viewerKey
		}
	}
}

var hostNetwork = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

func (p Profile) validateViewer(faults *screen.Faults) {
	v := p.Viewer
	if v == nil {
		return
	}
	if v.StaticPort != 0 {
		limits(faults, "viewer.static_port", v.StaticPort, 1, 65535)
	}
	if v.HostNetwork != "" && !hostNetwork.MatchString(v.HostNetwork) {
		faults.Add("viewer.host_network", v.HostNetwork, "must be the name of a host network of the nodes: 1 to 128 letters, digits, hyphens and underscores")
	}
	if (v.TLSCert == "") != (v.TLSKey == "") {
		faults.Add("viewer.tls_key", "", "must be given together with viewer.tls_cert, or both left out")
	}
	for name, ref := range map[string]string{"viewer.tls_cert": v.TLSCert, "viewer.tls_key": v.TLSKey} {
		if ref != "" && !secretRef.MatchString(ref) { // not repeated: it may be the key itself
			faults.Add(name, "", "must name a Nomad variable and one of its keys, \"PATH#KEY\", never the PEM itself")
		}
	}
}

// doorBlocks are the nested blocks of a job's `config {}`, where they are not as the
// driver's default.
func (p Profile) doorBlocks(c map[string]any) {
	d := DefaultProfile()
	block := func(name string, isDefault bool, content map[string]any) {
		if !isDefault {
			c[name] = []map[string]any{content}
		}
	}
	socket := map[string]any{"mode": p.AgentSocket.Mode}
	if p.AgentSocket.Group != "" {
		socket["group"] = p.AgentSocket.Group
	}
	if len(p.AgentSocket.UIDs) > 0 {
		socket["uids"] = p.AgentSocket.UIDs
	}
	block("agent_socket", p.AgentSocket.Mode == d.AgentSocket.Mode && len(socket) == 1, socket)
	browser := map[string]any{"enabled": p.Browser.Enabled, "sandbox": p.Browser.Sandbox}
	if len(p.Browser.Args) > 0 {
		browser["args"] = slices.Clone(p.Browser.Args)
	}
	if p.Browser.StartURL != "" {
		browser["start_url"] = p.Browser.StartURL
	}
	block("browser", p.Browser.Enabled == d.Browser.Enabled && p.Browser.Sandbox == d.Browser.Sandbox && len(browser) == 2, browser)
	docker := map[string]any{"network_mode": p.Docker.NetworkMode, "shm_size_mb": p.Docker.ShmSizeMB, "pids_limit": p.Docker.PidsLimit}
	same := p.Docker.NetworkMode == d.Docker.NetworkMode && p.Docker.ShmSizeMB == d.Docker.ShmSizeMB && p.Docker.PidsLimit == d.Docker.PidsLimit
	if len(p.Docker.Labels) > 0 {
		docker["labels"] = []map[string]string{maps.Clone(p.Docker.Labels)}
	}
	block("docker", same && len(p.Docker.Labels) == 0, docker)
	block("apptainer", p.Apptainer == d.Apptainer, map[string]any{"writable": p.Apptainer.Writable, "tmpfs_mb": p.Apptainer.TmpfsMB})
	if v := p.Viewer; v != nil {
		viewer := map[string]any{"port": v.Port}
		if v.TLSCert != "" {
			viewer["tls_cert"], viewer["tls_key"] = viewerCert, viewerKey
		}
		block("viewer", false, viewer)
	}
}

// network asks Nomad for the viewer's port.
func (v *Viewer) network() []*api.NetworkResource {
	if v == nil {
		return nil
	}
	// Nomad would fill in its word for none, which is no drift.
	port := api.Port{Label: v.Port, Value: int(v.StaticPort), HostNetwork: cmp.Or(v.HostNetwork, "default")}
	if v.StaticPort != 0 {
		return []*api.NetworkResource{{ReservedPorts: []api.Port{port}}}
	}
	return []*api.NetworkResource{{DynamicPorts: []api.Port{port}}}
}

// templates write the certificate and its key, which are in no job and in no state.
func (v *Viewer) templates() []*api.Template {
	if v == nil || v.TLSCert == "" {
		return nil
	}
	var out []*api.Template
	for _, one := range [][2]string{{v.TLSCert, viewerCert}, {v.TLSKey, viewerKey}} {
		text, dest, mode := fmt.Sprintf("{{ with nomadVar %q }}{{ .%s.Value }}{{ end }}\n", pathOf(one[0]), keyOf(one[0])), one[1], "noop"
		out = append(out, &api.Template{EmbeddedTmpl: &text, DestPath: &dest, ChangeMode: &mode})
	}
	return out
}

// viewerURL is where the listener of an allocation is; empty where it has none.
func viewerURL(job *api.Job, a *api.Allocation) string {
	if !IsScreen(job) || a.AllocatedResources == nil {
		return ""
	}
	config := blockOf(job.TaskGroups[0].Tasks[0].Config["viewer"])
	label, _ := config["port"].(string)
	at := slices.IndexFunc(a.AllocatedResources.Shared.Ports, func(p api.PortMapping) bool { return p.Label == label })
	if at < 0 {
		return ""
	}
	scheme := "http"
	if cert, _ := config["tls_cert"].(string); cert != "" {
		scheme = "https"
	}
	port := a.AllocatedResources.Shared.Ports[at]
	return scheme + "://" + net.JoinHostPort(cmp.Or(port.HostIP, "127.0.0.1"), strconv.Itoa(port.Value))
}

// blockOf is a block of a task's config, which Nomad gives as a list of one or as an object.
func blockOf(v any) map[string]any {
	switch v := v.(type) {
	case map[string]any:
		return v
	case []any:
		if len(v) == 1 {
			return blockOf(v[0])
		}
	case []map[string]any:
		if len(v) == 1 {
			return v[0]
		}
	}
	return nil
}
