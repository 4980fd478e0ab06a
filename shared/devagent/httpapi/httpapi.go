// SPDX-License-Identifier: MPL-2.0

// Package httpapi serves the part of Nomad's HTTP API that the command line and the
// Terraform provider use, so that Nomad's own API client works against it unchanged.
package httpapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/client"
	"github.com/botscreen/botscreen/shared/devagent/node"
	"github.com/botscreen/botscreen/shared/devagent/server"
	"github.com/botscreen/botscreen/shared/devagent/state"
)

// API serves one agent.
type API struct {
	Store  *state.Store
	Server *server.Server
	Client *client.Client
	Node   *node.Keeper
	// Token is what every request must carry.
	Token string
	// Self is the answer of /v1/agent/self.
	Self api.AgentSelf
	Log  hclog.Logger
}

// maxBody bounds a request, in bytes.
const maxBody = 8 << 20

// Handler gives the whole API behind its guard.
func (a *API) Handler() http.Handler {
	mux := http.NewServeMux()
	a.agentRoutes(mux)
	a.jobRoutes(mux)
	a.stateRoutes(mux)
	a.variableRoutes(mux)
	a.clientRoutes(mux)
	// What is not there has no text either, as with Nomad.
	mux.HandleFunc("/", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNotFound) })
	return a.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		mux.ServeHTTP(w, r)
	}))
}

// call answers a request with a value or an error. It may set headers.
type call func(w http.ResponseWriter, r *http.Request) (any, error)

// handle puts a call behind methods; another method is refused as Nomad does.
func handle(mux *http.ServeMux, pattern, methods string, f call) {
	mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		if !strings.Contains(" "+methods+" ", " "+r.Method+" ") {
			fail(w, refuse(http.StatusMethodNotAllowed, "Invalid method"))
			return
		}
		out, err := f(w, r)
		if err != nil {
			fail(w, err)
			return
		}
		answer(w, r, out)
	})
}

func refuse(status int, format string, args ...any) error {
	return &server.Error{Status: status, Text: fmt.Sprintf(format, args...)}
}

// fail writes an error as text, with the status that Nomad gives it.
func fail(w http.ResponseWriter, err error) {
	status := http.StatusInternalServerError
	var refusal *server.Error
	var large *http.MaxBytesError
	switch {
	case errors.As(err, &refusal):
		status = refusal.Status
	case errors.As(err, &large):
		status = http.StatusRequestEntityTooLarge
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(err.Error()))
}

// answer writes a value as JSON; nil writes nothing.
func answer(w http.ResponseWriter, r *http.Request, out any) {
	if out == nil {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	enc := json.NewEncoder(w)
	if pretty := r.URL.Query()["pretty"]; len(pretty) > 0 && pretty[0] != "false" {
		enc.SetIndent("", "    ")
	}
	_ = enc.Encode(out)
}

// body reads a request's JSON.
func body(r *http.Request, into any) error {
	if err := json.NewDecoder(r.Body).Decode(into); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return err
		}
		return refuse(http.StatusBadRequest, "%v", err)
	}
	return nil
}

// setIndex tells the index that an answer is of.
func setIndex(w http.ResponseWriter, index uint64) {
	w.Header().Set("X-Nomad-Index", strconv.FormatUint(index, 10))
}

// namespace is what a request asks about; a job in its body may say another one.
func namespace(r *http.Request) string {
	if ns := r.URL.Query().Get("namespace"); ns != "" {
		return ns
	}
	return server.Namespace
}

// flag reads a boolean parameter.
func flag(r *http.Request, name string) (bool, error) {
	text := r.URL.Query().Get(name)
	if text == "" {
		return false, nil
	}
	v, err := strconv.ParseBool(text)
	if err != nil {
		return false, refuse(http.StatusBadRequest, "Failed to parse value of %q (%v) as a bool: %v", name, text, err)
	}
	return v, nil
}
