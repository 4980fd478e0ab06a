// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
)

var _ = add(
	row{id: "T-PLC-1", f: hostRefused},
	row{id: "T-PLC-2", f: noSandbox},
	row{id: "T-PLC-3", f: sandboxGone},
	row{id: "T-PLC-4", f: driverRefuses, desktop: true},
	row{id: "T-BAD", f: badInput},
)

func (b *bench) validateFails(config string, words ...string) {
	b.Helper()
	b.config(config)
	b.env = append(b.env, "NOMAD_ADDR=http://127.0.0.1:1") // offline
	b.fails(b.run("validate", "-no-color"), words...)
}

func hostRefused(b *bench) {
	want := []string{"Refusing to run desktops directly on the host", "allow_unsandboxed_host = true"}
	b.validateFails("resource \"botscreen_placement\" \"p\" {\n name = \"p\"\n isolation = \"host\"\n}\n", want...)
	b.validateFails("resource \"botscreen_placement\" \"p\" {\n name = \"p\"\n isolation_order = [\"docker\", \"host\"]\n}\n", want...)
	b.config("resource \"botscreen_placement\" \"p\" {\n name = \"p\"\n isolation = \"host\"\n allow_unsandboxed_host = true\n}\n")
	b.must("validate", "-no-color")
}

const sandboxed = `
resource "botscreen_placement" "p" {
  name            = "p"
  isolation_order = ["apptainer"]
}
resource "botscreen_profile" "desk" {
  name   = "PREFIX"
  memory = 300
}
resource "botscreen_screen" "s" {
  name      = "PREFIX"
  profile   = botscreen_profile.desk.ref
  placement = botscreen_placement.p.ref
}
`

func checks(word string) string {
	return "provider \"botscreen\" {\n  variable_prefix = \"PREFIX\"\n  plan_checks = \"" + word + "\"\n}\n"
}

// noSandbox: this node has no apptainer screens, and nothing lands on the host instead.
func noSandbox(b *bench) {
	refusal := []string{"No node can host this desktop in a sandbox", "Nothing was started on the host", "allow_unsandboxed_host = true on placement p"}
	b.config(checks("error") + sandboxed)
	b.fails(b.run("plan", "-no-color"), refusal...)
	b.config(checks("warn") + sandboxed)
	_, o := b.plan()
	b.says(o, append(refusal, "Warning:")...)
	b.config(checks("off") + sandboxed)
	if _, o := b.plan(); strings.Contains(o.text, "Warning: No node") {
		b.Errorf("checked although off: %s", o.raw)
	}
	b.fails(b.tryApply(), refusal...)
	b.leavesNoJob("botscreen-" + b.prefix)
}

// leavesNoJob expects that a create which failed has removed its job, and that nothing of
// it ever ran.
func (b *bench) leavesNoJob(id string) {
	b.Helper()
	client := b.agent.api
	if _, _, err := client.Jobs().Info(id, nil); err == nil || !strings.Contains(err.Error(), "job not found") {
		b.Errorf("job %s is left: %v", id, err)
	}
	if all, _, err := client.Jobs().Allocations(id, true, nil); err == nil {
		for _, a := range all {
			if a.ClientStatus == "running" {
				b.Errorf("allocation %s runs", a.ID)
			}
		}
	}
	if _, held := b.state()["botscreen_screen.s"]; held {
		b.Error("the state has the screen")
	}
}

// sandboxGone: the plan was fine, at the apply no node has what it wants. The agent's node
// never had it; the plan's check is answered as of a node that had.
func sandboxGone(b *bench) {
	b.config(checks("error") + sandboxed)
	b.proxy.hook(func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasSuffix(r.URL.Path, "/plan") {
			return false
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"FailedTGAllocs":null}`))
		return true
	})
	b.plan()
	b.fails(b.run("apply", "-no-color", "plan"), "No node can host this desktop in a sandbox", "Nothing was started on the host")
	b.leavesNoJob("botscreen-" + b.prefix)
}

// driverRefuses: the scheduler let a screen come to a node that has no sandbox, as one that
// has just lost it. The driver's own word is in the error. This node's order begins with the
// host, which the screen has not allowed.
func driverRefuses(b *bench) {
	b.config(checks("off") + strings.Replace(sandboxed, `["apptainer"]`, `["docker", "apptainer"]`, 1))
	id := "botscreen-" + b.prefix
	var onHost atomic.Bool
	b.proxy.hook(func(_ http.ResponseWriter, r *http.Request) bool {
		if putsJob(r) {
			b.withoutConstraints(r)
		}
		if all, _, err := b.agent.api.Jobs().Allocations(id, true, nil); err == nil {
			for _, a := range all {
				if state := a.TaskStates["desktop"]; state != nil {
					for _, e := range state.Events {
						if e.Details["botscreen.isolation"] == "host" {
							onHost.Store(true)
						}
					}
				}
			}
		}
		return false
	})
	b.fails(b.tryApply(), "The desktop", "did not start", "isolation_refused: no isolation of the job's isolation_order (docker, apptainer) can be had", "allow_unsandboxed_host", "the job was removed again")
	b.proxy.hook(nil)
	if onHost.Load() {
		b.Error("it ran on the host")
	}
	b.leavesNoJob(id)
	b.destroy()
}

// withoutConstraints lets a job that is being registered go to any node.
func (b *bench) withoutConstraints(r *http.Request) {
	b.Helper()
	text, err := io.ReadAll(r.Body)
	if err != nil {
		b.Error(err)
		return
	}
	var doc map[string]any
	if err := json.Unmarshal(text, &doc); err != nil {
		b.Error(err)
		return
	}
	job, _ := doc["Job"].(map[string]any)
	if constraints, _ := job["Constraints"].([]any); len(constraints) == 0 {
		b.Errorf("the job asks for no isolation: %v", job["Constraints"])
	}
	delete(job, "Constraints")
	if text, err = json.Marshal(doc); err != nil {
		b.Error(err)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	r.Header.Set("Content-Length", strconv.Itoa(len(text)))
}

// badInput is refused at validate, offline, each fault at its attribute.
func badInput(b *bench) {
	for config, words := range map[string][]string{
		profileOf(`geometry = "0x0"`, `depth = 23`, `dpi = 5000`, `memory = -1`, `look = "shiny"`, `keyboard_layout = "us; rm"`): {
			"`geometry` must be WIDTHxHEIGHT", "it is \"0x0\"", "`depth` must be 16 or 24", "`dpi`", "`memory`", "`look`", "`keyboard_layout`"},
		profileOf(`geometry = "99999x99999"`):                    {"`geometry`"},
		profileOf(`memory = 2048`, `memory_max = 1024`):          {"`memory_max`", "at least memory (2048 MiB)"},
		profileOf(`env = { NOMAD_TOKEN = "x", DISPLAY = ":1" }`): {"NOMAD_TOKEN", "DISPLAY", "is set by Nomad or by the desktop itself"},
		profileOf(`viewer = { static_port = 70000, tls_cert = "-----BEGIN" }`, `agent_socket = { mode = "0666" }`, `docker = { network_mode = "host", shm_size_mb = 1 }`, `apptainer = { tmpfs_mb = 1 }`): {
			"`viewer.static_port`", "`viewer.tls_key` must be given together", "never the PEM itself", "`agent_socket.mode`", "`docker.network_mode`", "`docker.shm_size_mb`", "`apptainer.tmpfs_mb`"},
		profileOf(`browser = { args = ["--no-sandbox", "--remote-debugging-port=1"], start_url = "javascript:alert(1)" }`): {
			"`browser.args`", "no-sandbox", "botscreen cdp", "`browser.start_url`"},
		profileOf(`start_timeout = "soon"`):                               {"must be a duration"},
		strings.Replace(profileOf(), `"desk"`+"\n  ", `"../x"`+"\n  ", 1): {"Invalid name", "../x"},
		"resource \"botscreen_placement\" \"p\" {\n name = \"p\"\n isolation = \"chroot\"\n priority = 0\n isolation_order = [\"docker\", \"docker\"]\n}\n": {
			"`isolation` is not one of auto, host, docker, apptainer; it is \"chroot\"", "`priority`", "is there twice"},
		"resource \"botscreen_placement\" \"p\" {\n name = \"p\"\n constraints = [{ attribute = \"x\", operator = \"=\" }, { attribute = \"y\", operator = \"almost\", value = \"1\" }]\n}\n": {
			"`constraints[0].value`", "`constraints[1].operator`"},
		"resource \"botscreen_screen\" \"s\" {\n name = \"s\"\n profile = \"p/../x\"\n image = \"desk:1.4\"\n meta = { botscreen_x = \"1\" }\n run_policy = \"never\"\n job_id = \"a b\"\n}\n": {
			"Invalid profile", "This image is not pinned", "botscreen_", "run_policy", "Invalid job_id"},
		"provider \"botscreen\" {\n address = \"ftp://user:secret@x\"\n variable_prefix = \"nomad/x\"\n namespace = \"*\"\n request_timeout = \"0s\"\n max_retries = 11\n}\n" + profileOf(): {
			"Invalid address", "Invalid variable_prefix", "Invalid namespace", "Invalid duration", "max_retries"},
	} {
		b.validateFails(config, words...)
	}
}
