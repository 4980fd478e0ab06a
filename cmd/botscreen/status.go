// SPDX-License-Identifier: MPL-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
	"github.com/spf13/cobra"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/nomadjob"
)

func (c *cli) statusCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "status [SCREEN]",
		Short: "List screens, or show one",
		Long: `Without SCREEN: every screen of the namespace, and every screen that waits for a node, with the reason.
With SCREEN: what its supervisor says now, and the last events.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			client, err := c.nomad()
			if err != nil {
				return err
			}
			if len(args) == 1 {
				return c.statusOne(cmd.Context(), client, args[0])
			}
			return c.statusAll(cmd.Context(), client)
		},
	}
}

// waitingScreen is a screen without an allocation.
type waitingScreen struct {
	Job     string   `json:"job"`
	Group   string   `json:"group"`
	Reasons []string `json:"reasons"`
}

func (c *cli) statusAll(ctx context.Context, client *api.Client) error {
	screens, err := nomadjob.List(ctx, client, "")
	if err != nil {
		return c.nomadError(err)
	}
	blocked, err := c.blocked(ctx, client)
	if err != nil {
		return c.nomadError(err)
	}
	if c.json {
		return c.printJSON(map[string]any{"screens": nonNil(screens), "waiting": nonNil(blocked)})
	}
	if len(screens)+len(blocked) == 0 {
		_, err := fmt.Fprintln(c.out, "No screens. Start one with `botscreen run JOBFILE`.")
		return err
	}
	var rows [][]string
	for _, s := range screens {
		rows = append(rows, []string{
			dash(s.Profile.String()), dash(word(s)), dash(holder(s)), dash(s.Isolation), line(s.Path()), s.Alloc[:min(8, len(s.Alloc))],
			dash(s.Node), ago(s.Since),
		})
	}
	for _, b := range blocked {
		rows = append(rows, []string{"-", "pending", "-", "-", line(b.Job + "/" + b.Group), "-", "-", "-"})
	}
	if err := c.table([]string{"PROFILE", "STATE", "HOLDER", "ISOLATION", "JOB", "ALLOC", "NODE", "SINCE"}, rows); err != nil {
		return err
	}
	for _, b := range blocked {
		if _, err := fmt.Fprintf(c.out, "\nJob %s, group %s waits for a node:\n  * %s\n", line(b.Job), line(b.Group), strings.Join(b.Reasons, "\n  * ")); err != nil {
			return err
		}
	}
	return c.whyFailed(screens)
}

func nonNil[T any](list []T) []T {
	if list == nil {
		return []T{}
	}
	return list
}

// whyFailed tells the last event of each screen that failed.
func (c *cli) whyFailed(screens []nomadjob.Screen) error {
	for _, s := range screens {
		if s.Client != api.AllocClientStatusFailed && !s.Failed {
			continue
		}
		if _, err := fmt.Fprintf(c.out, "\n%s failed: %s\n", line(s.Path()), s.Last); err != nil {
			return err
		}
	}
	return nil
}

// word is what a screen is doing, or its allocation where the driver says nothing.
func word(s nomadjob.Screen) string {
	switch {
	case s.Client == api.AllocClientStatusFailed || s.Client == api.AllocClientStatusLost:
		return s.Client
	case !s.Live() && s.Client == api.AllocClientStatusComplete:
		return "stopped"
	case s.State != "":
		return string(s.State)
	}
	return or(s.TaskState, s.Client)
}

func holder(s nomadjob.Screen) string {
	if !s.Live() {
		return ""
	}
	return s.Holder
}

// blocked finds the groups with screens that wait for a node, with the reasons.
func (c *cli) blocked(ctx context.Context, client *api.Client) ([]waitingScreen, error) {
	jobs, _, err := client.Jobs().List((&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, err
	}
	var out []waitingScreen
	for _, j := range jobs {
		if j.Stop || j.JobSummary == nil || !queued(j.JobSummary) {
			continue
		}
		evals, _, err := client.Jobs().Evaluations(j.ID, (&api.QueryOptions{Namespace: j.Namespace}).WithContext(ctx))
		if err != nil {
			return nil, err
		}
		i := slices.IndexFunc(evals, func(e *api.Evaluation) bool { return e.Status == "blocked" })
		if i < 0 {
			continue
		}
		for group, m := range evals[i].FailedTGAllocs {
			out = append(out, waitingScreen{Job: j.ID, Group: group, Reasons: placementReasons(m)})
		}
	}
	slices.SortFunc(out, func(a, b waitingScreen) int { return strings.Compare(a.Job+"/"+a.Group, b.Job+"/"+b.Group) })
	return out, nil
}

func queued(s *api.JobSummary) bool {
	for _, g := range s.Summary {
		if g.Queued > 0 {
			return true
		}
	}
	return false
}

// reachTimeout bounds the question to a supervisor.
const reachTimeout = 10 * time.Second

func (c *cli) statusOne(ctx context.Context, client *api.Client, name string) error {
	s, err := c.find(ctx, client, name)
	if err != nil {
		return err
	}
	now, unreachable := c.askSupervisor(ctx, client, s)
	if now != nil && now.Lease.Holder != "" { // newer than any event
		s.Holder, s.Epoch = string(now.Lease.Holder), uint64(now.Lease.Epoch)
	}
	if c.json {
		out := map[string]any{"screen": s, "supervisor": now}
		if unreachable != nil {
			out["unreachable"] = line(unreachable.Error())
		}
		return c.printJSON(out)
	}
	rows := [][2]string{
		{"Profile", s.Profile.String()}, {"State", word(s)}, {"Job", s.Path()}, {"Alloc", s.Alloc}, {"Node", s.Node},
		{"Isolation", s.Isolation}, {"Image", s.ImageDigest}, {"Holder", holder(s)}, {"Epoch", number(s.Epoch)}, {"Fence", s.Fence},
		{"Since", stamp(s.Since)}, {"Restarts", number(s.Restarts)}, {"Reason", s.Reason.String()},
	}
	if now != nil {
		rows = append(rows, supervisorRows(now)...)
	} else if unreachable != nil {
		rows = append(rows, [2]string{"Supervisor", "does not answer: " + unreachable.Error()})
	}
	for _, r := range rows {
		if r[1] == "" {
			continue
		}
		if _, err := fmt.Fprintf(c.out, "%-12s%s\n", r[0], line(r[1])); err != nil {
			return err
		}
	}
	return c.printEvents(ctx, client, s)
}

func number(n uint64) string {
	if n == 0 {
		return ""
	}
	return strconv.FormatUint(n, 10)
}

func stamp(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Format("2006-01-02 15:04:05 MST")
}

// askSupervisor reads what the supervisor of a live screen says; neither a status nor
// an error where there is none to ask.
func (c *cli) askSupervisor(ctx context.Context, client *api.Client, s nomadjob.Screen) (*control.Status, error) {
	if !s.Live() || s.TaskState != "running" {
		return nil, nil
	}
	status, err := statusOf(ctx, client, s)
	if err != nil {
		return nil, err
	}
	return &status, nil
}

// statusOf asks a screen's supervisor.
func statusOf(ctx context.Context, client *api.Client, s nomadjob.Screen) (control.Status, error) {
	ctx, cancel := context.WithTimeout(ctx, reachTimeout)
	defer cancel()
	conn := control.NewClient(nomadjob.Dial(client, s, control.Hello{}))
	defer conn.Close()
	return conn.Status(ctx)
}

func supervisorRows(s *control.Status) [][2]string {
	rows := [][2]string{{"Display", s.Display}, {"Geometry", fmt.Sprint(s.Geometry)}}
	if s.Fence.Reason != "" {
		rows = append(rows, [2]string{"Fence", fmt.Sprintf("%s (%s)", s.Fence.Mode, s.Fence.Reason)})
	}
	if m := s.Memory; m != nil {
		rows = append(rows, [2]string{"Memory", fmt.Sprintf("%d MB available, floor %d MB", m.AvailableMB, m.FloorMB)})
	}
	rows = append(rows, browserRow(s.Browser))
	for _, v := range s.Viewers {
		rows = append(rows, [2]string{"Viewer", fmt.Sprintf("%s, %s, since %s", v.Viewer, v.Mode, stamp(v.Since))})
	}
	for _, a := range s.Asks {
		rows = append(rows, [2]string{"Wanted", fmt.Sprintf("the agent says: %s", a.Reason)})
	}
	for _, w := range s.Warnings {
		rows = append(rows, [2]string{"Warning", w})
	}
	return rows
}

func (c *cli) printEvents(ctx context.Context, client *api.Client, s nomadjob.Screen) error {
	a, _, err := client.Allocations().Info(s.Alloc, (&api.QueryOptions{Namespace: s.Namespace}).WithContext(ctx))
	if err != nil {
		return c.nomadError(err)
	}
	state := a.TaskStates[s.Task]
	if state == nil || len(state.Events) == 0 {
		return nil
	}
	if _, err := fmt.Fprintln(c.out, "\nEvents"); err != nil {
		return err
	}
	for _, e := range state.Events {
		if _, err := fmt.Fprintf(c.out, "  %s  %s: %s\n", stamp(time.Unix(0, e.Time)), line(e.Type), line(e.DisplayMessage)); err != nil {
			return err
		}
	}
	return nil
}
