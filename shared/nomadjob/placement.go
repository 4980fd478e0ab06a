// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/screen"
)

// OptIn is the option that allows desktops outside of any sandbox, wherever it is written.
const OptIn = "allow_unsandboxed_host"

// Placement is the rule that picks isolation and nodes, as its record keeps it.
type Placement struct {
	Description          string       `json:"description,omitempty"`
	Isolation            string       `json:"isolation"`
	IsolationOrder       []string     `json:"isolation_order"`
	AllowUnsandboxedHost bool         `json:"allow_unsandboxed_host,omitempty"`
	NodePool             string       `json:"node_pool"`
	NodeClasses          []string     `json:"node_classes,omitempty"` // sorted
	Datacenters          []string     `json:"datacenters"`            // sorted
	Constraints          []Constraint `json:"constraints,omitempty"`
	Priority             int64        `json:"priority"`
}

// Constraint is one of Nomad's, in its words.
type Constraint struct {
	Attribute string `json:"attribute"`
	Operator  string `json:"operator"`
	Value     string `json:"value,omitempty"`
}

// DefaultPlacement is what a screen without a placement gets: any sandbox, never the host.
func DefaultPlacement() Placement {
	return Placement{
		Isolation: string(screen.Auto), IsolationOrder: []string{string(screen.Docker), string(screen.Apptainer)},
		NodePool: "default", Datacenters: []string{"*"}, Priority: 50,
	}
}

// Operators are the comparisons that a constraint may make.
var Operators = []string{
	"=", "!=", ">", ">=", "<", "<=", api.ConstraintRegex, api.ConstraintVersion, api.ConstraintSemver,
	api.ConstraintSetContains, api.ConstraintSetContainsAll, api.ConstraintSetContainsAny,
	api.ConstraintAttributeIsSet, api.ConstraintAttributeIsNotSet,
}

// Unary says whether an operator takes no value.
func Unary(operator string) bool {
	return operator == api.ConstraintAttributeIsSet || operator == api.ConstraintAttributeIsNotSet
}

var poolName = regexp.MustCompile(`^[a-zA-Z0-9_-]{1,128}$`)

// WantsHost says whether the placement may put a desktop on the raw host.
func (p Placement) WantsHost() bool {
	return p.Isolation == string(screen.Host) ||
		p.Isolation == string(screen.Auto) && slices.Contains(p.IsolationOrder, string(screen.Host))
}

// Validate reports every fault at once; host without its opt-in is one of field
// "isolation" (HostRefused). The error, when not nil, is a screen.Faults.
func (p Placement) Validate(name string) error {
	var faults screen.Faults
	if !screen.Profile(name).Valid() {
		faults.Add("name", name, "must be 1 to 63 lower-case letters, digits and hyphens, starting with a letter or digit")
	}
	if len(p.Description) > maxDescription {
		faults.Add("description", "", fmt.Sprintf("must be at most %d bytes", maxDescription))
	}
	if !slices.Contains(screen.Isolations, screen.Isolation(p.Isolation)) {
		faults.Add("isolation", p.Isolation, "is not one of auto, host, docker, apptainer")
	}
	p.validateOrder(&faults)
	if p.WantsHost() && !p.AllowUnsandboxedHost {
		faults.Add("isolation", p.Isolation, HostRefused)
	}
	if !poolName.MatchString(p.NodePool) {
		faults.Add("node_pool", p.NodePool, "must be the name of a node pool: 1 to 128 letters, digits, hyphens and underscores")
	}
	if len(p.Datacenters) == 0 {
		faults.Add("datacenters", "", "must name at least one datacenter; \"*\" is any")
	}
	for _, word := range slices.Concat(p.Datacenters, p.NodeClasses) {
		if word == "" || len(word) > 128 || strings.ContainsAny(word, "\x00\n ") {
			faults.Add("datacenters", word, "and node_classes must be names without spaces")
		}
	}
	for i, c := range p.Constraints {
		c.validate(&faults, fmt.Sprintf("constraints[%d]", i))
	}
	limits(&faults, "priority", p.Priority, 1, 100)
	return faults.Err()
}

// HostRefused is why a placement with host and without the opt-in is refused.
const HostRefused = "would run desktops directly on the host: every program on them could read this node's files and reach its network. " +
	"Choose docker or apptainer, or allow it by name: " + OptIn + " = true"

func (p Placement) validateOrder(faults *screen.Faults) {
	if len(p.IsolationOrder) == 0 {
		faults.Add("isolation_order", "", "must name at least one of docker, apptainer, host")
	}
	seen := map[string]bool{}
	for _, kind := range p.IsolationOrder {
		switch {
		case kind != "docker" && kind != "apptainer" && kind != "host":
			faults.Add("isolation_order", kind, "is not one of docker, apptainer, host")
		case seen[kind]:
			faults.Add("isolation_order", kind, "is there twice")
		}
		seen[kind] = true
	}
}

func (c Constraint) validate(faults *screen.Faults, field string) {
	switch {
	case !slices.Contains(Operators, c.Operator):
		faults.Add(field+".operator", c.Operator, "is not one of "+strings.Join(Operators, ", "))
	case Unary(c.Operator) && c.Value != "":
		faults.Add(field+".value", c.Value, "cannot be compared: "+c.Operator+" takes no value")
	case !Unary(c.Operator) && c.Value == "":
		faults.Add(field+".value", "", "is required with the operator "+c.Operator)
	}
	if c.Attribute == "" {
		faults.Add(field+".attribute", "", "is required, for example ${attr.kernel.version}")
	}
}

// asFaults is errors.As for the one type of a validation.
func asFaults(err error, into *screen.Faults) bool { return errors.As(err, into) }
