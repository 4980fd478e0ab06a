// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
)

var _ = add(
	row{id: "T-CAS-1", f: createOverExisting},
	row{id: "T-CAS-2", f: writeBetween},
	row{id: "T-CAS-3", f: savedPlanStale},
	row{id: "T-CAS-4", f: deleteStale},
	row{id: "T-CAS-5", f: lostReply},
	row{id: "T-CAS-6", f: conflictUnreadable},
	row{id: "T-CAS-7", f: twoStates},
)

func createOverExisting(b *bench) {
	b.config(profileOf(`geometry = "1024x768"`))
	b.settle()
	before := b.record("profile/desk")
	b.must("state", "rm", "botscreen_profile.desk")
	b.config(profileOf(`geometry = "640x480"`))
	b.fails(b.tryApply(), `A profile named "desk" already exists in namespace "default"`, "terraform import ADDRESS desk@default")
	if after := b.record("profile/desk"); after.ModifyIndex != before.ModifyIndex {
		b.Errorf("index %d became %d", before.ModifyIndex, after.ModifyIndex)
	}
}

func writeBetween(b *bench) {
	b.config(profileOf())
	b.settle()
	b.config(profileOf(`geometry = "1024x768"`))
	b.proxy.once(putsVariable, func(http.ResponseWriter, *http.Request) bool {
		b.rewrite("profile/desk", map[string]any{"dpi": 120})
		return false
	})
	b.fails(b.tryApply(), `The profile "desk" was changed by someone else since this plan`, "planned against", "cli:ada", "Run plan again")
	if text := b.record("profile/desk").Items["spec"]; !strings.Contains(text, `"dpi":120`) || strings.Contains(text, "1024x768") {
		b.Errorf("their value did not survive: %s", text)
	}
	plan, _ := b.plan()
	b.changesOnly(plan["botscreen_profile.desk"], "geometry", "dpi", "ref")
	b.settle()
}

func savedPlanStale(b *bench) {
	b.config(profileOf())
	b.settle()
	b.config(profileOf(`geometry = "1024x768"`))
	b.plan()
	b.rewrite("profile/desk", map[string]any{"dpi": 120})
	b.fails(b.run("apply", "-no-color", "plan"), `The profile "desk" was changed by someone else since this plan`)
	b.settle()
}

func deleteStale(b *bench) {
	b.config(profileOf())
	b.settle()
	b.proxy.once(deletesVariable, func(http.ResponseWriter, *http.Request) bool {
		b.rewrite("profile/desk", map[string]any{"dpi": 120})
		return false
	})
	b.fails(b.run("destroy", "-no-color", "-auto-approve"), `The profile "desk" was changed by someone else since this plan`)
	if b.record("profile/desk") == nil {
		b.Error("the record was deleted")
	}
	b.destroy()
}

// lostReply: the write happened, its answer was lost and the next try meets it.
func lostReply(b *bench) {
	b.config(profileOf())
	b.proxy.once(putsVariable, func(w http.ResponseWriter, r *http.Request) bool {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			b.Error(err)
		}
		r.Body = io.NopCloser(strings.NewReader(string(body)))
		again, err := http.NewRequest(http.MethodPut, "http://"+b.agent.addr+r.URL.RequestURI(), strings.NewReader(string(body)))
		if err != nil {
			b.Error(err)
			return false
		}
		again.Header = r.Header.Clone()
		resp, err := http.DefaultClient.Do(again)
		if err != nil {
			b.Error(err)
			return false
		}
		_ = resp.Body.Close()
		return false // the same request again: it meets its own record
	})
	b.settle()
	b.config(profileOf(`dpi = 120`))
	b.settle()
}

// conflictUnreadable is Nomad's answer to a token that may write and not read.
func conflictUnreadable(b *bench) {
	b.config(profileOf())
	b.settle()
	b.config(profileOf(`dpi = 120`))
	b.proxy.once(putsVariable, func(w http.ResponseWriter, _ *http.Request) bool {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusConflict)
		_, _ = io.WriteString(w, `{"Namespace":"default","Path":"x","ModifyIndex":99999,"CreateIndex":1}`)
		return true
	})
	o := b.tryApply()
	b.fails(o, `The profile "desk" was changed by someone else since this plan`, "index 99999")
	if strings.Contains(o.text, ", by ") {
		b.Errorf("it names somebody: %s", o.raw)
	}
}

// twoStates write the same record at the same time: exactly one wins.
func twoStates(b *bench) {
	b.config(profileOf())
	other := *b
	other.dir = b.TempDir()
	for _, name := range []string{"cli.rc", "main.tf"} {
		text, err := os.ReadFile(filepath.Join(b.dir, name))
		if err != nil {
			b.Fatal(err)
		}
		write(b.T, filepath.Join(other.dir, name), string(text))
	}
	// Both wait with their write until the other one is there.
	var here atomic.Int32
	both := make(chan struct{})
	b.proxy.hook(func(_ http.ResponseWriter, r *http.Request) bool {
		if !putsVariable(r) {
			return false
		}
		if here.Add(1) == 2 {
			close(both)
		}
		select {
		case <-both:
		case <-r.Context().Done(): // the other one never came
		}
		return false
	})
	results := make(chan outcome, 2)
	for _, one := range []*bench{b, &other} {
		go func() { results <- one.tryApply() }()
	}
	first, second := <-results, <-results
	if first.code+second.code != 1 {
		b.Fatalf("codes %d and %d\n%s\n%s", first.code, second.code, first.raw, second.raw)
	}
	lost := first
	if second.code == 1 {
		lost = second
	}
	b.says(lost, "already exists")
}
