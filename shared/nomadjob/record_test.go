// SPDX-License-Identifier: MPL-2.0

package nomadjob

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/nomad/api"
)

func wanted() Wanted {
	return Wanted{
		Namespace: "default", Name: "desk", JobID: "botscreen-desk", ProfileName: "desk", ProfileRef: "desk@0123456789ab",
		Profile: DefaultProfile(), Placement: DefaultPlacement(),
	}
}

// One record has one ref, whoever wrote it and in whatever spelling.
func TestRefOfEqualRecords(t *testing.T) {
	base := Record{Kind: ProfileKind, Name: "desk", Spec: json.RawMessage(`{"idle_stop":"30m","geometry":"1440x900"}`)}
	for _, same := range []string{`{}`, `{"geometry":"1440x900","glx":false,"env":null}`, `{ "idle_stop": "1800s", "labels": {"a": "b"}, "description": "x" }`} {
		other := base
		other.Spec = json.RawMessage(same)
		if other.Ref() != base.Ref() {
			t.Errorf("%s: %s, want %s", same, other.Ref(), base.Ref())
		}
	}
	for _, different := range []string{`{"geometry":"800x600"}`, `{"unknown_option":1}`} {
		other := base
		other.Spec = json.RawMessage(different)
		if other.Ref() == base.Ref() {
			t.Errorf("%s has the same ref", different)
		}
	}
}

// A program that knows more options gives the records of an older one the refs they had: an
// upgrade restarts nothing. These are what the first version gave.
func TestRefOutlivesNewOptions(t *testing.T) {
	for _, tc := range []struct {
		kind       Kind
		spec, want string
	}{
		{ProfileKind, `{}`, "desk@44136fa355b3"},
		{ProfileKind, `{"geometry":"800x600","memory":300,"docker":{"network_mode":"bridge"}}`, "desk@65f322ea01e4"},
		{PlacementKind, `{"isolation":"host","allow_unsandboxed_host":true}`, "desk@99d67ee90da4"},
	} {
		rec := Record{Kind: tc.kind, Name: "desk", Spec: json.RawMessage(tc.spec)}
		if rec.Ref() != tc.want {
			t.Errorf("%s: %s, want %s", tc.spec, rec.Ref(), tc.want)
		}
	}
	// Only what was said is in it: the hash of the very members.
	sum := sha256.Sum256([]byte(`{"docker":{"network_mode":"bridge"},"geometry":"800x600","memory":300}`))
	rec := Record{Kind: ProfileKind, Name: "desk", Spec: json.RawMessage(`{"memory":300,"geometry":"800x600","docker":{"network_mode":"bridge","shm_size_mb":1024}}`)}
	if want := "desk@" + hex.EncodeToString(sum[:6]); rec.Ref() != want {
		t.Errorf("%s, want %s", rec.Ref(), want)
	}
}

func FuzzRecord(f *testing.F) {
	for _, seed := range []string{`{}`, `{"geometry":"1x1"}`, `[]`, `null`, `{"datacenters":["b","a"]}`, `{`, `{"memory":1e400}`} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, spec string) {
		for _, kind := range []Kind{ProfileKind, PlacementKind, ImageKind} {
			v := &api.Variable{Path: "x", Items: map[string]string{itemSchema: "1", itemSpec: spec}}
			rec, err := fromVariable(kind, "x", v)
			if err != nil {
				continue
			}
			ref := rec.Ref()
			if name, hash, ok := ParseRef(ref); !ok || name != "x" || len(hash) != 12 {
				t.Fatalf("ref %q", ref)
			}
			rec.Spec = Normal(kind, rec.Spec)
			if rec.Ref() != ref {
				t.Fatalf("%s: the normal form %s has another ref", spec, rec.Spec)
			}
		}
	})
}

func FuzzParseRef(f *testing.F) {
	for _, seed := range []string{"desk", "desk@0123456789ab", "desk@x", "@", "../x@0123456789ab", ""} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		name, hash, ok := ParseRef(text)
		if ok && text != name && text != name+"@"+hash {
			t.Fatalf("%q is %q and %q", text, name, hash)
		}
	})
}

// Host and its opt-in: refused wherever host could be chosen, accepted only by name.
func TestHostNeedsItsOptIn(t *testing.T) {
	for _, tc := range []struct {
		isolation string
		order     []string
		allowed   bool
		refused   bool
	}{
		{"auto", []string{"docker"}, false, false},
		{"host", []string{"docker"}, false, true},
		{"host", []string{"docker"}, true, false},
		{"auto", []string{"docker", "host"}, false, true},
		{"auto", []string{"docker", "host"}, true, false},
		{"docker", []string{"host"}, false, false},
	} {
		p := DefaultPlacement()
		p.Isolation, p.IsolationOrder, p.AllowUnsandboxedHost = tc.isolation, tc.order, tc.allowed
		err := p.Validate("p")
		if (err != nil) != tc.refused || tc.refused && !strings.Contains(err.Error(), OptIn+" = true") {
			t.Errorf("%+v: %v", tc, err)
		}
	}
	if DefaultPlacement().WantsHost() {
		t.Error("the default placement wants the host")
	}
}

// A rendered job is one screen on nodes that can run it, and never says host by itself.
func TestRender(t *testing.T) {
	job := Render(wanted())
	if !IsScreen(job) || *job.Type != api.JobTypeService || *job.TaskGroups[0].Count != 1 {
		t.Errorf("job %+v", job)
	}
	if c := job.Constraints[0]; c.Operand != api.ConstraintSetContainsAny || c.RTarget != "docker,apptainer" {
		t.Errorf("constraint %+v", c)
	}
	if got := job.TaskGroups[0].Tasks[0].Config["isolation"]; got != "auto" {
		t.Errorf("isolation %v", got)
	}
	// A node whose own order is another one, or names the host, has to hear this one.
	if got := job.TaskGroups[0].Tasks[0].Config["isolation_order"]; !reflect.DeepEqual(got, []string{"docker", "apptainer"}) {
		t.Errorf("isolation_order %v", got)
	}
	w := wanted()
	w.Placement.IsolationOrder = []string{"apptainer"}
	if c := Render(w).TaskGroups[0].Tasks[0].Config; c["isolation"] != "apptainer" || c["isolation_order"] != nil {
		t.Errorf("an order of one: %v", c)
	}
	w = wanted()
	w.Profile.IdleAction = "exit"
	if *Render(w).Type != api.JobTypeBatch {
		t.Error("a desktop that exits is no batch job")
	}
	w.Profile.SecretEnv = map[string]string{"KEY": "a/b#c"}
	if text := *Render(w).TaskGroups[0].Tasks[0].Templates[0].EmbeddedTmpl; text != "KEY={{ with nomadVar \"a/b\" }}{{ .c.Value | toJSON }}{{ end }}\n" {
		t.Errorf("template %q", text)
	}
}

// What Nomad fills in is no drift; what somebody changed is, and an environment's values
// are not shown.
func TestDrift(t *testing.T) {
	job, found := Render(wanted()), Render(wanted())
	found.Canonicalize()
	if lines, err := Drift(job, found); err != nil || len(lines) != 0 {
		t.Fatalf("%v, %v", lines, err)
	}
	task := found.TaskGroups[0].Tasks[0]
	task.Config["geometry"], task.Config["extra"] = "1x1", true
	task.Env = map[string]string{"TOKEN": "CANARY"}
	count := 2
	found.TaskGroups[0].Count = &count
	lines, err := Drift(job, found)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		`TaskGroups[0].Count: 2 → 1`, `TaskGroups[0].Tasks[0].Config.geometry: "1x1" → "1440x900"`,
		`TaskGroups[0].Tasks[0].Config.extra: true → none`, `TaskGroups[0].Tasks[0].Env.TOKEN: "set" → none`,
	} {
		if !slices.Contains(lines, want) {
			t.Errorf("no %q in %q", want, lines)
		}
	}
	if strings.Contains(strings.Join(lines, "\n"), "CANARY") {
		t.Errorf("a value of the environment is shown: %q", lines)
	}
}

// A profile's doors become blocks of the job, a port and files that the task fetches; what
// is as the driver has it anyway is not in the job.
func TestRenderDoors(t *testing.T) {
	for _, name := range []string{"viewer", "agent_socket", "browser", "docker", "apptainer"} {
		if block, ok := Render(wanted()).TaskGroups[0].Tasks[0].Config[name]; ok {
			t.Errorf("%s by default: %v", name, block)
		}
	}
	w := wanted()
	w.Profile.Viewer = &Viewer{Port: "people", StaticPort: 8443, HostNetwork: "lan", TLSCert: "a/b#cert", TLSKey: "a/b#key"}
	w.Profile.AgentSocket.UIDs = []int64{1000}
	w.Profile.Browser.Args = []string{"--lang=de"}
	w.Profile.Docker.Labels = map[string]string{"team": "x"}
	w.Profile.Apptainer.Writable = true
	if err := w.Profile.Validate("desk"); err != nil {
		t.Fatal(err)
	}
	g := Render(w).TaskGroups[0]
	want := map[string][]map[string]any{
		"viewer":       {{"port": "people", "tls_cert": "local/viewer-cert.pem", "tls_key": "secrets/viewer-key.pem"}},
		"agent_socket": {{"mode": "0660", "uids": []int64{1000}}},
		"browser":      {{"enabled": true, "sandbox": true, "args": []string{"--lang=de"}}},
		"docker":       {{"network_mode": "none", "shm_size_mb": int64(1024), "pids_limit": int64(2048), "labels": []map[string]string{{"team": "x"}}}},
		"apptainer":    {{"writable": true, "tmpfs_mb": int64(1024)}},
	}
	for name, block := range want {
		if got := g.Tasks[0].Config[name]; !reflect.DeepEqual(got, block) {
			t.Errorf("%s: %v, want %v", name, got, block)
		}
	}
	if port := g.Networks[0].ReservedPorts; len(port) != 1 || port[0] != (api.Port{Label: "people", Value: 8443, HostNetwork: "lan"}) {
		t.Errorf("ports %+v", port)
	}
	var files []string
	for _, one := range g.Tasks[0].Templates {
		files = append(files, *one.DestPath+" "+*one.EmbeddedTmpl)
	}
	if text := strings.Join(files, ""); text != "local/viewer-cert.pem {{ with nomadVar \"a/b\" }}{{ .cert.Value }}{{ end }}\n"+
		"secrets/viewer-key.pem {{ with nomadVar \"a/b\" }}{{ .key.Value }}{{ end }}\n" {
		t.Errorf("templates %q", text)
	}
	w.Profile.Viewer = &Viewer{Port: "viewer"}
	if g := Render(w).TaskGroups[0]; len(g.Networks[0].DynamicPorts) != 1 || len(g.Tasks[0].Templates) != 0 {
		t.Errorf("without TLS: %+v, %d templates", g.Networks[0], len(g.Tasks[0].Templates))
	}
}
