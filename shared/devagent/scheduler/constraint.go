// SPDX-License-Identifier: MPL-2.0

package scheduler

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/go-version"
	"github.com/hashicorp/nomad/api"
)

// constraintText is how Nomad names a constraint in metrics and messages.
func constraintText(c *api.Constraint) string {
	return fmt.Sprintf("%s %s %s", c.LTarget, c.Operand, c.RTarget)
}

// meets says whether the node satisfies a constraint. distinct_hosts and
// distinct_property are about other allocations and are looked at elsewhere.
func meets(c *api.Constraint, names map[string]string) bool {
	left, haveLeft := resolve(c.LTarget, names)
	right, haveRight := resolve(c.RTarget, names)
	both := haveLeft && haveRight
	switch c.Operand {
	case api.ConstraintDistinctHosts, api.ConstraintDistinctProperty:
		return true
	case "=", "==", "is":
		return both && left == right
	case "!=", "not":
		return haveLeft != haveRight || left != right
	case "<", "<=", ">", ">=":
		return both && ordered(c.Operand, left, right)
	case api.ConstraintAttributeIsSet:
		return haveLeft
	case api.ConstraintAttributeIsNotSet:
		return !haveLeft
	case api.ConstraintVersion, api.ConstraintSemver:
		return both && versionMatches(c.Operand, left, right)
	case api.ConstraintRegex:
		re, err := regexp.Compile(right)
		return both && err == nil && re.MatchString(left)
	case api.ConstraintSetContains, api.ConstraintSetContainsAll:
		return both && containsAll(left, right)
	case api.ConstraintSetContainsAny:
		return both && containsAny(left, right)
	}
	return false
}

// resolve gives the value of one side: text, or ${name} of the node.
func resolve(target string, names map[string]string) (string, bool) {
	name, ok := strings.CutPrefix(target, "${")
	if !ok {
		return target, true
	}
	value, ok := names[strings.TrimSuffix(name, "}")]
	return value, ok
}

// ordered compares as whole numbers, else as numbers, else as text.
func ordered(operand, left, right string) bool {
	order := cmp.Compare(left, right)
	if l, err := strconv.ParseInt(left, 10, 64); err == nil {
		if r, err := strconv.ParseInt(right, 10, 64); err == nil {
			return holds(operand, cmp.Compare(l, r))
		}
	}
	if l, err := strconv.ParseFloat(left, 64); err == nil {
		if r, err := strconv.ParseFloat(right, 64); err == nil {
			order = cmp.Compare(l, r)
		}
	}
	return holds(operand, order)
}

func holds(operand string, order int) bool {
	switch operand {
	case "<":
		return order < 0
	case "<=":
		return order <= 0
	case ">":
		return order > 0
	default:
		return order >= 0
	}
}

// versionMatches compares as Nomad does: "version" wants a pre-release asked for,
// "semver" orders pre-releases by their precedence alone (semver.org, 11).
func versionMatches(operand, left, right string) bool {
	if operand == api.ConstraintSemver {
		have, err := version.NewSemver(left)
		return err == nil && semverMatches(have, right)
	}
	want, err := version.NewConstraint(right)
	if err != nil {
		return false
	}
	have, err := version.NewVersion(left)
	return err == nil && want.Check(have)
}

var semverTerm = regexp.MustCompile(`^\s*(=|!=|>=|<=|>|<)?\s*(\S+)\s*$`)

func semverMatches(have *version.Version, terms string) bool {
	for _, term := range strings.Split(terms, ",") {
		m := semverTerm.FindStringSubmatch(term)
		if m == nil {
			return false
		}
		want, err := version.NewSemver(m[2])
		if err != nil {
			return false
		}
		order := have.Compare(want)
		switch m[1] {
		case "", "=":
			if order != 0 {
				return false
			}
		case "!=":
			if order == 0 {
				return false
			}
		default:
			if !holds(m[1], order) {
				return false
			}
		}
	}
	return true
}

func members(list string) []string {
	out := strings.Split(list, ",")
	for i := range out {
		out[i] = strings.TrimSpace(out[i])
	}
	return out
}

func containsAll(have, want string) bool {
	set := members(have)
	return !slices.ContainsFunc(members(want), func(one string) bool { return !slices.Contains(set, one) })
}

func containsAny(have, want string) bool {
	set := members(have)
	return slices.ContainsFunc(members(want), func(one string) bool { return slices.Contains(set, one) })
}
