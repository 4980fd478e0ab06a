// SPDX-License-Identifier: MPL-2.0

package httpapi

import (
	"encoding/json"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/server"
	"github.com/botscreen/botscreen/shared/devagent/state"
)

func now() time.Time { return time.Now() }

func (a *API) variableRoutes(mux *http.ServeMux) {
	handle(mux, "/v1/vars", "GET", a.listVariables)
	handle(mux, "/v1/var/", "GET PUT POST DELETE", a.variable)
}

func (a *API) listVariables(w http.ResponseWriter, r *http.Request) (any, error) {
	ns, prefix := namespace(r), r.URL.Query().Get("prefix")
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		out := []*api.VariableMetadata{}
		for _, one := range v.Variables(ns, prefix) {
			out = append(out, one.Metadata())
		}
		out, err := page(w, r, out, func(m *api.VariableMetadata) string { return m.Path })
		return v.TableIndex(state.Variables), out, err
	})
}

func (a *API) variable(w http.ResponseWriter, r *http.Request) (any, error) {
	path := strings.TrimPrefix(r.URL.Path, "/v1/var/")
	if path == "" {
		return nil, refuse(http.StatusBadRequest, "missing variable path")
	}
	for _, lock := range []string{"lock-acquire", "lock-renew", "lock-release"} {
		if r.URL.Query().Has(lock) {
			return nil, refuse(http.StatusBadRequest, "variable locks are not kept by the embedded agent")
		}
	}
	switch r.Method {
	case http.MethodGet:
		return a.readVariable(w, r, path)
	case http.MethodDelete:
		return a.deleteVariable(w, r, path)
	}
	return a.putVariable(w, r, path)
}

func (a *API) readVariable(w http.ResponseWriter, r *http.Request, path string) (any, error) {
	ns := namespace(r)
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		one := v.Variable(ns, path)
		if one == nil {
			return v.TableIndex(state.Variables), nil, refuse(http.StatusNotFound, "variable not found")
		}
		return one.ModifyIndex, one, nil
	})
}

// check reads the index that a check-and-set expects.
func check(r *http.Request) (*uint64, error) {
	if !r.URL.Query().Has("cas") {
		return nil, nil
	}
	n, err := strconv.ParseUint(r.URL.Query().Get("cas"), 10, 64)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "can not parse cas: %v", err)
	}
	return &n, nil
}

func (a *API) putVariable(w http.ResponseWriter, r *http.Request, path string) (any, error) {
	expected, err := check(r)
	if err != nil {
		return nil, err
	}
	var v api.Variable
	if err := body(r, &v); err != nil {
		return nil, err
	}
	v.Path = path
	if v.Namespace == "" || r.URL.Query().Has("namespace") {
		v.Namespace = namespace(r)
	}
	out, err := a.Server.PutVariable(&v, expected)
	if err != nil {
		return nil, a.conflict(w, err)
	}
	setIndex(w, out.ModifyIndex)
	return out, nil
}

func (a *API) deleteVariable(w http.ResponseWriter, r *http.Request, path string) (any, error) {
	expected, err := check(r)
	if err != nil {
		return nil, err
	}
	index, err := a.Server.DeleteVariable(namespace(r), path, expected)
	if err != nil {
		return nil, a.conflict(w, err)
	}
	setIndex(w, index)
	w.WriteHeader(http.StatusNoContent)
	return nil, nil
}

// conflict makes the answer to a check-and-set that lost: 409 with the variable
// that is there.
func (a *API) conflict(w http.ResponseWriter, err error) error {
	var lost *server.Conflict
	if !errors.As(err, &lost) {
		return err
	}
	text, encodeErr := json.Marshal(lost.Variable)
	if encodeErr != nil {
		return encodeErr
	}
	setIndex(w, lost.Variable.ModifyIndex)
	return &server.Error{Status: http.StatusConflict, Text: string(text)}
}
