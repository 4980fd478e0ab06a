// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"context"
	"fmt"
	"regexp"
	"strings"

	"github.com/hashicorp/nomad/api"
)

// NotFoundError says that no screen goes by a name.
type NotFoundError struct {
	Name string
	// Screens are those that there are.
	Screens []Screen
}

func (e *NotFoundError) Error() string { return fmt.Sprintf("no screen %q", e.Name) }

// AmbiguousError says that several screens go by a name.
type AmbiguousError struct {
	Name    string
	Screens []Screen
}

func (e *AmbiguousError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%q is %d screens:", e.Name, len(e.Screens))
	for _, s := range e.Screens {
		fmt.Fprintf(&b, "\n  %s  profile %s  alloc %s", s.Path(), s.Profile, s.Alloc[:min(8, len(s.Alloc))])
	}
	return b.String()
}

// Find gives the one screen that a person means by a name: a profile, else a job,
// else job/group/task, else at least 8 hex digits of an allocation. Screens that
// ended count only where no live one goes by the name.
func Find(ctx context.Context, c *api.Client, namespace, name string) (Screen, error) {
	all, err := List(ctx, c, namespace)
	if err != nil {
		return Screen{}, err
	}
	return Choose(all, name)
}

// Choose is Find among screens that are known.
func Choose(all []Screen, name string) (Screen, error) {
	for _, names := range kinds {
		var live, ended []Screen
		for _, s := range all {
			switch {
			case !names(s, name):
			case s.Live():
				live = append(live, s)
			default:
				ended = append(ended, s)
			}
		}
		if len(live) == 0 {
			live = ended
		}
		switch len(live) {
		case 0:
			continue
		case 1:
			return live[0], nil
		}
		return Screen{}, &AmbiguousError{Name: name, Screens: live}
	}
	return Screen{}, &NotFoundError{Name: name, Screens: all}
}

var allocPrefix = regexp.MustCompile(`^[0-9a-f]{8}[0-9a-f-]{0,28}$`)

// kinds are what a name may be, in the order in which it is tried.
var kinds = []func(s Screen, name string) bool{
	func(s Screen, name string) bool { return name != "" && s.Profile.String() == name },
	func(s Screen, name string) bool { return s.Job == name },
	func(s Screen, name string) bool { return s.Path() == name },
	func(s Screen, name string) bool {
		return allocPrefix.MatchString(name) && strings.HasPrefix(s.Alloc, name)
	},
}
