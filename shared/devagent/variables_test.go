// SPDX-License-Identifier: MPL-2.0

package devagent_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"

	"github.com/botscreen/botscreen/shared/devagent/devagenttest"
)

func TestVariablesWithCheckAndSet(t *testing.T) {
	a := devagenttest.Start(t)
	vars := a.Client.Variables()
	v, _, err := vars.Create(&api.Variable{Path: "botscreen/profiles/ada", Items: map[string]string{"k": "1"}}, nil)
	if err != nil || v.ModifyIndex == 0 || v.CreateTime == 0 {
		t.Fatalf("got %+v, %v", v, err)
	}
	var conflict api.ErrCASConflict
	if _, _, err := vars.CheckedCreate(&api.Variable{Path: v.Path, Items: map[string]string{"k": "x"}}, nil); !errors.As(err, &conflict) || conflict.Conflict.ModifyIndex != v.ModifyIndex {
		t.Errorf("create again: %v", err)
	}
	next := *v
	next.Items = map[string]string{"k": "2"}
	updated, _, err := vars.CheckedUpdate(&next, nil)
	if err != nil || updated.CreateIndex != v.CreateIndex || updated.ModifyIndex <= v.ModifyIndex {
		t.Errorf("update: %+v, %v", updated, err)
	}
	next.Items = map[string]string{"k": "3"}
	if _, _, err := vars.CheckedUpdate(&next, nil); !errors.As(err, &conflict) || conflict.Conflict.Items["k"] != "2" {
		t.Errorf("stale update: %v", err)
	}
	if _, err := vars.CheckedDelete(v.Path, v.ModifyIndex, nil); !errors.As(err, &conflict) {
		t.Errorf("stale delete: %v", err)
	}
	list, _, err := vars.PrefixList("botscreen/", nil)
	if err != nil || len(list) != 1 || list[0].Path != v.Path {
		t.Errorf("list: %v, %v", list, err)
	}
	if _, err := vars.CheckedDelete(v.Path, updated.ModifyIndex, nil); err != nil {
		t.Errorf("delete: %v", err)
	}
	if _, _, err := vars.Read(v.Path, nil); !errors.Is(err, api.ErrVariablePathNotFound) {
		t.Errorf("read: %v", err)
	}
	if _, err := vars.Delete("nowhere", nil); err != nil {
		t.Errorf("delete nothing: %v", err)
	}
}

// Two writers with one index: one wins.
func TestCheckAndSetIsAtomic(t *testing.T) {
	a := devagenttest.Start(t)
	v, _, err := a.Client.Variables().Create(&api.Variable{Path: "p", Items: map[string]string{"k": "0"}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	won := make(chan bool, 20)
	for i := range 20 {
		go func() {
			one := *v
			one.Items = map[string]string{"k": fmt.Sprint(i)}
			_, _, err := a.Client.Variables().CheckedUpdate(&one, nil)
			won <- err == nil
		}()
	}
	wins := 0
	for range 20 {
		if <-won {
			wins++
		}
	}
	if wins != 1 {
		t.Errorf("%d writers won", wins)
	}
}

func TestBadVariables(t *testing.T) {
	a := devagenttest.Start(t)
	for path, c := range map[string]struct{ body, want string }{
		"/v1/var/p":       {`{"Items":{}}`, "variable missing required Items object"},
		"/v1/var/p%20q":   {`{"Items":{"k":"v"}}`, `invalid path "p q"`},
		"/v1/var/nomad/x": {`{"Items":{"k":"v"}}`, `only paths at "nomad/jobs"`},
		"/v1/var/q":       {`{"Items":{"k":"` + strings.Repeat("v", 64<<10) + `"}}`, "variables are limited to 64KiB in total size"},
		"/v1/var/r":       {`{`, "unexpected EOF"},
		"/v1/var/s?cas=x": {`{"Items":{"k":"v"}}`, "can not parse cas"},
	} {
		if got := raw(t, a, http.MethodPut, path, c.body); got.status != 400 || !strings.Contains(got.body, c.want) {
			t.Errorf("%s: got %+v, want 400 %s", path, got, c.want)
		}
	}
}
