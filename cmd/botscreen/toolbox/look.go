// SPDX-License-Identifier: MPL-2.0

package toolbox

import (
	"context"
	"fmt"
	"image"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/botscreen/botscreen/shared/control"
)

func (b *Box) addLooks(s *mcp.Server) {
	mcp.AddTool(s, &mcp.Tool{
		Name: "screenshot", Annotations: readOnly("Look at the screen"),
		Description: "See the screen: a picture of all of it or of a region, with the mouse pointer. Take one before the first action, after actions to see " +
			"what they did, and after a person had the screen. A smaller scale costs less; use a region in full scale to read small text. " +
			"With unless_unchanged you get a short \"unchanged\" in place of a picture that equals your last one.",
	}, b.screenshot)
	mcp.AddTool(s, &mcp.Tool{
		Name: "wait", Annotations: readOnly("Wait"),
		Description: "Wait for some seconds, or until the screen changes (compared with your last screenshot) or settles (nothing moves for half a second). " +
			"For until you get the new picture at the end, of the same region and scale as your last screenshot. A blinking text cursor never settles: wait for a region without it, or for seconds.",
	}, b.wait)
}

type region struct {
	X      int `json:"x" jsonschema:"left edge in pixels of the screen"`
	Y      int `json:"y" jsonschema:"upper edge in pixels of the screen"`
	Width  int `json:"width" jsonschema:"in pixels of the screen"`
	Height int `json:"height" jsonschema:"in pixels of the screen"`
}

// rect is empty for the zero value, which is the whole screen.
func (r region) rect() (image.Rectangle, error) {
	const most = 1<<16 - 1
	if r == (region{}) {
		return image.Rectangle{}, nil
	}
	if r.X < 0 || r.Y < 0 || r.Width < 1 || r.Height < 1 || r.X > most || r.Y > most || r.Width > most || r.Height > most {
		return image.Rectangle{}, fmt.Errorf("the region must lie on the screen and have a width and a height above 0; it is x %d, y %d, width %d, height %d",
			r.X, r.Y, r.Width, r.Height)
	}
	return image.Rect(r.X, r.Y, r.X+r.Width, r.Y+r.Height), nil
}

type lookArgs struct {
	Region          region  `json:"region,omitzero" jsonschema:"the part to see; without it the whole screen"`
	Scale           float64 `json:"scale,omitempty" jsonschema:"size of the picture, above 0 and at most 1; 1 where it is left out"`
	Format          string  `json:"format,omitempty" jsonschema:"png (where it is left out) or jpeg"`
	UnlessUnchanged bool    `json:"unless_unchanged,omitempty" jsonschema:"true: no picture when it equals the last one you got of the same region and scale"`
}

func (a lookArgs) request() (control.ScreenshotRequest, error) {
	rect, err := a.Region.rect()
	if err != nil {
		return control.ScreenshotRequest{}, err
	}
	// The supervisor's own rules, before anything is asked.
	return control.ParseScreenshotRequest(control.ScreenshotRequest{Rect: rect, Scale: a.Scale, Format: control.ImageFormat(a.Format)}.Query())
}

func (b *Box) screenshot(ctx context.Context, _ *mcp.CallToolRequest, args lookArgs) (*mcp.CallToolResult, any, error) {
	req, err := args.request()
	if err != nil {
		return nil, nil, failed("screenshot", "%v.", err)
	}
	if args.UnlessUnchanged {
		req.Unless = b.sight.hash(frameOf(req))
	}
	shot, err := b.look(ctx, "screenshot", req)
	if err != nil {
		return nil, nil, err
	}
	return picture(req, shot), nil, nil
}

// look takes a picture and notes that the agent gets it.
func (b *Box) look(ctx context.Context, what string, req control.ScreenshotRequest) (control.Screenshot, error) {
	shot, err := b.client.Screenshot(ctx, req)
	if err != nil {
		return shot, b.explain(what, err)
	}
	b.sight.looked(frameOf(req), shot)
	return shot, nil
}

// picture is a result: the picture as a picture, numbers as text (CLI-03).
func picture(req control.ScreenshotRequest, shot control.Screenshot) *mcp.CallToolResult {
	if len(shot.Data) == 0 {
		return says("unchanged: the screen looks as in your last picture of this region and scale.")
	}
	text := fmt.Sprintf("The screen is %s pixels.", shot.Screen)
	if !req.Rect.Empty() {
		text += fmt.Sprintf(" The picture is its region from x %d, y %d, %dx%d.", req.Rect.Min.X, req.Rect.Min.Y, req.Rect.Dx(), req.Rect.Dy())
	}
	if req.Scale < 1 {
		text += fmt.Sprintf(" It is scaled by %g: divide its pixels by %g.", req.Scale, req.Scale)
	}
	if !req.Rect.Empty() || req.Scale < 1 {
		text += " Coordinates of actions are pixels of the whole screen."
	}
	return shows(shot.Data, shot.Format, text)
}

type waitArgs struct {
	Seconds        float64 `json:"seconds,omitempty" jsonschema:"how long to wait, at most 60; leave it out with until"`
	Until          string  `json:"until,omitempty" jsonschema:"change: until the screen differs from your last screenshot; settle: until nothing moves"`
	TimeoutSeconds float64 `json:"timeout_seconds,omitempty" jsonschema:"with until: give up after so long, at most 60; 10 where it is left out"`
}

// The default of timeout_seconds, in seconds, stays below what MCP clients wait for an
// answer.
const defaultWait = 10

func (b *Box) wait(ctx context.Context, _ *mcp.CallToolRequest, args waitArgs) (*mcp.CallToolResult, any, error) {
	switch {
	case (args.Until == "") == (args.Seconds == 0):
		return nil, nil, failed("wait", "say either seconds or until.")
	case args.Until == "":
		result, err := b.waitSeconds(ctx, args.Seconds)
		return result, nil, err
	case args.TimeoutSeconds == 0:
		args.TimeoutSeconds = defaultWait
	}
	f, ok := b.sight.lastFrame()
	if !ok {
		return nil, nil, errLookFirst
	}
	req := control.ScreenshotRequest{Rect: f.rect, Scale: f.scale, Unless: b.sight.hash(f),
		Until: control.Until(args.Until), Within: time.Duration(args.TimeoutSeconds * float64(time.Second))}
	req, err := control.ParseScreenshotRequest(req.Query())
	if err != nil {
		return nil, nil, failed("wait", "%v.", err)
	}
	begin := time.Now()
	shot, err := b.look(ctx, "wait", req)
	if err != nil {
		return nil, nil, err
	}
	took := time.Since(begin).Round(100 * time.Millisecond)
	result := picture(req, shot)
	switch {
	case shot.Late && req.Until == control.Settle:
		return addText(result, "It still moves after %s.", took), nil, nil
	case shot.Late:
		return says("It did not change within %s.", took), nil, nil
	case req.Until == control.Settle:
		return addText(result, "It settled after %s.", took), nil, nil
	}
	return addText(result, "It changed after %s.", took), nil, nil
}

func addText(r *mcp.CallToolResult, format string, args ...any) *mcp.CallToolResult {
	r.Content = append(r.Content, &mcp.TextContent{Text: fmt.Sprintf(format, args...)})
	return r
}

// waitSeconds waits, and then says when the screen is not the agent's any more.
func (b *Box) waitSeconds(ctx context.Context, seconds float64) (*mcp.CallToolResult, error) {
	if !(seconds > 0 && seconds <= control.MaxWithin.Seconds()) { // written so that NaN is refused
		return nil, failed("wait", "seconds must be above 0 and at most %g.", control.MaxWithin.Seconds())
	}
	timer := time.NewTimer(time.Duration(seconds * float64(time.Second)))
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	held, err := b.client.Lease(ctx)
	if err != nil {
		return nil, b.explain("wait", err)
	}
	text := fmt.Sprintf("%g seconds are over.", seconds)
	if holds := b.describe(held); b.sight.epoch() != held.Epoch {
		text += " " + holds
	}
	return says("%s", text), nil
}
