// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/nomad/api"
)

var _ = add(
	row{id: "T-NET-1", f: unreachable},
	row{id: "T-NET-2", f: unreachableAtPlan},
	row{id: "T-GONE-3", f: notGoneButAway},
	row{id: "T-ENV", f: environment},
	row{id: "T-ACL", f: capabilities, acl: true},
	row{id: "T-ACL/403", f: refused},
	row{id: "T-UNK-1", f: unknownInputs},
	row{id: "T-UNK-2", f: unknownAddress},
	row{id: "T-UNK-3", f: unknownInside},
	row{id: "TFM-08", f: canaries},
)

// at is a provider block with an address and few tries.
func at(address string, lines ...string) string {
	return fmt.Sprintf("provider \"botscreen\" {\n  address = %q\n  variable_prefix = \"PREFIX\"\n  request_timeout = \"2s\"\n  max_retries = 1\n  %s\n}\n",
		address, strings.Join(lines, "\n  "))
}

// unreachable: whatever is wrong on the way, the resource stays in the state.
func unreachable(b *bench) {
	b.config(profileOf())
	b.settle()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		b.Fatal(err)
	}
	defer func() { _ = silent.Close() }()
	for name, tc := range map[string]struct {
		address string
		hook    func(w http.ResponseWriter, r *http.Request) bool
		want    []string
	}{
		"refused": {"http://127.0.0.1:1", nil, []string{"Nomad at http://127.0.0.1:1 cannot be reached", "connection refused", "State was not changed."}},
		"silent":  {"http://" + silent.Addr().String(), nil, []string{"cannot be reached", "no answer in time", "State was not changed."}},
		"no name": {"http://nomad.invalid:4646", nil, []string{"Nomad at http://nomad.invalid:4646 cannot be reached"}},
		"502": {b.proxy.URL, func(w http.ResponseWriter, _ *http.Request) bool {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(http.StatusBadGateway)
			_, _ = io.WriteString(w, "<html>bad gateway</html>")
			return true
		}, []string{"does not look like Nomad", "it answered 502 with a page"}},
		"foreign 404": {b.proxy.URL, func(w http.ResponseWriter, r *http.Request) bool {
			http.NotFound(w, r)
			return true
		}, []string{"does not look like Nomad", "it answered 404 to /v1/var/", "State was not changed."}},
		"404 of another program that knows Nomad's words": {b.proxy.URL, func(w http.ResponseWriter, r *http.Request) bool {
			if r.URL.Path == "/v1/status/leader" {
				http.NotFound(w, r)
				return true
			}
			http.Error(w, "variable not found", http.StatusNotFound)
			return true
		}, []string{"does not look like Nomad", "/v1/status/leader"}},
	} {
		b.proxy.hook(tc.hook)
		b.config(at(tc.address) + profileOf())
		start := time.Now()
		o := b.run("plan", "-no-color")
		b.fails(o, tc.want...)
		if took := time.Since(start); took > patience {
			b.Errorf("%s: took %s", name, took)
		}
		b.fails(b.run("destroy", "-no-color", "-auto-approve"), tc.want[0])
	}
	b.proxy.hook(nil)
	b.config(profileOf())
	b.empty()
}

// unreachableAtPlan: a new resource can be planned without a cluster.
func unreachableAtPlan(b *bench) {
	b.config(at("http://127.0.0.1:1") + profileOf() + `
resource "botscreen_screen" "s" {
  name    = "desk"
  profile = botscreen_profile.desk.ref
}
`)
	plan, o := b.plan()
	b.does(plan, "botscreen_screen.s", "create")
	b.says(o, "Where this desktop can run was not checked", "cannot be reached", "plan_checks")
	if n := strings.Count(o.text, "Warning: Where this desktop can run"); n != 1 {
		b.Errorf("%d warnings", n)
	}
}

// notGoneButAway: "404" in a name and an agent that is away are no deletion.
func notGoneButAway(b *bench) {
	b.config(`
resource "botscreen_profile" "x" {
  name = "x-404"
}
`)
	b.settle()
	b.env = append(b.env, "NOMAD_ADDR=http://127.0.0.1:1")
	b.fails(b.run("plan", "-no-color"), "cannot be reached")
	b.has("botscreen_profile.x", "name", "x-404")
}

// environment: NOMAD_NAMESPACE and NOMAD_REGION are of whatever Terraform runs in.
func environment(b *bench) {
	b.env = append(b.env, "NOMAD_NAMESPACE=nonsense", "NOMAD_REGION=nowhere")
	b.config(profileOf())
	b.settle()
	b.has("botscreen_profile.desk", "namespace", "default")
	// The block wins over the environment, also where it says "nobody".
	b.config(at(b.proxy.URL, `secret_id = "11111111-2222-3333-4444-555555555555"`) + profileOf())
	b.fails(b.run("plan", "-no-color"), "Nomad")
	b.config(at(b.proxy.URL) + profileOf())
	b.empty()
	b.proxy.hook(func(w http.ResponseWriter, r *http.Request) bool { // a proxy that wants a password
		user, password, _ := r.BasicAuth()
		if user == "ada" && password == "let me: in" {
			return false
		}
		w.WriteHeader(http.StatusUnauthorized)
		return true
	})
	b.env = append(b.env, "NOMAD_HTTP_AUTH=ada:let me: in")
	b.empty()
	b.config(at(b.proxy.URL, `http_auth = "bob"`) + profileOf())
	if o := b.run("plan", "-no-color"); o.code != 1 {
		b.Errorf("the environment's password in the place of the block's: code %d\n%s", o.code, o.raw)
	}
	b.proxy.hook(nil)
	b.env = append(b.env, "NOMAD_ADDR=")
	b.config(profileOf())
	b.fails(b.run("plan", "-no-color"), "No Nomad address", "NOMAD_ADDR")
}

const screenPolicy = `namespace "default" {
  capabilities = [%s]
  variables {
    path "*" {
      capabilities = [%s]
    }
  }
}
`

// withPolicy makes a token that may do only that.
func (b *bench) withPolicy(name, jobs, variables string) string {
	b.Helper()
	acl, policy := b.agent.api, b.policy(name, jobs, variables)
	token, _, err := acl.ACLTokens().Create(&api.ACLToken{Name: policy, Type: "client", Policies: []string{policy}}, nil)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = acl.ACLTokens().Delete(token.AccessorID, nil) })
	return token.SecretID
}

// policy makes a policy with such rights on jobs and on this test's variables.
func (b *bench) policy(name, jobs, variables string) string {
	b.Helper()
	acl, policy := b.agent.api.ACLPolicies(), name+"-"+b.prefix
	if _, err := acl.Upsert(&api.ACLPolicy{Name: policy, Rules: fmt.Sprintf(screenPolicy, jobs, variables)}, nil); err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _, _ = acl.Delete(policy, nil) })
	return policy
}

// capabilities: each right that is missing is named.
func capabilities(b *bench) {
	whole := b.token
	b.config(profileOf())
	b.token = b.withPolicy("readonly", `"list-jobs", "read-job"`, `"list", "read"`)
	b.fails(b.tryApply(), "Nomad refused: the token may not write variables under "+b.prefix+"/profile", `namespace "default"`, "lacks: write")
	b.token = whole
	b.settle()
	b.token = b.withPolicy("none", `"list-jobs", "read-job"`, `"list"`)
	b.fails(b.run("plan", "-no-color"), "Nomad refused: the token may not read variables")
	b.has("botscreen_profile.desk", "name", "desk")
	b.token = b.withPolicy("keeper", `"list-jobs", "read-job"`, `"list", "read", "write"`)
	b.fails(b.run("destroy", "-no-color", "-auto-approve"), "Nomad refused: the token may not delete variables", "lacks: destroy")
	b.token = b.withPolicy("nojobs", `"read-job"`, `"list", "read", "write", "destroy"`)
	b.fails(b.run("destroy", "-no-color", "-auto-approve"), "list the jobs that use it", "list-jobs")
	b.token = b.withPolicy("planner", `"list-jobs", "read-job"`, `"list", "read", "write", "destroy"`)
	b.config(desktopOf(b, "800x600"))
	b.fails(b.tryApply(), "Nomad refused: the token may not submit the job", "submit-job")
	// plan-job is what a token of a plan in CI needs to check where a screen can run, and no more.
	b.token = b.withPolicy("ci", `"list-jobs", "read-job", "plan-job"`, `"list", "read"`)
	if _, o := b.plan(); strings.Contains(o.text, "was not checked") {
		b.Errorf("plan-job is not enough for the check:\n%s", o.raw)
	}
	b.token = b.withPolicy("unchecked", `"list-jobs", "read-job"`, `"list", "read"`)
	_, o := b.plan()
	b.says(o, "Where this desktop can run was not checked", "plan-job")
	b.config(profileOf() + "data \"botscreen_nodes\" \"all\" {}\n")
	b.fails(b.run("plan", "-no-color"), "Nomad refused: the token may not list nodes", `policy = "read"`)
	b.config(profileOf() + "data \"botscreen_screen\" \"x\" {\n  name = \"nobody\"\n}\n")
	b.token = b.withPolicy("blind", `"list-jobs"`, `"list", "read"`)
	b.fails(b.run("plan", "-no-color"), "Nomad refused: the token may not read the job botscreen-nobody", "read-job")
	b.config(profileOf())
	for _, bad := range []string{"not-a-uuid", "11111111-2222-3333-4444-555555555555"} {
		b.token = bad
		b.fails(b.run("plan", "-no-color"), "unknown, revoked or expired")
	}
	b.token = whole
	b.destroy()
}

// refused is a 403 on every agent.
func refused(b *bench) {
	b.config(profileOf())
	b.settle()
	b.proxy.hook(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusForbidden)
		_, _ = io.WriteString(w, "Permission denied")
		return true
	})
	b.fails(b.run("plan", "-no-color"), "Nomad refused: the token may not read variables", "capabilities")
	b.proxy.hook(nil)
	b.empty() // 403 in the place of 404 has dropped nothing
}

func unknownInputs(b *bench) {
	conf := func(salt string) string {
		return fmt.Sprintf(`
resource "terraform_data" "size" {
  input = %q
}
`, salt) + profileOf("geometry = terraform_data.size.output") + `
resource "botscreen_placement" "p" {
  name        = "p"
  constraints = [{ attribute = "$${attr.x}", value = terraform_data.size.output }]
}
resource "botscreen_screen" "s" {
  name          = "PREFIX"
  profile       = botscreen_profile.desk.ref
  placement     = botscreen_placement.p.ref
  desired_state = "stopped"
}
`
	}
	b.config(conf("800x600"))
	plan, _ := b.plan()
	if plan["botscreen_profile.desk"].AfterUnknown["ref"] != true || plan["botscreen_screen.s"].AfterUnknown["profile"] != true {
		b.Errorf("ref is known although the geometry is not: %v", plan["botscreen_profile.desk"].AfterUnknown)
	}
	b.settle()
	b.config(conf("1024x768"))
	plan, _ = b.plan()
	b.does(plan, "botscreen_screen.s", "update")
	b.settle()
	b.has("botscreen_screen.s", "status", "stopped")
	b.destroy()
}

// unknownAddress: the cluster is made in the same apply.
func unknownAddress(b *bench) {
	b.config(`
resource "terraform_data" "cluster" {
  input = "` + b.proxy.URL + `"
}
provider "botscreen" {
  address         = terraform_data.cluster.output
  variable_prefix = "PREFIX"
}
` + profileOf() + `
resource "botscreen_screen" "s" {
  name          = "PREFIX"
  profile       = botscreen_profile.desk.ref
  desired_state = "stopped"
}
`)
	b.plan()
	b.settle()
	b.destroy()
}

// unknownInside: no validator fires on what is not known yet.
func unknownInside(b *bench) {
	b.config(`
resource "terraform_data" "word" {
  input = "docker"
}
locals {
  word = terraform_data.word.output
}
resource "botscreen_placement" "p" {
  for_each               = toset(["a", "b"])
  name                   = each.key
  isolation              = local.word
  isolation_order        = [local.word]
  datacenters            = [local.word]
  node_classes           = [local.word, "x"]
  allow_unsandboxed_host = local.word == "host"
  constraints            = [{ attribute = local.word, operator = "=", value = local.word }]
}
resource "botscreen_profile" "p" {
  name       = "p"
  memory     = length(local.word) * 100
  memory_max = 9000
  env        = { A = local.word }
  secret_env = { B = "agents/${local.word}#key" }
}
`)
	b.plan()
	b.settle()
	b.destroy()
}

// canaries: no secret gets anywhere but where it must.
func canaries(b *bench) {
	canary := "CANARY-1-5a1b0c"
	log := filepath.Join(b.dir, "trace.log")
	b.env = append(b.env, "TF_LOG=TRACE", "TF_LOG_PATH="+log, "NOMAD_HTTP_AUTH=someone:"+canary)
	b.config(fmt.Sprintf(`provider "botscreen" {
  address         = %q
  variable_prefix = "PREFIX"
  headers         = { X-Proxy-Key = %q }
}
`, b.proxy.URL, canary+"-header") + profileOf(`secret_env = { KEY = "agents/openai#api_key" }`))
	o := b.apply()
	_, p := b.plan()
	var state any
	b.show(&state)
	for name, text := range map[string]string{"apply": o.raw, "plan": p.raw, "state": fmt.Sprint(state), "record": fmt.Sprint(b.record("profile/desk"))} {
		if strings.Contains(text, canary) || strings.Contains(text, b.token) {
			b.Errorf("a secret in the %s", name)
		}
	}
	trace, err := os.ReadFile(log)
	if err != nil || len(trace) < 1000 {
		b.Fatalf("no trace: %v, %d bytes", err, len(trace))
	}
	if strings.Contains(string(trace), b.token) || strings.Contains(string(trace), canary) {
		b.Error("a secret in the trace")
	}
	// The secret itself written for its name is refused and not repeated.
	b.config(profileOf(fmt.Sprintf("secret_env = { KEY = %q }", "sk "+canary)))
	bad := b.run("plan", "-no-color")
	b.fails(bad, "never the secret itself")
	// Terraform quotes the line of the configuration; the provider's own words must not.
	if _, own, _ := strings.Cut(bad.raw, "`secret_env`"); strings.Contains(own, canary) {
		b.Errorf("the provider repeats it: %s", own)
	}
}
