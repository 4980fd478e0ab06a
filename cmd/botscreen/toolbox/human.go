// SPDX-License-Identifier: MPL-2.0

package toolbox

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/botscreen/botscreen/shared/control"
	"github.com/botscreen/botscreen/shared/lease"
)

func (b *Box) addHumans(s *mcp.Server) {
	mcp.AddTool(s, &mcp.Tool{
		Name: "request_human", Annotations: changing("Ask for a person"),
		Description: "Ask for a person to take the screen, for what only a person should do: a login, a code from their phone, a CAPTCHA, a payment, a decision. People see your reason. " +
			"Go on with wait_for_human. One request can be open at a time, six an hour.",
	}, b.requestHuman)
	mcp.AddTool(s, &mcp.Tool{
		Name: "wait_for_human", Annotations: readOnly("Wait for the hand-back"),
		Description: "Wait until a person whom you asked for has taken the screen and handed it back, or, without a request, until a person who has the screen hands it back. " +
			"Says what became of it and what to do next. When it says that nothing has happened yet, call it again. Take a screenshot afterwards.",
	}, b.waitForHuman)
	mcp.AddTool(s, &mcp.Tool{
		Name: "lease", Annotations: readOnly("Who controls the screen"),
		Description: "Say who controls the screen now, you or a person, since when and why.",
	}, b.lease)
}

// asked is the agent's open request for a person.
type asked struct {
	mu sync.Mutex // guards id
	id string
}

func (a *asked) set(id string) { a.mu.Lock(); defer a.mu.Unlock(); a.id = id }
func (a *asked) get() string   { a.mu.Lock(); defer a.mu.Unlock(); return a.id }

type askArgs struct {
	Reason          string  `json:"reason" jsonschema:"why a person is needed and what they should do, at most 300 characters; without secrets"`
	DeadlineMinutes float64 `json:"deadline_minutes,omitempty" jsonschema:"after so long it is no use any more, at most 1440; without it the request stays open"`
}

func (b *Box) requestHuman(ctx context.Context, _ *mcp.CallToolRequest, args askArgs) (*mcp.CallToolResult, any, error) {
	req := control.AskRequest{Reason: args.Reason}
	if args.DeadlineMinutes != 0 {
		req.Deadline = time.Now().Add(time.Duration(args.DeadlineMinutes * float64(time.Minute)))
	}
	ask, err := b.client.Ask(ctx, req)
	if control.KindOf(err) == control.Busy {
		if open, ok := b.openAsk(ctx); ok {
			b.asked.set(open.ID)
			return says("You have asked for a person already, %s: %q. Call wait_for_human.", age(open.Since), open.Reason.String()), nil, nil
		}
	}
	if err != nil {
		return nil, nil, b.explain("request_human", err)
	}
	b.asked.set(ask.ID)
	text := "People see that you need one of them."
	if !ask.Deadline.IsZero() {
		text += fmt.Sprintf(" The request ends at %s.", ask.Deadline.UTC().Format("15:04:05 UTC"))
	}
	return says("%s Call wait_for_human now; until a person takes the screen you may still use it.", text), nil, nil
}

// openAsk is the request that is open, also one that an earlier life of this process made.
func (b *Box) openAsk(ctx context.Context) (control.Ask, bool) {
	status, err := b.client.Status(ctx)
	if err != nil || len(status.Asks) == 0 {
		return control.Ask{}, false
	}
	return status.Asks[0], true
}

type waitHumanArgs struct {
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" jsonschema:"answer after so long in any case, at most 300; 50 where it is left out"`
}

// defaultHumanWait stays below what MCP clients wait for an answer.
const defaultHumanWait = 50 * time.Second

func (b *Box) waitForHuman(ctx context.Context, _ *mcp.CallToolRequest, args waitHumanArgs) (*mcp.CallToolResult, any, error) {
	wait := time.Duration(args.TimeoutSeconds * float64(time.Second))
	switch {
	case args.TimeoutSeconds == 0:
		wait = defaultHumanWait
	case !(wait > 0 && wait <= control.MaxAskWait):
		return nil, nil, failed("wait_for_human", "timeout_seconds must be above 0 and at most %g.", control.MaxAskWait.Seconds())
	}
	id := b.asked.get()
	if id == "" {
		if open, ok := b.openAsk(ctx); ok {
			id = open.ID
		}
	}
	if id == "" {
		return b.waitForHandBack(ctx, wait)
	}
	outcome, err := b.client.AwaitAsk(ctx, id, wait)
	switch {
	case control.KindOf(err) == control.Gone:
		b.asked.set("")
		return b.waitForHandBack(ctx, wait)
	case err != nil:
		return nil, nil, b.explain("wait_for_human", err)
	}
	if outcome.State.Over() {
		b.asked.set("")
	}
	return b.tell(outcome), nil, nil
}

func (b *Box) tell(o control.AskOutcome) *mcp.CallToolResult {
	switch o.State {
	case control.AskHandedBack:
		b.sight.lost(o.Lease.Epoch)
		return says("The screen was handed back to you%s.%s Take a screenshot and go on from what it shows.", heldFor(o.Held), changesIn(o.Note))
	case control.AskExpired:
		return says("Nobody came before the deadline. %s Go on without a person, or ask again.", b.describe(o.Lease))
	case control.AskTaken:
		b.sight.lost(o.Lease.Epoch)
		return says("A person has the screen now and has not handed it back yet. Call wait_for_human again.")
	default:
		return says("Nobody has come yet. Call wait_for_human again, or use the screen meanwhile.")
	}
}

func heldFor(d time.Duration) string {
	if d <= 0 {
		return ""
	}
	return fmt.Sprintf(" after %s in a person's hands", d.Round(time.Second))
}

// changesIn tells of the windows that a person opened or closed, by their programs, and of
// the site that the browser shows.
func changesIn(note *control.HandOff) string {
	if note == nil {
		return ""
	}
	return siteIn(note) + windowsIn(note)
}

// siteIn tells of the site that a person left the browser on.
func siteIn(note *control.HandOff) string {
	before, after := note.OriginBefore.String(), note.OriginAfter.String()
	switch {
	case before == "" && after == "":
		return ""
	case before == after:
		return fmt.Sprintf(" The browser shows a page of %q, as before.", after)
	}
	return fmt.Sprintf(" The browser showed a page of %q before; now of %q.", before, after)
}

func windowsIn(note *control.HandOff) string {
	if len(note.Before)+len(note.After) == 0 {
		return ""
	}
	list := func(names []string) string {
		if len(names) == 0 {
			return "none"
		}
		return strings.Join(names, ", ")
	}
	if slices.Equal(note.Before, note.After) {
		return fmt.Sprintf(" Programs with windows, before and after: %s.", list(note.After))
	}
	return fmt.Sprintf(" Programs with windows before: %s; now: %s.", list(note.Before), list(note.After))
}

// waitForHandBack waits without a request: for whoever took the screen on their own.
func (b *Box) waitForHandBack(ctx context.Context, wait time.Duration) (*mcp.CallToolResult, any, error) {
	held, err := b.client.Lease(ctx)
	if err != nil {
		return nil, nil, b.explain("wait_for_human", err)
	}
	if held.Holder == lease.Agent {
		text := b.describe(held)
		if b.sight.epoch() != held.Epoch {
			b.sight.lost(held.Epoch)
			text += " Take a screenshot before you go on."
		}
		return says("No person has the screen and none was asked for. %s", text), nil, nil
	}
	bounded, cancel := context.WithTimeout(ctx, wait)
	defer cancel()
	for event, err := range b.client.Events(bounded, 0) {
		if err == nil && event.Holder == lease.Agent && event.Epoch > held.Epoch {
			b.sight.lost(event.Epoch)
			return says("The screen was handed back to you. Take a screenshot and go on from what it shows."), nil, nil
		}
		if err != nil && ctx.Err() == nil && !errors.Is(err, context.DeadlineExceeded) {
			return nil, nil, b.explain("wait_for_human", err)
		}
	}
	if ctx.Err() != nil {
		return nil, nil, context.Cause(ctx)
	}
	b.sight.lost(held.Epoch)
	return says("Nothing has happened yet. %s Call wait_for_human again.", b.describe(held)), nil, nil
}

func (b *Box) lease(ctx context.Context, _ *mcp.CallToolRequest, _ struct{}) (*mcp.CallToolResult, any, error) {
	held, err := b.client.Lease(ctx)
	if err != nil {
		return nil, nil, b.explain("lease", err)
	}
	text := b.describe(held)
	if held.Holder == lease.Agent && b.sight.epoch() != held.Epoch {
		text += " Take a screenshot before you act."
	}
	return says("%s Epoch %d.", text, held.Epoch), nil, nil
}

// describe says who holds, and notes what it means for what was seen.
func (b *Box) describe(l lease.Public) string {
	if l.Epoch != b.sight.epoch() {
		b.sight.lost(l.Epoch)
	}
	since := l.Since.UTC().Format("2006-01-02 15:04:05 UTC")
	if l.Holder == lease.Agent {
		return fmt.Sprintf("You, the agent, control the screen since %s.", since)
	}
	text := fmt.Sprintf("A person controls the screen since %s.%s", since, age(l.Since))
	if reason := l.Reason.String(); reason != "" {
		text += fmt.Sprintf(" They say: %q.", reason)
	}
	return text + " Until it is handed back you can neither see nor use it: call wait_for_human."
}
