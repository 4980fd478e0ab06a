// SPDX-License-Identifier: MPL-2.0

package jobfile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/nomad/api"
)

const whole = `
variable "profile" {
  type        = string
  default     = "researcher"
  description = "the bot"
}

variable "sizes" {
  type = list(number)
  default = [1, 2]
}

locals {
  second = upper(local.first)
  first  = "a-${var.profile}"
}

job "bots" {
  region      = "global"
  namespace   = "default"
  type        = "batch"
  priority    = 70
  datacenters = ["dc1", "dc2"]
  node_pool   = "default"

  constraint {
    attribute = "${attr.kernel.name}"
    value     = "linux"
  }

  meta {
    owner = "ada"
  }

  update {
    max_parallel     = 2
    min_healthy_time = "5s"
  }

  group "desk" {
    count = 2

    constraint {
      distinct_hosts = true
    }
    constraint {
      attribute    = "${attr.driver.botscreen.isolations}"
      set_contains_any = "docker,host"
    }

    restart {
      attempts = 3
      interval = "10m"
      delay    = "5s"
      mode     = "delay"
    }
    reschedule {
      attempts       = 1
      interval       = "1h"
      delay_function = "constant"
      unlimited      = false
    }
    network {
      mode = "host"
      port "vnc" {
        to = 5901
      }
      port "web" {
        static = 8080
      }
    }
    task "bot" {
      driver       = "botscreen"
      user         = "bot"
      kill_timeout = "20s"
      kill_signal  = "SIGINT"
      env = {
        "A.B" = "x ${NOMAD_ALLOC_ID}"
        N     = 3
      }
      config {
        profile = "${var.profile}-${NOMAD_ALLOC_INDEX}"
        local   = local.second
        size    = var.sizes[1]
        ratio   = 1.5
        flag    = true
        node    = node.unique.name
        host    = "${attr.unique.hostname}/${env["HOME"]}"
        args    = ["--lang=${NOMAD_META_lane}", 3]
        none    = null
        labels {
          lane = "blue"
          deep = { a = { b = 1 } }
        }
        volume "one" {
          path = "/a"
        }
        volume "two" {
          path = "/b"
        }
        maps = [{ a = 1 }, { b = 2 }]
        merged = merge({ a = 1 }, { b = { c = 2 } })
        escaped = "$${attr.x} ${upper("a${NOMAD_X}")}"
        object = { x = "y" }
      }
      resources {
        cpu        = 500
        memory     = 2048
        memory_max = -1
      }
      logs {
        max_files     = 3
        max_file_size = 4
      }
      template {
        data        = <<EOT
KEY={{ with nomadVar "nomad/jobs/bots" }}{{ .key }}{{ end }}
EOT
        destination = "secrets/env"
        env         = true
        change_mode = "restart"
      }
    }
  }
}
`

func TestWholeJob(t *testing.T) {
	job, err := Parse([]byte(whole), Options{})
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "id", *job.ID, "bots")
	equal(t, "type", *job.Type, "batch")
	equal(t, "priority", *job.Priority, 70)
	equal(t, "datacenters", job.Datacenters, []string{"dc1", "dc2"})
	equal(t, "constraint", *job.Constraints[0], api.Constraint{LTarget: "${attr.kernel.name}", RTarget: "linux", Operand: "="})
	equal(t, "meta", job.Meta, map[string]string{"owner": "ada"})
	equal(t, "update", *job.Update.MinHealthyTime, 5*time.Second)
	g := job.TaskGroups[0]
	equal(t, "count", *g.Count, 2)
	equal(t, "distinct", *g.Constraints[0], api.Constraint{RTarget: "true", Operand: "distinct_hosts"})
	equal(t, "set", *g.Constraints[1], api.Constraint{LTarget: "${attr.driver.botscreen.isolations}", RTarget: "docker,host", Operand: "set_contains_any"})
	equal(t, "dynamic", g.Networks[0].DynamicPorts, []api.Port{{Label: "vnc", To: 5901}})
	equal(t, "reserved", g.Networks[0].ReservedPorts, []api.Port{{Label: "web", Value: 8080}})
	task := g.Tasks[0]
	equal(t, "env", task.Env, map[string]string{"A.B": "x ${NOMAD_ALLOC_ID}", "N": "3"})
	equal(t, "kill timeout", *task.KillTimeout, 20*time.Second)
	equal(t, "memory max", *task.Resources.MemoryMaxMB, -1)
	equal(t, "template", *task.Templates[0].EmbeddedTmpl, "KEY={{ with nomadVar \"nomad/jobs/bots\" }}{{ .key }}{{ end }}\n")
	equal(t, "config", task.Config, map[string]any{
		"profile": "researcher-${NOMAD_ALLOC_INDEX}",
		"local":   "A-RESEARCHER",
		"size":    2,
		"ratio":   1.5,
		"flag":    true,
		"node":    "${node.unique.name}",
		"host":    `${attr.unique.hostname}/${env["HOME"]}`,
		"args":    []any{"--lang=${NOMAD_META_lane}", 3},
		"labels": []map[string]any{{
			"lane": "blue",
			"deep": []map[string]any{{"a": map[string]any{"b": 1}}},
		}},
		"volume": []map[string]any{
			{"one": []map[string]any{{"path": "/a"}}},
			{"two": []map[string]any{{"path": "/b"}}},
		},
		"maps":    []map[string]any{{"a": 1}, {"b": 2}},
		"object":  []map[string]any{{"x": "y"}},
		"merged":  map[string]any{"a": 1, "b": map[string]any{"c": 2}},
		"escaped": "${attr.x} A${NOMAD_X}",
	})
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: got %#v, want %#v", what, got, want)
	}
}

// in wraps a line of a task into a job; the line stands at line 4.
func in(line string) string {
	return "job \"j\" {\n  group \"g\" {\n    task \"t\" {\n" + line + "\n    }\n  }\n}\n"
}

// Every fault names file, line and column (issue: bad job files).
func TestBadJobFiles(t *testing.T) {
	cases := []struct{ name, src, want string }{
		{"unknown block", in(`artifact { source = "x" }`), `x.hcl:4,1-9: Unsupported block type; Blocks of type "artifact" are not expected in task "t". It is part of Nomad's job language that the embedded agent does not run.`},
		{"unknown argument", in(`drivr = "x"`), `x.hcl:4,1-6: Unsupported argument; An argument named "drivr" is not expected in task "t". Did you mean "driver"?`},
		{"block in place of argument", in(`driver { }`), `x.hcl:4,1-7: Unsupported block type; Blocks of type "driver" are not expected in task "t". Its form is wrong: a block is written name { }, an argument name = value.`},
		{"wrong type", in(`resources { memory = "lots" }`), `x.hcl:4,22-28: Unsuitable value for memory; It must be a number: a number is required.`},
		{"fraction", in(`resources { memory = 1.5 }`), `x.hcl:4,22-25: Unsuitable value for memory; It must be a whole number`},
		{"list for text", in(`user = ["a"]`), `x.hcl:4,8-13: Unsuitable value for user; It must be a string: string required`},
		{"bad duration", in(`kill_timeout = "soon"`), `x.hcl:4,16-22: Unsuitable value for kill_timeout; Unsuitable duration value: "soon"`},
		{"missing quote", in(`driver = "botscreen`), `x.hcl:4,20-`},
		{"missing quotes", in(`driver = botscreen`), `x.hcl:4,10-19: Unknown variable; There is no variable named "botscreen".`},
		{"missing brace", "job \"j\" {\n", `x.hcl:1,9-10: Unclosed configuration block`},
		{"unknown function", in(`user = file("/etc/passwd")`), `x.hcl:4,8-12: Call to unknown function; There is no function named "file".`},
		{"unset variable", "variable \"v\" {\n  type = string\n}\njob \"j\" {}\n", `x.hcl:1,1-13: Unset variable "v"; A used variable must be set or have a default value; give it with -var v=VALUE.`},
		{"undeclared variable", in(`user = var.nobody`), `x.hcl:4,11-18: Unsupported attribute; This object does not have an attribute named "nobody".`},
		{"two jobs", "job \"a\" {}\njob \"b\" {}\n", `x.hcl:2,1-4: Duplicate job block`},
		{"no job", "variable \"x\" {\n  default = 1\n}\n", `Missing job block; A job block is required`},
		{"no label", "job {}\n", `x.hcl:1,1-4: Wrong number of labels`},
		{"two tasks of a name", in("}\ntask \"t\" {"), `x.hcl:5,1-9: Duplicate task`},
		{"local on itself", "locals {\n  a = local.b\n  b = local.a\n}\njob \"j\" {}\n", `x.hcl:2,3-4: Circular locals; Local "a" depends on itself.`},
		{"dynamic block", in(`dynamic "env" { }`), `x.hcl:4,1-8: Unsupported block type; Blocks of type "dynamic" are not expected`},
		{"block and argument", in("config {\nx = 1\nx { }\n}"), `Duplicate x; It is already written as an argument at x.hcl:5,1-2.`},
		{"not UTF-8", "job \"j\" {\n \xff }", `x.hcl:2,2-2: Invalid character encoding`},
		{"NUL", "job\x00", `x.hcl:1,4-4: Invalid character`},
		{"a megabyte of garbage", strings.Repeat("%&/()=?{", 1<<17), `x.hcl:1,1028-1029: Too deeply nested`},
		{"a megabyte of brackets", "a = " + strings.Repeat("[", 1<<20-4), `x.hcl:1,133-134: Too deeply nested`},
		{"a megabyte of signs", "a = " + strings.Repeat("!", 1<<20-4), `Too deeply nested`},
		{"a megabyte of conditionals", "a = " + strings.Repeat("1?1:", 1<<17), `Too deeply nested`},
		{"a megabyte of templates", "a = " + strings.Repeat("\"${", 1<<18), `Too deeply nested`},
		{"more than a megabyte", strings.Repeat("#\n", 1<<19+1), `x.hcl:524289,1-1: File too large; It has 1048578 bytes; at most 1048576 are read.`},
	}
	position := regexp.MustCompile(`^x\.hcl:\d+,\d+(-\d+(,\d+)?)?: `)
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			job, err := Parse([]byte(c.src), Options{Name: "x.hcl"})
			if err == nil {
				t.Fatalf("accepted: %+v", job)
			}
			var faults *Error
			if !errors.As(err, &faults) {
				t.Fatalf("got %T, want *Error", err)
			}
			if !strings.Contains(err.Error(), c.want) {
				t.Errorf("got:\n%.600s\nwant:\n%s", err, c.want)
			}
			for line := range strings.Lines(err.Error()) {
				if !position.MatchString(line) {
					t.Errorf("line without position: %.200q", line)
				}
			}
		})
	}
}

// All faults are given at once.
func TestAllFaultsAtOnce(t *testing.T) {
	_, err := Parse([]byte(in("artifact {}\nkill_timeout = \"x\"\nleader = true")), Options{Name: "x.hcl"})
	for _, want := range []string{"x.hcl:4,", "x.hcl:5,", "x.hcl:6,"} {
		if !strings.Contains(fmt.Sprint(err), want) {
			t.Errorf("no fault at %s in:\n%v", want, err)
		}
	}
}

const typed = `
variable "name" { type = string }
variable "count" { type = number }
variable "on" { type = bool }
variable "list" { type = list(string) }
variable "any" {}
job "j" {
  group "g" {
    count = var.count
    task "t" {
      user = var.name
      config {
        on   = var.on
        list = var.list
        any  = var.any
      }
    }
  }
}
`

func TestAssignments(t *testing.T) {
	given := map[string]string{"name": `a "b" ${c}`, "count": "3", "on": "true", "list": `["x", "y"]`, "any": "7"}
	text, err := VariableFile([]byte(typed), given)
	if err != nil {
		t.Fatal(err)
	}
	for name, o := range map[string]Options{"direct": {Assignments: given}, "by file": {VarContent: text}} {
		t.Run(name, func(t *testing.T) {
			job, err := Parse([]byte(typed), o)
			if err != nil {
				t.Fatal(err)
			}
			task := job.TaskGroups[0].Tasks[0]
			equal(t, "count", *job.TaskGroups[0].Count, 3)
			equal(t, "user", task.User, `a "b" ${c}`)
			equal(t, "config", task.Config, map[string]any{"on": true, "list": []any{"x", "y"}, "any": "7"})
		})
	}
}

func TestBadAssignments(t *testing.T) {
	base := func() map[string]string {
		return map[string]string{"name": "n", "count": "3", "on": "true", "list": `[]`, "any": "x"}
	}
	for name, c := range map[string]struct{ key, value, want string }{
		"wrong type": {"count", "many", `-var count:1,1-5: Variables not allowed`},
		"not a bool": {"on", `"maybe"`, `-var on:1,1-1: Invalid value for variable; The value of variable "on" is not of its type`},
		"undeclared": {"other", "x", `-var other:1,1-1: Undefined variable; A value is given for variable "other"`},
		"nested":     {"list", strings.Repeat("[", 1000), `Too deeply nested`},
	} {
		t.Run(name, func(t *testing.T) {
			given := base()
			given[c.key] = c.value
			_, err := Parse([]byte(typed), Options{Assignments: given})
			if !strings.Contains(fmt.Sprint(err), c.want) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
}

// The fixtures of the case collection that are HCL2 as Nomad reads it.
func TestFixtureFiles(t *testing.T) {
	for _, name := range []string{"idle-stop-service", "memory-max-unlimited", "interpolation"} {
		src, err := os.ReadFile(filepath.Join("testdata", name+".nomad.hcl"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := Parse(src, Options{Name: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(whole), "")
	f.Add([]byte(typed), "name = \"x\"")
	f.Add([]byte(in(`config { a = { for k, v in var.x : k => v... } }`)), "")
	f.Add([]byte(in("user = <<-E\n ${attr.a[0]} %{ if true }x%{ endif }\n E\n")), "")
	f.Fuzz(func(t *testing.T, src []byte, vars string) {
		job, err := Parse(src, Options{VarContent: vars})
		if (job == nil) == (err == nil) {
			t.Fatalf("job %v and error %v", job, err)
		}
		if err != nil && err.Error() == "" {
			t.Fatal("an error without text")
		}
	})
}
