// SPDX-License-Identifier: MPL-2.0

package httpapi

import (
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/jobfile"
	"github.com/botscreen/botscreen/shared/devagent/server"
	"github.com/botscreen/botscreen/shared/devagent/state"
)

func (a *API) jobRoutes(mux *http.ServeMux) {
	handle(mux, "/v1/jobs", "GET PUT POST", func(w http.ResponseWriter, r *http.Request) (any, error) {
		if r.Method == http.MethodGet {
			return a.listJobs(w, r)
		}
		return a.register(w, r, "")
	})
	handle(mux, "/v1/jobs/parse", "PUT POST", a.parse)
	handle(mux, "/v1/validate/job", "PUT POST", a.validate)
	handle(mux, "/v1/job/", "GET PUT POST DELETE", a.job)
}

// jobCalls are the calls below a job. Its id may hold slashes, so the last part of
// the path decides.
func (a *API) jobCalls() map[string]struct {
	methods string
	f       func(http.ResponseWriter, *http.Request, string) (any, error)
} {
	type entry = struct {
		methods string
		f       func(http.ResponseWriter, *http.Request, string) (any, error)
	}
	return map[string]entry{
		"allocations": {"GET", a.jobAllocs},
		"evaluations": {"GET", a.jobEvals},
		"summary":     {"GET", a.jobSummary},
		"versions":    {"GET", a.jobVersions},
		"submission":  {"GET", a.jobSubmission},
		"deployments": {"GET", a.jobDeployments},
		"deployment":  {"GET", a.jobDeployment},
		"plan":        {"PUT POST", a.plan},
		"evaluate":    {"PUT POST", a.evaluate},
		"revert":      {"PUT POST", a.revert},
	}
}

func (a *API) job(w http.ResponseWriter, r *http.Request) (any, error) {
	id := strings.TrimPrefix(r.URL.Path, "/v1/job/")
	if i := strings.LastIndexByte(id, '/'); i > 0 {
		if c, ok := a.jobCalls()[id[i+1:]]; ok {
			if !strings.Contains(" "+c.methods+" ", " "+r.Method+" ") {
				return nil, refuse(http.StatusMethodNotAllowed, "Invalid method")
			}
			return c.f(w, r, id[:i])
		}
	}
	switch r.Method {
	case http.MethodGet:
		return a.readJob(w, r, id)
	case http.MethodDelete:
		return a.deregister(w, r, id)
	}
	return a.register(w, r, id)
}

func (a *API) readJob(w http.ResponseWriter, r *http.Request, id string) (any, error) {
	ns := namespace(r)
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		row := v.Job(ns, id)
		if row == nil {
			return v.TableIndex(state.Jobs), nil, refuse(http.StatusNotFound, "job not found")
		}
		return *row.Job.ModifyIndex, row.Job, nil
	})
}

func (a *API) listJobs(w http.ResponseWriter, r *http.Request) (any, error) {
	ns, prefix := namespace(r), r.URL.Query().Get("prefix")
	meta, err := flag(r, "meta")
	if err != nil {
		return nil, err
	}
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		rows, err := page(w, r, v.Jobs(ns, prefix), func(j *state.Job) string { return *j.Job.Namespace + "." + *j.Job.ID })
		out := []*api.JobListStub{}
		for _, row := range rows {
			out = append(out, stub(v, row, meta))
		}
		return v.TableIndex(state.Jobs, state.Allocs, state.Evals), out, err
	})
}

func stub(v *state.View, row *state.Job, meta bool) *api.JobListStub {
	j := row.Job
	out := &api.JobListStub{
		ID: *j.ID, Name: *j.Name, Namespace: *j.Namespace, Datacenters: j.Datacenters, Type: *j.Type,
		Priority: *j.Priority, Stop: j.Stop != nil && *j.Stop, Status: *j.Status, StatusDescription: *j.StatusDescription,
		JobSummary: server.Summary(v, row), CreateIndex: *j.CreateIndex, ModifyIndex: *j.ModifyIndex,
		JobModifyIndex: *j.JobModifyIndex, SubmitTime: *j.SubmitTime,
	}
	if meta {
		out.Meta = j.Meta
	}
	return out
}

func (a *API) register(w http.ResponseWriter, r *http.Request, id string) (any, error) {
	var req api.JobRegisterRequest
	if err := body(r, &req); err != nil {
		return nil, err
	}
	if err := nameOf(&req.Job, r, id); err != nil {
		return nil, err
	}
	resp, err := a.Server.Register(&req)
	if err != nil {
		return nil, err
	}
	setIndex(w, resp.LastIndex)
	return resp, nil
}

// nameOf checks the job of a request against its path, and gives it the request's
// namespace where it has none.
func nameOf(job **api.Job, r *http.Request, id string) error {
	switch {
	case *job == nil:
		return refuse(http.StatusBadRequest, "Job must be specified")
	case (*job).ID == nil:
		return refuse(http.StatusBadRequest, "Job ID hasn't been provided")
	case id != "" && *(*job).ID != id:
		return refuse(http.StatusBadRequest, "Job ID does not match name")
	}
	if (*job).Namespace == nil || *(*job).Namespace == "" {
		ns := namespace(r)
		(*job).Namespace = &ns
	}
	return nil
}

func (a *API) deregister(w http.ResponseWriter, r *http.Request, id string) (any, error) {
	purge, err := flag(r, "purge")
	if err != nil {
		return nil, err
	}
	resp, err := a.Server.Deregister(namespace(r), id, purge)
	if err != nil {
		return nil, err
	}
	setIndex(w, resp.LastIndex)
	return resp, nil
}

func (a *API) plan(w http.ResponseWriter, r *http.Request, id string) (any, error) {
	var req api.JobPlanRequest
	if err := body(r, &req); err != nil {
		return nil, err
	}
	if err := nameOf(&req.Job, r, id); err != nil {
		return nil, err
	}
	resp, err := a.Server.Plan(req.Job, req.Diff)
	if err != nil {
		return nil, err
	}
	setIndex(w, resp.JobModifyIndex)
	return resp, nil
}

func (a *API) evaluate(w http.ResponseWriter, r *http.Request, id string) (any, error) {
	var req api.JobEvaluateRequest
	if err := body(r, &req); err != nil {
		return nil, err
	}
	resp, err := a.Server.Evaluate(namespace(r), id, req.EvalOptions.ForceReschedule)
	if err != nil {
		return nil, err
	}
	setIndex(w, resp.LastIndex)
	return resp, nil
}

func (a *API) revert(w http.ResponseWriter, r *http.Request, id string) (any, error) {
	var req api.JobRevertRequest
	if err := body(r, &req); err != nil {
		return nil, err
	}
	resp, err := a.Server.Revert(namespace(r), id, req.JobVersion, req.EnforcePriorVersion)
	if err != nil {
		return nil, err
	}
	setIndex(w, resp.LastIndex)
	return resp, nil
}

// parse turns the text of a job file into a job.
func (a *API) parse(_ http.ResponseWriter, r *http.Request) (any, error) {
	var req api.JobsParseRequest
	if err := body(r, &req); err != nil {
		return nil, err
	}
	if req.JobHCL == "" {
		return nil, refuse(http.StatusBadRequest, "Job spec is empty")
	}
	job, err := jobfile.Parse([]byte(req.JobHCL), jobfile.Options{VarContent: req.Variables})
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "Failed to parse job: %v", err)
	}
	if req.Canonicalize {
		job.Canonicalize()
	}
	return job, nil
}

func (a *API) validate(_ http.ResponseWriter, r *http.Request) (any, error) {
	var req api.JobValidateRequest
	if err := body(r, &req); err != nil {
		return nil, err
	}
	if err := nameOf(&req.Job, r, ""); err != nil {
		return nil, err
	}
	resp := &api.JobValidateResponse{DriverConfigValidated: true}
	if err := a.Server.Validate(req.Job); err != nil {
		resp.Error, resp.ValidationErrors = err.Error(), strings.Split(strings.TrimSpace(err.Error()), "\n")
	}
	return resp, nil
}

func (a *API) jobAllocs(w http.ResponseWriter, r *http.Request, id string) (any, error) {
	ns := namespace(r)
	earlier, err := flag(r, "all")
	if err != nil {
		return nil, err
	}
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		all := v.JobAllocs(ns, id)
		if row := v.Job(ns, id); row != nil && !earlier {
			// Without those of a job of the same id that was purged.
			all = slices.DeleteFunc(all, func(one *api.Allocation) bool { return *one.Job.CreateIndex != *row.Job.CreateIndex })
		}
		slices.Reverse(all)
		return v.TableIndex(state.Allocs), stubs(all, true, false), nil
	})
}

func (a *API) jobEvals(w http.ResponseWriter, r *http.Request, id string) (any, error) {
	ns := namespace(r)
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		return v.TableIndex(state.Evals), v.JobEvals(ns, id), nil
	})
}

func (a *API) jobSummary(w http.ResponseWriter, r *http.Request, id string) (any, error) {
	ns := namespace(r)
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		row := v.Job(ns, id)
		if row == nil {
			return v.TableIndex(state.Jobs), nil, refuse(http.StatusNotFound, "job not found")
		}
		s := server.Summary(v, row)
		return s.ModifyIndex, s, nil
	})
}

func (a *API) jobVersions(w http.ResponseWriter, r *http.Request, id string) (any, error) {
	ns := namespace(r)
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		row := v.Job(ns, id)
		if row == nil {
			return v.TableIndex(state.Jobs), nil, refuse(http.StatusNotFound, "job versions not found")
		}
		out := map[string]any{"Versions": append([]*api.Job{row.Job}, row.Versions...), "Diffs": nil}
		return *row.Job.ModifyIndex, out, nil
	})
}

func (a *API) jobSubmission(w http.ResponseWriter, r *http.Request, id string) (any, error) {
	version, err := strconv.ParseUint(r.URL.Query().Get("version"), 10, 64)
	if err != nil {
		return nil, refuse(http.StatusBadRequest, "Failed to parse value of %q as a uint64", "version")
	}
	ns := namespace(r)
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		row := v.Job(ns, id)
		if row == nil || row.Submissions[version] == nil {
			return v.TableIndex(state.Jobs), nil, refuse(http.StatusNotFound, "job source not found")
		}
		return *row.Job.ModifyIndex, row.Submissions[version], nil
	})
}

func (a *API) jobDeployments(w http.ResponseWriter, r *http.Request, id string) (any, error) {
	ns := namespace(r)
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		all := v.Deployments(func(d *api.Deployment) bool { return d.Namespace == ns && d.JobID == id })
		return v.TableIndex(state.Deployments), all, nil
	})
}

// null is an answer that is JSON's null, where nil is none.
var null = json.RawMessage("null")

func (a *API) jobDeployment(w http.ResponseWriter, r *http.Request, id string) (any, error) {
	ns := namespace(r)
	return a.read(w, r, func(v *state.View) (uint64, any, error) {
		if d := v.LatestDeployment(ns, id); d != nil {
			return d.ModifyIndex, d, nil
		}
		return v.TableIndex(state.Deployments), null, nil
	})
}
