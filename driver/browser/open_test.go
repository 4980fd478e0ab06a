// SPDX-License-Identifier: MPL-2.0

package browser

import (
	"bufio"
	"encoding/json"
	"fmt"
	"net"
	"sync"
	"testing"

	"github.com/botscreen/botscreen/shared/cdp"
)

// scripted is a browser that answers each method in its turn with what is given for it, and
// with nothing much where nothing is. A string is a refusal.
func scripted(t *testing.T, answers map[string][]any) (i *instance, asked func(method string) int) {
	t.Helper()
	ours, theirs := net.Pipe()
	i = &instance{mux: cdp.New(ours)}
	var mu sync.Mutex // guards count: a detach is asked for behind the caller
	count := map[string]int{}
	next := func(method string) (turn int) {
		mu.Lock()
		defer mu.Unlock()
		turn = count[method]
		count[method]++
		return turn
	}
	ended := make(chan struct{})
	t.Cleanup(func() { _ = i.mux.Close(); <-ended })
	go func() {
		defer close(ended)
		in := bufio.NewReader(theirs)
		for {
			text, err := in.ReadBytes(0)
			if err != nil {
				return
			}
			var call struct {
				ID        int
				Method    string
				SessionID string
			}
			if err := json.Unmarshal(text[:len(text)-1], &call); err != nil {
				t.Error(err)
				return
			}
			answer := map[string]any{"id": call.ID, "result": struct{}{}}
			if call.SessionID != "" {
				answer["sessionId"] = call.SessionID
			}
			if turn := next(call.Method); turn < len(answers[call.Method]) {
				switch a := answers[call.Method][turn].(type) {
				case string:
					delete(answer, "result")
					answer["error"] = map[string]any{"code": -32602, "message": a}
				default:
					answer["result"] = a
				}
			}
			text, _ = json.Marshal(answer)
			if _, err := theirs.Write(append(text, 0)); err != nil {
				return
			}
		}
	}()
	return i, func(method string) int {
		mu.Lock()
		defer mu.Unlock()
		return count[method]
	}
}

type fields map[string]any

// The first page is asked for again when the browser's own navigation, to the blank page that
// it comes up with, took its place; a download, which is aborted too, is not fetched twice.
func TestFirstPageAborted(t *testing.T) {
	for name, test := range map[string]struct {
		answers []any
		want    int
	}{
		"at once":     {[]any{fields{"loaderId": "l"}}, 1},
		"aborted":     {[]any{fields{"errorText": aborted}, fields{"loaderId": "l"}}, 2},
		"always":      {[]any{fields{"errorText": aborted}, fields{"errorText": aborted}, fields{}}, navigateTries},
		"a download":  {[]any{fields{"errorText": aborted, "isDownload": true}}, 1},
		"unreachable": {[]any{fields{"errorText": "net::ERR_CONNECTION_REFUSED"}}, 1},
	} {
		i, asked := scripted(t, map[string][]any{
			"Target.getTargets":     {fields{"targetInfos": []any{fields{"targetId": "a", "type": "page", "url": blank}}}},
			"Target.attachToTarget": {fields{"sessionId": "s"}},
			"Page.navigate":         test.answers,
		})
		if err := i.show(t.Context(), "http://example.com/"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if got := asked("Page.navigate"); got != test.want {
			t.Errorf("%s: asked %d times, want %d", name, got, test.want)
		}
	}
}

// A download's tab is closed again before it can be brought to the front, and that is no
// failure; any other refusal is.
func TestDownloadOpened(t *testing.T) {
	for refusal, good := range map[string]bool{"No target with given id found": true, "Not allowed": false} {
		i, _ := scripted(t, map[string][]any{
			"Target.createTarget":   {fields{"targetId": "a"}},
			"Target.activateTarget": {refusal},
		})
		if err := i.add(t.Context(), "http://example.com/report"); (err == nil) != good {
			t.Error(fmt.Errorf("%q: %w", refusal, err))
		}
	}
}
