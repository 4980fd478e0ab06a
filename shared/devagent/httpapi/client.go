// SPDX-License-Identifier: MPL-2.0

package httpapi

import (
	"context"
	"net/http"
	"time"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/state"
	"github.com/botscreen/botscreen/shared/nomadplugin"
	"github.com/botscreen/botscreen/shared/nomadplugin/proto/driverpb"
)

func (a *API) clientRoutes(mux *http.ServeMux) {
	handle(mux, "/v1/client/allocation/{id}/restart", "PUT POST", a.restart)
	handle(mux, "/v1/client/allocation/{id}/signal", "PUT POST", a.signal)
	handle(mux, "/v1/client/allocation/{id}/stats", "GET", a.stats)
	handle(mux, "/v1/client/allocation/{id}/checks", "GET", func(http.ResponseWriter, *http.Request) (any, error) {
		return map[string]any{}, nil
	})
	handle(mux, "/v1/client/stats", "GET", a.hostStats)
	mux.HandleFunc("/v1/client/allocation/{id}/exec", a.exec)
	handle(mux, "/v1/client/fs/logs/{id}", "GET", a.logs)
	handle(mux, "/v1/client/fs/ls/{id}", "GET", a.list)
	handle(mux, "/v1/client/fs/stat/{id}", "GET", a.stat)
	handle(mux, "/v1/client/fs/cat/{id}", "GET", a.cat)
	handle(mux, "/v1/client/fs/readat/{id}", "GET", a.readAt)
}

// done is the answer of calls that have nothing to say.
var done = map[string]any{"Index": 0}

func (a *API) restart(_ http.ResponseWriter, r *http.Request) (any, error) {
	var req api.AllocationRestartRequest
	if err := body(r, &req); err != nil {
		return nil, err
	}
	return done, a.Client.Restart(r.PathValue("id"), req.TaskName, req.AllTasks)
}

func (a *API) signal(_ http.ResponseWriter, r *http.Request) (any, error) {
	var req api.AllocSignalRequest
	if err := body(r, &req); err != nil {
		return nil, err
	}
	return done, a.Client.Signal(r.Context(), r.PathValue("id"), req.Task, req.Signal)
}

// statsTimeout bounds how long a driver may take for a first sample.
const statsTimeout = 5 * time.Second

func (a *API) stats(_ http.ResponseWriter, r *http.Request) (any, error) {
	id, only := r.PathValue("id"), r.URL.Query().Get("task")
	var alloc *api.Allocation
	a.Store.Read(func(v *state.View) { alloc = v.Alloc(id) })
	if alloc == nil {
		return nil, refuse(http.StatusNotFound, "Unknown allocation %q", id)
	}
	out := &api.AllocResourceUsage{Tasks: map[string]*api.TaskResourceUsage{}, ResourceUsage: newUsage()}
	for name := range alloc.TaskStates {
		if only != "" && only != name {
			continue
		}
		sample, err := a.sample(r.Context(), id, name)
		if err != nil || sample == nil {
			continue
		}
		out.Tasks[name] = sample
		add(out.ResourceUsage, sample.ResourceUsage)
		out.Timestamp = max(out.Timestamp, sample.Timestamp)
	}
	return out, nil
}

// sample asks the driver for one sample of a task.
func (a *API) sample(ctx context.Context, id, name string) (*api.TaskResourceUsage, error) {
	task, err := a.Client.Task(id, name)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, statsTimeout)
	defer cancel()
	var out *api.TaskResourceUsage
	err = task.Stats(ctx, time.Second, func(s *nomadplugin.TaskStats) {
		if out == nil {
			out = taskUsage(s)
		}
		cancel()
	})
	if out != nil {
		return out, nil
	}
	return nil, err
}

func newUsage() *api.ResourceUsage {
	return &api.ResourceUsage{MemoryStats: &api.MemoryStats{}, CpuStats: &api.CpuStats{}}
}

func taskUsage(s *nomadplugin.TaskStats) *api.TaskResourceUsage {
	out := &api.TaskResourceUsage{
		ResourceUsage: usage(s.GetAggResourceUsage()), Timestamp: s.GetTimestamp().AsTime().UnixNano(),
		Pids: map[string]*api.ResourceUsage{},
	}
	for pid, one := range s.GetResourceUsageByPid() {
		out.Pids[pid] = usage(one)
	}
	return out
}

// The names of measured fields, as clients of the API show them.
var (
	cpuFields = map[driverpb.CPUUsage_Fields]string{
		driverpb.CPUUsage_SYSTEM_MODE: "System Mode", driverpb.CPUUsage_USER_MODE: "User Mode",
		driverpb.CPUUsage_TOTAL_TICKS: "Total Ticks", driverpb.CPUUsage_THROTTLED_PERIODS: "Throttled Periods",
		driverpb.CPUUsage_THROTTLED_TIME: "Throttled Time", driverpb.CPUUsage_PERCENT: "Percent",
	}
	memoryFields = map[driverpb.MemoryUsage_Fields]string{
		driverpb.MemoryUsage_RSS: "RSS", driverpb.MemoryUsage_CACHE: "Cache", driverpb.MemoryUsage_MAX_USAGE: "Max Usage",
		driverpb.MemoryUsage_KERNEL_USAGE: "Kernel Usage", driverpb.MemoryUsage_KERNEL_MAX_USAGE: "Kernel Max Usage",
		driverpb.MemoryUsage_USAGE: "Usage", driverpb.MemoryUsage_SWAP: "Swap",
	}
)

func usage(u *driverpb.TaskResourceUsage) *api.ResourceUsage {
	out := newUsage()
	if c := u.GetCpu(); c != nil {
		out.CpuStats = &api.CpuStats{
			SystemMode: c.GetSystemMode(), UserMode: c.GetUserMode(), TotalTicks: c.GetTotalTicks(),
			ThrottledPeriods: c.GetThrottledPeriods(), ThrottledTime: c.GetThrottledTime(), Percent: c.GetPercent(),
		}
		for _, f := range c.GetMeasuredFields() {
			out.CpuStats.Measured = append(out.CpuStats.Measured, cpuFields[f])
		}
	}
	if m := u.GetMemory(); m != nil {
		out.MemoryStats = &api.MemoryStats{
			RSS: m.GetRss(), Cache: m.GetCache(), Swap: m.GetSwap(), Usage: m.GetUsage(), MaxUsage: m.GetMaxUsage(),
			KernelUsage: m.GetKernelUsage(), KernelMaxUsage: m.GetKernelMaxUsage(),
		}
		for _, f := range m.GetMeasuredFields() {
			out.MemoryStats.Measured = append(out.MemoryStats.Measured, memoryFields[f])
		}
	}
	return out
}

func add(sum, one *api.ResourceUsage) {
	sum.CpuStats.SystemMode += one.CpuStats.SystemMode
	sum.CpuStats.UserMode += one.CpuStats.UserMode
	sum.CpuStats.TotalTicks += one.CpuStats.TotalTicks
	sum.CpuStats.Percent += one.CpuStats.Percent
	sum.CpuStats.ThrottledPeriods += one.CpuStats.ThrottledPeriods
	sum.CpuStats.ThrottledTime += one.CpuStats.ThrottledTime
	sum.CpuStats.Measured = one.CpuStats.Measured
	sum.MemoryStats.RSS += one.MemoryStats.RSS
	sum.MemoryStats.Cache += one.MemoryStats.Cache
	sum.MemoryStats.Swap += one.MemoryStats.Swap
	sum.MemoryStats.Usage += one.MemoryStats.Usage
	sum.MemoryStats.MaxUsage += one.MemoryStats.MaxUsage
	sum.MemoryStats.KernelUsage += one.MemoryStats.KernelUsage
	sum.MemoryStats.KernelMaxUsage += one.MemoryStats.KernelMaxUsage
	sum.MemoryStats.Measured = one.MemoryStats.Measured
}
