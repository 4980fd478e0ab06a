// SPDX-License-Identifier: MPL-2.0

package httpapi

import (
	"net/http"
	"slices"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/server"
	"github.com/botscreen/botscreen/shared/devagent/state"
)

func (a *API) stateRoutes(mux *http.ServeMux) {
	handle(mux, "/v1/evaluations", "GET", a.listEvals)
	handle(mux, "/v1/evaluations/count", "GET", a.countEvals)
	handle(mux, "/v1/evaluation/{id}", "GET", a.readEval)
	handle(mux, "/v1/evaluation/{id}/allocations", "GET", a.evalAllocs)
	handle(mux, "/v1/allocations", "GET", a.listAllocs)
	handle(mux, "/v1/allocation/{id}", "GET", a.readAlloc)
	handle(mux, "/v1/allocation/{id}/stop", "PUT POST", a.stopAlloc)
	handle(mux, "/v1/allocation/{id}/services", "GET", func(http.ResponseWriter, *http.Request) (any, error) { return []string{}, nil })
	handle(mux, "/v1/deployments", "GET", a.listDeployments)
	handle(mux, "/v1/deployment/{id}", "GET", a.readDeployment)
	handle(mux, "/v1/deployment/allocations/{id}", "GET", a.deploymentAllocs)
	handle(mux, "/v1/deployment/fail/{id}", "PUT POST", a.failDeployment)
	handle(mux, "/v1/nodes", "GET", a.listNodes)
	handle(mux, "/v1/node/{id}", "GET", a.readNode)
	handle(mux, "/v1/node/{id}/allocations", "GET", a.nodeAllocs)
	handle(mux, "/v1/node/{id}/eligibility", "PUT POST", a.eligibility)
}

// uuid checks an id as Nomad's index does.
func uuid(what, id string) error {
	if len(id) != 36 {
		return refuse(http.StatusInternalServerError, "%s lookup failed: index error: UUID must be 36 characters", what)
	}
	return nil
}

func (a *API) listEvals(w http.ResponseWriter, r *http.Request) (any, error) {
	q := r.URL.Query()
	ns := namespace(r)
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		all := v.Evals(func(e *api.Evaluation) bool {
			return (ns == state.AnyNamespace || e.Namespace == ns) && strings.HasPrefix(e.ID, q.Get("prefix")) &&
				(q.Get("status") == "" || e.Status == q.Get("status")) && (q.Get("job") == "" || e.JobID == q.Get("job"))
		})
		out, err := page(w, r, all, func(e *api.Evaluation) string { return e.ID })
		return v.TableIndex(state.Evals), out, err
	})
}

func (a *API) countEvals(w http.ResponseWriter, r *http.Request) (any, error) {
	ns := namespace(r)
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		all := v.Evals(func(e *api.Evaluation) bool { return ns == state.AnyNamespace || e.Namespace == ns })
		return v.TableIndex(state.Evals), map[string]int{"Count": len(all)}, nil
	})
}

func (a *API) readEval(w http.ResponseWriter, r *http.Request) (any, error) {
	id := r.PathValue("id")
	if err := uuid("failed to lookup eval: eval", id); err != nil {
		return nil, err
	}
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		e := v.Eval(id)
		if e == nil {
			return v.TableIndex(state.Evals), nil, refuse(http.StatusNotFound, "eval not found")
		}
		return e.ModifyIndex, e, nil
	})
}

func (a *API) evalAllocs(w http.ResponseWriter, r *http.Request) (any, error) {
	id := r.PathValue("id")
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		all := v.Allocs(func(one *api.Allocation) bool { return one.EvalID == id })
		return v.TableIndex(state.Allocs), stubs(all, true, false), nil
	})
}

func (a *API) listAllocs(w http.ResponseWriter, r *http.Request) (any, error) {
	ns, prefix := namespace(r), r.URL.Query().Get("prefix")
	resources, err := flag(r, "resources")
	if err != nil {
		return nil, err
	}
	states := true
	if r.URL.Query().Get("task_states") != "" {
		if states, err = flag(r, "task_states"); err != nil {
			return nil, err
		}
	}
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		all := v.Allocs(func(one *api.Allocation) bool {
			return (ns == state.AnyNamespace || one.Namespace == ns) && strings.HasPrefix(one.ID, prefix)
		})
		out, err := page(w, r, all, func(one *api.Allocation) string { return one.ID })
		return v.TableIndex(state.Allocs), stubs(out, states, resources), err
	})
}

// stubs are allocations as lists show them.
func stubs(all []*api.Allocation, states, resources bool) []*api.AllocationListStub {
	out := []*api.AllocationListStub{}
	for _, one := range all {
		s := one.Stub()
		if !states {
			s.TaskStates = nil
		}
		if resources {
			s.AllocatedResources = one.AllocatedResources
		}
		out = append(out, s)
	}
	return out
}

func (a *API) readAlloc(w http.ResponseWriter, r *http.Request) (any, error) {
	id := r.PathValue("id")
	if err := uuid("alloc", id); err != nil {
		return nil, err
	}
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		one := v.Alloc(id)
		if one == nil {
			return v.TableIndex(state.Allocs), nil, refuse(http.StatusNotFound, "alloc not found")
		}
		return one.ModifyIndex, one, nil
	})
}

func (a *API) stopAlloc(w http.ResponseWriter, r *http.Request) (any, error) {
	resp, err := a.Server.StopAlloc(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	setIndex(w, resp.LastIndex)
	// The client reads "Index" here, which the embedded write meta does not have.
	return map[string]any{"EvalID": resp.EvalID, "Index": resp.LastIndex}, nil
}

func (a *API) listDeployments(w http.ResponseWriter, r *http.Request) (any, error) {
	ns, prefix := namespace(r), r.URL.Query().Get("prefix")
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		all := v.Deployments(func(d *api.Deployment) bool {
			return (ns == state.AnyNamespace || d.Namespace == ns) && strings.HasPrefix(d.ID, prefix)
		})
		out, err := page(w, r, all, func(d *api.Deployment) string { return d.ID })
		return v.TableIndex(state.Deployments), out, err
	})
}

func (a *API) readDeployment(w http.ResponseWriter, r *http.Request) (any, error) {
	id := r.PathValue("id")
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		d := v.Deployment(id)
		if d == nil {
			return v.TableIndex(state.Deployments), nil, refuse(http.StatusNotFound, "deployment not found")
		}
		return d.ModifyIndex, d, nil
	})
}

func (a *API) deploymentAllocs(w http.ResponseWriter, r *http.Request) (any, error) {
	id := r.PathValue("id")
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		all := v.Allocs(func(one *api.Allocation) bool { return one.DeploymentID == id })
		return v.TableIndex(state.Allocs), stubs(all, true, false), nil
	})
}

func (a *API) failDeployment(w http.ResponseWriter, r *http.Request) (any, error) {
	resp, err := a.Server.FailDeployment(r.PathValue("id"))
	if err != nil {
		return nil, err
	}
	setIndex(w, resp.LastIndex)
	return resp, nil
}

func (a *API) listNodes(w http.ResponseWriter, r *http.Request) (any, error) {
	prefix := r.URL.Query().Get("prefix")
	resources, err := flag(r, "resources")
	if err != nil {
		return nil, err
	}
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		out := []*api.NodeListStub{}
		if n := v.Node(); n != nil && strings.HasPrefix(n.ID, prefix) {
			out = append(out, nodeStub(n, resources))
		}
		out, err := page(w, r, out, func(n *api.NodeListStub) string { return n.ID })
		return v.TableIndex(state.Nodes), out, err
	})
}

func nodeStub(n *api.Node, resources bool) *api.NodeListStub {
	out := &api.NodeListStub{
		Address: "127.0.0.1", ID: n.ID, Name: n.Name, Datacenter: n.Datacenter, NodeClass: n.NodeClass, NodePool: n.NodePool,
		Version: n.Attributes["nomad.version"], SchedulingEligibility: n.SchedulingEligibility, Status: n.Status,
		Drivers: n.Drivers, CreateIndex: n.CreateIndex, ModifyIndex: n.ModifyIndex, Attributes: n.Attributes,
	}
	if resources {
		out.NodeResources, out.ReservedResources = n.NodeResources, n.ReservedResources
	}
	return out
}

func (a *API) readNode(w http.ResponseWriter, r *http.Request) (any, error) {
	id := r.PathValue("id")
	if err := uuid("node", id); err != nil {
		return nil, err
	}
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		n := v.Node()
		if n == nil || n.ID != id {
			return v.TableIndex(state.Nodes), nil, refuse(http.StatusNotFound, "node not found")
		}
		return n.ModifyIndex, n, nil
	})
}

func (a *API) nodeAllocs(w http.ResponseWriter, r *http.Request) (any, error) {
	id := r.PathValue("id")
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		all := v.Allocs(func(one *api.Allocation) bool { return one.NodeID == id })
		return v.TableIndex(state.Allocs), all, nil
	})
}

func (a *API) eligibility(w http.ResponseWriter, r *http.Request) (any, error) {
	var req api.NodeUpdateEligibilityRequest
	if err := body(r, &req); err != nil {
		return nil, err
	}
	if !slices.Contains([]string{api.NodeSchedulingEligible, api.NodeSchedulingIneligible}, req.Eligibility) {
		return nil, refuse(http.StatusInternalServerError, "invalid scheduling eligibility %q", req.Eligibility)
	}
	index, err := a.Node.SetEligibility(req.Eligibility)
	if err != nil {
		return nil, err
	}
	setIndex(w, index)
	return &api.NodeEligibilityUpdateResponse{NodeModifyIndex: index, EvalIDs: []string{}}, nil
}

func (a *API) agentRoutes(mux *http.ServeMux) {
	text := func(v any) call { return func(http.ResponseWriter, *http.Request) (any, error) { return v, nil } }
	handle(mux, "/v1/status/leader", "GET", text("127.0.0.1:4647"))
	handle(mux, "/v1/status/peers", "GET", text([]string{"127.0.0.1:4647"}))
	handle(mux, "/v1/regions", "GET", text([]string{server.Region}))
	handle(mux, "/v1/agent/self", "GET", text(&a.Self))
	handle(mux, "/v1/agent/health", "GET", text(map[string]any{
		"client": map[string]any{"ok": true, "message": "ok"}, "server": map[string]any{"ok": true, "message": "ok"},
	}))
	ns := &api.Namespace{Name: server.Namespace, Description: "Default shared namespace"}
	handle(mux, "/v1/namespaces", "GET", text([]*api.Namespace{ns}))
	handle(mux, "/v1/namespace/default", "GET", text(ns))
	handle(mux, "/v1/system/gc", "PUT POST", func(http.ResponseWriter, *http.Request) (any, error) {
		return nil, a.Server.CollectGarbage(now(), true)
	})
}
