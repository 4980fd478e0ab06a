// SPDX-License-Identifier: MPL-2.0

package control

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"image"
	"io"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/botscreen/botscreen/shared/screen"
)

// The table of doors in the architecture: what each role may call, word for word.
// A new route has to be entered here by hand.
func TestRoutesByRole(t *testing.T) {
	want := map[screen.Role][]Call{
		screen.RoleOperator: {CallStatus, CallEvents, CallLease, CallTake, CallRelease, CallMintTicket, CallRevokeTicket,
			CallScreenshot, CallAsk, CallAwaitAsk, CallOpenBrowser, CallCloseBrowser, CallStop, CallSignal, CallSleep, CallWake, CallWait, CallAudit, CallStats, CallExec, CallTunnel},
		screen.RoleAgent: {CallStatus, CallEvents, CallLease, CallScreenshot, CallInput, CallAsk, CallAwaitAsk, CallWindows, CallCursor,
			CallReadClipboard, CallSetClipboard, CallOpenBrowser, CallCloseBrowser, CallCDP},
		screen.RoleControl: {CallStatus, CallEvents, CallLease, CallTake, CallRelease, CallRFB},
		screen.RoleViewer:  {CallStatus, CallEvents, CallLease, CallTake, CallRelease, CallRFB},
		"":                 nil,
		"root":             nil,
	}
	for role, calls := range want {
		var got []Call
		for _, route := range Routes {
			if route.Allows(role) {
				got = append(got, route.Call)
			}
		}
		if !slices.Equal(got, calls) {
			t.Errorf("%q may call %v, want %v", role, got, calls)
		}
	}
}

func TestRoutesAreOne(t *testing.T) {
	seen := map[string]bool{}
	for _, route := range Routes {
		line := route.Method + " " + route.Path
		if seen[line] || seen[string(route.Call)] || !strings.HasPrefix(route.Path, "/v1/") {
			t.Errorf("%s: %s", route.Call, line)
		}
		seen[line], seen[string(route.Call)] = true, true
	}
	if _, ok := RouteOf("nothing"); ok {
		t.Error("an unknown call has a route")
	}
}

func TestErrorTravels(t *testing.T) {
	sent := &Error{Kind: HumanHasControl, Message: "A person has controlled this screen since noon.", Next: "Wait.", Holder: "human", Epoch: 41}
	body, err := sent.MarshalBody()
	if err != nil || !strings.HasPrefix(string(body), `{"error":{"kind":"human_has_control",`) {
		t.Fatalf("%s, %v", body, err)
	}
	var back errorBody
	if err := json.Unmarshal(body, &back); err != nil || !reflect.DeepEqual(back.Error, sent) {
		t.Fatalf("%+v, %v", back.Error, err)
	}
	wrapped := fmt.Errorf("call input: %w", sent)
	if KindOf(wrapped) != HumanHasControl || !errors.Is(wrapped, &Error{Kind: HumanHasControl}) || errors.Is(wrapped, &Error{Kind: Busy}) {
		t.Error("the kind is lost in a wrapped error")
	}
	if KindOf(io.EOF) != "" || KindOf(nil) != "" {
		t.Error("other errors have a kind")
	}
	for kind := range httpStatus {
		if status := (&Error{Kind: kind}).HTTPStatus(); status < 400 || status > 599 {
			t.Errorf("%s travels as %d", kind, status)
		}
	}
}

func TestParseScreenshotRequest(t *testing.T) {
	for query, want := range map[string]ScreenshotRequest{
		"":                                 {Scale: 1, Format: PNG},
		"rect=10,20,30,40":                 {Rect: image.Rect(10, 20, 40, 60), Scale: 1, Format: PNG},
		"scale=0.25&format=jpeg":           {Scale: 0.25, Format: JPEG},
		"format=jpg":                       {Scale: 1, Format: JPEG},
		"unless=ab&until=change&within=1m": {Scale: 1, Format: PNG, Unless: "ab", Until: Change, Within: time.Minute},
		"until=settle&within=0.5s":         {Scale: 1, Format: PNG, Until: Settle, Within: 500 * time.Millisecond},
		"rect=0,0,65535,65535":             {Rect: image.Rect(0, 0, 65535, 65535), Scale: 1, Format: PNG},
		"thumbnail=true&unless=ab":         {Thumbnail: true, Unless: "ab"},
	} {
		q, _ := url.ParseQuery(query)
		if got, err := ParseScreenshotRequest(q); err != nil || got != want {
			t.Errorf("%q: %+v, %v", query, got, err)
		}
	}
	for _, query := range []string{"rect=1,2,3", "rect=1,2,0,4", "rect=-1,2,3,4", "rect=1,2,3,65536", "rect=a,b,c,d", "rect=1,2,3,4,5",
		"scale=0", "scale=1.01", "scale=-1", "scale=NaN", "scale=x", "format=bmp",
		"until=change&within=1s", "until=settle", "until=settle&within=61s", "until=settle&within=-1s", "until=x&within=1s", "within=1s",
		"unless=" + strings.Repeat("x", 129), "thumbnail=1", "thumbnail=true&scale=1", "thumbnail=true&format=jpeg", "thumbnail=true&rect=0,0,1,1",
		"thumbnail=true&until=settle&within=1s"} {
		q, _ := url.ParseQuery(query)
		if got, err := ParseScreenshotRequest(q); err == nil {
			t.Errorf("%q: accepted as %+v", query, got)
		}
	}
	q, _ := url.ParseQuery("rect=1&scale=2&format=3")
	_, err := ParseScreenshotRequest(q)
	var faults screen.Faults
	if !errors.As(err, &faults) || len(faults) != 3 {
		t.Errorf("three faults: %v", err)
	}
}

// FuzzScreenshotRequest: what is accepted can be written and read again.
func FuzzScreenshotRequest(f *testing.F) {
	f.Add("rect=1,2,3,4&scale=0.5&format=jpeg")
	f.Add("scale=1e-9")
	f.Add("thumbnail=true&unless=ab")
	f.Add("unless=ab&until=change&within=9.5s")
	f.Fuzz(func(t *testing.T, query string) {
		q, err := url.ParseQuery(query)
		if err != nil {
			return
		}
		r, err := ParseScreenshotRequest(q)
		if err != nil {
			return
		}
		if again, err := ParseScreenshotRequest(r.Query()); err != nil || again != r {
			t.Fatalf("%+v became %+v, %v", r, again, err)
		}
	})
}

func TestPrepend(t *testing.T) {
	near, far := net.Pipe()
	defer near.Close()
	go func() {
		far.Write([]byte("first rest"))
		far.Write([]byte(" and more"))
		far.Close()
	}()
	r := bufio.NewReader(near)
	word, _ := r.ReadString(' ')
	conn := Prepend(near, r)
	rest, err := io.ReadAll(conn)
	if word != "first " || string(rest) != "rest and more" || err != nil {
		t.Fatalf("%q, %q, %v", word, rest, err)
	}
	if Prepend(near, bufio.NewReader(near)) != near {
		t.Error("a connection with nothing buffered is wrapped")
	}
}
