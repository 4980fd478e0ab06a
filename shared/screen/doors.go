// SPDX-License-Identifier: MPL-2.0

package screen

import (
	"fmt"
	"io/fs"
	"math"
	"path"
	"strconv"
	"strings"

	"github.com/botscreen/botscreen/shared/form"
)

// AgentSocket is the agent's door in the alloc's shared directory (threats.md X33).
type AgentSocket struct {
	// Mode has no bits for others: who connects is checked by the kernel's word.
	Mode fs.FileMode `json:"mode"`
	// Group has the socket, by name or number: of several uids those in it can reach it.
	Group string `json:"group,omitempty"`
	// UIDs are accepted besides root, which could act in any case. The first one owns the
	// socket.
	UIDs []uint32 `json:"uids,omitempty"`
}

// ViewerListener is the optional door for people with a ticket, on a port that Nomad
// gave to the alloc.
type ViewerListener struct {
	Port string `json:"port"` // the port's label in the group's network block
	// TLSCert and TLSKey are files of the task, relative to its directory or absolute
	// below it; both or none. Without them only a loopback address is served (X43).
	TLSCert string `json:"tls_cert,omitempty"`
	TLSKey  string `json:"tls_key,omitempty"`
}

var (
	portLabel = form.Of(`^[a-zA-Z0-9][a-zA-Z0-9_-]{0,127}$`)
	groupName = form.Of(`^([a-z_][a-z0-9_-]{0,31}|[0-9]{1,10})$`)
)

const maxSocketUIDs = 32

func (c Config) validateAgentSocket(faults *Faults) AgentSocket {
	const field = "agent_socket."
	s := AgentSocket{Group: c.AgentSocketGroup}
	mode, err := strconv.ParseUint(c.AgentSocketMode, 8, 16)
	if err != nil || mode&^0o660 != 0 || mode&0o600 != 0o600 {
		faults.Add(field+"mode", c.AgentSocketMode, `must be "0600" or "0660": other users of the node never get the agent's door`)
	}
	s.Mode = fs.FileMode(mode)
	if c.AgentSocketGroup != "" && !groupName().MatchString(c.AgentSocketGroup) {
		faults.Add(field+"group", c.AgentSocketGroup, "must be the name or the number of a group of the node")
	}
	if len(c.AgentSocketUIDs) > maxSocketUIDs {
		faults.Add(field+"uids", "", fmt.Sprintf("has %d entries; at most %d", len(c.AgentSocketUIDs), maxSocketUIDs))
	}
	if len(c.AgentSocketUIDs) > 1 && (c.AgentSocketGroup == "" || s.Mode&0o060 != 0o060) {
		faults.Add(field+"group", c.AgentSocketGroup, `must be a group of all these uids, with mode "0660": the first uid owns the socket, the others reach it by the group`)
	}
	for _, uid := range c.AgentSocketUIDs {
		if uid < 0 || uid >= math.MaxUint32 { // the last one is "no uid", see chown(2)
			faults.Add(field+"uids", strconv.FormatInt(uid, 10), "is not a uid")
			continue
		}
		s.UIDs = append(s.UIDs, uint32(uid))
	}
	return s
}

// validateViewer returns nil where the job wants no listener.
func (c Config) validateViewer(faults *Faults) *ViewerListener {
	const field = "viewer."
	if c.ViewerPort == "" && c.ViewerTLSCert == "" && c.ViewerTLSKey == "" {
		return nil
	}
	if !portLabel().MatchString(c.ViewerPort) {
		faults.Add(field+"port", c.ViewerPort, "must be the label of a port in the group's network block")
	}
	if (c.ViewerTLSCert == "") != (c.ViewerTLSKey == "") {
		faults.Add(field+"tls_key", c.ViewerTLSKey, "must be given together with viewer.tls_cert, or both left out")
	}
	for name, file := range map[string]string{"tls_cert": c.ViewerTLSCert, "tls_key": c.ViewerTLSKey} {
		if file != "" && (strings.ContainsRune(file, 0) || len(file) > maxArgBytes || path.Clean(file) == ".." || strings.HasPrefix(path.Clean(file), "../")) {
			faults.Add(field+name, file, "must be a file below the task's directory")
		}
	}
	return &ViewerListener{Port: c.ViewerPort, TLSCert: c.ViewerTLSCert, TLSKey: c.ViewerTLSKey}
}
