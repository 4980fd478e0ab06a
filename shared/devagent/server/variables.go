// SPDX-License-Identifier: MPL-2.0

package server

import (
	"net/http"
	"regexp"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/state"
)

// maxVariable bounds the keys and values of one variable, in bytes, as in Nomad.
const maxVariable = 64 << 10

var variablePath = regexp.MustCompile(`^[a-zA-Z0-9-_~/]{1,128}$`)

// Conflict is the answer to a check-and-set that lost. Its variable is the one that
// is there; one that is not there has index 0.
type Conflict struct{ Variable *api.Variable }

func (c *Conflict) Error() string { return "check-and-set conflict" }

// PutVariable stores a variable. With check it is stored only if the variable's
// index is the expected one; 0 expects none. The error is a *Conflict or an *Error.
func (s *Server) PutVariable(v *api.Variable, check *uint64) (*api.Variable, error) {
	if err := checkVariable(v); err != nil {
		return nil, err
	}
	var out *api.Variable
	_, err := s.store.Update(func(tx *state.Tx) error {
		old := tx.Variable(v.Namespace, v.Path)
		if err := expect(v.Namespace, v.Path, old, check); err != nil {
			return err
		}
		next := &api.Variable{Namespace: v.Namespace, Path: v.Path, Items: v.Items}
		if old != nil {
			next.CreateIndex, next.CreateTime = old.CreateIndex, old.CreateTime
		}
		tx.PutVariable(next)
		out = next
		return nil
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// DeleteVariable removes a variable and gives the new index. One that is not there
// is a success.
func (s *Server) DeleteVariable(namespace, path string, check *uint64) (uint64, error) {
	return s.store.Update(func(tx *state.Tx) error {
		old := tx.Variable(namespace, path)
		if err := expect(namespace, path, old, check); err != nil {
			return err
		}
		if old != nil {
			tx.DeleteVariable(namespace, path)
		}
		return nil
	})
}

func expect(namespace, path string, old *api.Variable, check *uint64) error {
	have := uint64(0)
	if old != nil {
		have = old.ModifyIndex
	}
	if check == nil || *check == have {
		return nil
	}
	if old == nil {
		old = &api.Variable{Namespace: namespace, Path: path}
	}
	return &Conflict{Variable: old}
}

func checkVariable(v *api.Variable) error {
	switch {
	case v.Path == "":
		return refuse(http.StatusBadRequest, "variable missing required Path")
	case len(v.Items) == 0:
		return refuse(http.StatusBadRequest, "variable missing required Items object")
	case v.Namespace != Namespace:
		return refuse(http.StatusBadRequest, "nonexistent namespace %q", v.Namespace)
	case v.Lock != nil:
		return refuse(http.StatusBadRequest, "variable locks are not kept by the embedded agent")
	case !variablePath.MatchString(v.Path):
		return refuse(http.StatusBadRequest, "invalid path %q", v.Path)
	}
	if err := checkReserved(v.Path); err != nil {
		return err
	}
	size := 0
	for key, value := range v.Items {
		size += len(key) + len(value)
	}
	if size > maxVariable {
		return refuse(http.StatusBadRequest, "variables are limited to 64KiB in total size")
	}
	return nil
}

// checkReserved guards the paths that Nomad keeps for itself.
func checkReserved(path string) error {
	parts := strings.Split(path, "/")
	if parts[0] != "nomad" {
		return nil
	}
	if len(parts) < 2 || !slices.Contains([]string{"jobs", "job-templates"}, parts[1]) {
		return refuse(http.StatusBadRequest,
			`only paths at "nomad/jobs" or "nomad/job-templates" and below are valid paths under the top-level "nomad" directory`)
	}
	return nil
}
