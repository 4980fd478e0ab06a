// SPDX-License-Identifier: MPL-2.0

package terraform

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/hashicorp/nomad/api"
)

var _ = add(
	row{id: "T-PRO-3 sandbox image", f: imageLife},
	row{id: "T-IMG-1 keep", f: imageKeep},
	row{id: "T-IMG-2 switch", f: imageSwitch},
	row{id: "T-IMG-3 refuse", f: imageRefuse},
	row{id: "T-IMG-4 saved plan", f: imageSavedPlan},
	row{id: "T-IMG-5 no registry", f: imageNoRegistry},
	row{id: "T-IMG-6 pin", f: imagePin},
	row{id: "T-IMG-7 sequence", f: imageSequence},
	row{id: "T-IMG-8 catalog", f: imageCatalog},
	row{id: "T-GONE-2", f: imageGone},
	row{id: "TFM-05", f: imageForms},
)

// depot is a registry on loopback.
type depot struct {
	b    *bench
	host string
	// status, where set, is what every request is answered with.
	status atomic.Int64
	heads  atomic.Int64
}

func newDepot(b *bench) *depot {
	d := &depot{b: b}
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodHead && strings.Contains(r.URL.Path, "/manifests/") {
			d.heads.Add(1)
		}
		if s := d.status.Load(); s != 0 {
			w.WriteHeader(int(s))
			return
		}
		inner.ServeHTTP(w, r)
	}))
	b.Cleanup(server.Close)
	d.host = strings.TrimPrefix(server.URL, "http://")
	return d
}

// push gives a reference a new image, and its digest.
func (d *depot) push(repository string) string {
	d.b.Helper()
	index, err := random.Index(64, 1, 2) // an index: its digest counts, not a platform's
	if err != nil {
		d.b.Fatal(err)
	}
	ref, err := name.ParseReference(d.host + "/" + repository)
	if err != nil {
		d.b.Fatal(err)
	}
	if err := remote.WriteIndex(ref, index); err != nil {
		d.b.Fatal(err)
	}
	digest, err := index.Digest()
	if err != nil {
		d.b.Fatal(err)
	}
	return digest.String()
}

const imageAddress = "botscreen_sandbox_image.desk"

func (d *depot) config(lines ...string) string {
	return fmt.Sprintf(`
resource "botscreen_sandbox_image" "desk" {
  name      = "desk"
  reference = "%s/team/desk:1.4"
  %s
}
`, d.host, strings.Join(lines, "\n  "))
}

func imageLife(b *bench) {
	d := newDepot(b)
	first := d.push("team/desk:1.4")
	b.config(d.config())
	b.settle()
	s := b.state()[imageAddress]
	if s["digest"] != first || s["image"] != d.host+"/team/desk@"+first || s["decision"] != "initial" || s["update_available"] != false || s["decided_digest"] != first {
		b.Errorf("state %v", s)
	}
	for _, line := range []string{`description = "the desk"`, `on_default_change = "switch"`, `force_destroy = true`} {
		b.config(d.config(line))
		plan, _ := b.plan()
		b.does(plan, imageAddress, "update")
		b.must("apply", "-no-color", "plan")
		b.empty()
	}
	b.config(d.config())
	b.settle()
	b.importsBack(imageAddress, "desk")
	b.config(d.config(`kind = "apptainer"`))
	plan, _ := b.plan()
	b.does(plan, imageAddress, "delete,create")
	b.destroy()
	if b.record("image/desk") != nil {
		b.Error("the record is left")
	}
}

func imageKeep(b *bench) {
	d := newDepot(b)
	first := d.push("team/desk:1.4")
	b.config(d.config())
	b.settle()
	second := d.push("team/desk:1.4")
	plan, o := b.plan()
	b.does(plan, imageAddress, "update")
	c := plan[imageAddress]
	if c.After["digest"] != first || c.After["decided_digest"] != second || c.After["decision"] != "keep" {
		b.Errorf("plan %v", c.After)
	}
	b.says(o, "Default sandbox image changed: keeping the pinned one", second, first, `on_default_change = "switch"`)
	b.must("apply", "-no-color", "plan")
	b.empty()
	b.has(imageAddress, "update_available", true)
}

func imageSwitch(b *bench) {
	d := newDepot(b)
	d.push("team/desk:1.4")
	screen := `
resource "botscreen_profile" "p" {
  name = "PREFIX"
}
resource "botscreen_screen" "s" {
  name          = "PREFIX"
  profile       = botscreen_profile.p.ref
  image         = botscreen_sandbox_image.desk.image
  desired_state = "stopped"
}
`
	b.config(d.config(`on_default_change = "switch"`) + screen)
	b.settle()
	second := d.push("team/desk:1.4")
	plan, _ := b.plan()
	b.does(plan, imageAddress, "update")
	b.does(plan, "botscreen_screen.s", "update")
	if got := plan["botscreen_screen.s"].After["image"]; got != d.host+"/team/desk@"+second {
		b.Errorf("the screen's image is planned as %v", got)
	}
	b.settle()
	if got := b.job("botscreen-" + b.prefix).TaskGroups[0].Tasks[0].Config["image"]; got != d.host+"/team/desk@"+second {
		b.Errorf("the job runs %v", got)
	}
	b.must("state", "rm", "botscreen_screen.s")
	b.destroy() // it is stopped: nobody uses the image
}

func imageRefuse(b *bench) {
	d := newDepot(b)
	d.push("team/desk:1.4")
	b.config(d.config(`on_default_change = "refuse"`))
	b.settle()
	d.push("team/desk:1.4")
	b.fails(b.run("plan", "-no-color"), "Default sandbox image changed: decide keep or switch", `on_default_change = "keep"`)
	b.must("destroy", "-no-color", "-auto-approve", "-refresh=false")
}

func imageSavedPlan(b *bench) {
	d := newDepot(b)
	d.push("team/desk:1.4")
	b.config(d.config(`on_default_change = "switch"`))
	b.settle()
	shown := d.push("team/desk:1.4")
	b.plan()
	d.push("team/desk:1.4")
	b.must("apply", "-no-color", "plan")
	b.has(imageAddress, "digest", shown)
}

func imageNoRegistry(b *bench) {
	d := newDepot(b)
	digest := d.push("team/desk:1.4")
	b.config(d.config())
	b.settle()
	for status, want := range map[int64]string{500: "500", 401: "no credentials", 429: "too many requests"} {
		d.status.Store(status)
		b.empty()
		b.apply("-refresh-only")
		if got := fmt.Sprint(b.state()[imageAddress]["check_error"]); !strings.Contains(got, want) {
			b.Errorf("%d: check_error %q", status, got)
		}
		b.has(imageAddress, "digest", digest)
	}
	d.status.Store(0)
	b.apply("-refresh-only")
	b.has(imageAddress, "check_error", nil)
	// A new one cannot be pinned without a digest.
	d.status.Store(503)
	b.config(d.config() + strings.NewReplacer(`"desk"`, `"other"`).Replace(d.config()))
	b.fails(b.tryApply(), "The digest of this image cannot be looked up", "503", `digest = "sha256:…"`, "Nothing was written")
}

func imagePin(b *bench) {
	d := newDepot(b)
	digest := d.push("team/desk:1.4")
	b.config(d.config(fmt.Sprintf("digest = %q", digest)))
	d.push("team/desk:1.4")
	d.heads.Store(0)
	plan, _ := b.plan()
	if c := plan[imageAddress]; c.After["image"] != d.host+"/team/desk@"+digest || c.After["decision"] != "pin" {
		b.Errorf("plan %v", c.After)
	}
	b.settle()
	if n := d.heads.Load(); n != 0 {
		b.Errorf("the registry was asked %d times", n)
	}
}

// imageSequence: keep, quiet, switch, quiet, refuse, error, keep, another reference.
func imageSequence(b *bench) {
	d := newDepot(b)
	d.push("team/desk:1.4")
	b.config(d.config())
	b.settle()
	second := d.push("team/desk:1.4")
	b.settle() // keep, then quiet
	b.config(d.config(`on_default_change = "switch"`))
	b.settle()
	b.has(imageAddress, "digest", second)
	d.push("team/desk:1.4")
	b.config(d.config(`on_default_change = "refuse"`))
	b.fails(b.run("plan", "-no-color"), "decide keep or switch")
	b.config(d.config())
	b.settle()
	b.has(imageAddress, "digest", second)
	b.config(d.config(`on_default_change = "refuse"`))
	b.settle() // decided: quiet
	other := d.push("team/desk:2.0")
	b.config(strings.Replace(d.config(), ":1.4", ":2.0", 1))
	plan, _ := b.plan()
	if c := plan[imageAddress]; c.AfterUnknown["digest"] != true || c.After["decision"] != "reference" {
		b.Errorf("another reference: %v, unknown %v", c.After, c.AfterUnknown)
	}
	b.settle()
	b.has(imageAddress, "digest", other)
	b.config(strings.Replace(d.config(fmt.Sprintf("digest = %q", second)), ":1.4", ":2.0", 1))
	b.settle()
	b.has(imageAddress, "decision", "pin")
	b.config(strings.Replace(d.config(), ":1.4", ":2.0", 1))
	b.settle() // the pin is taken away: it stays where it was, and offers are seen again
	b.has(imageAddress, "digest", second)
	b.has(imageAddress, "update_available", true)
}

// imageCatalog: the cluster's own record says what the default is.
func imageCatalog(b *bench) {
	d := newDepot(b)
	catalog := func(digest string) {
		spec, err := json.Marshal(map[string]string{"reference": "registry.example/desk:1", "digest": digest})
		if err != nil {
			b.Fatal(err)
		}
		v := &api.Variable{Path: b.prefix + "/catalog/docker", Items: map[string]string{"schema": "1", "spec": string(spec)}}
		if _, _, err := b.agent.api.Variables().Update(v, nil); err != nil {
			b.Fatal(err)
		}
	}
	one, two := "sha256:"+strings.Repeat("1", 64), "sha256:"+strings.Repeat("2", 64)
	catalog(one)
	b.config("resource \"botscreen_sandbox_image\" \"desk\" {\n  name = \"desk\"\n}\n")
	b.settle()
	b.has(imageAddress, "image", "registry.example/desk@"+one)
	catalog(two)
	plan, _ := b.plan()
	if c := plan[imageAddress]; c.After["digest"] != one || c.After["decided_digest"] != two {
		b.Errorf("plan %v", c.After)
	}
	b.settle()
	if d.heads.Load() != 0 {
		b.Error("a registry was asked")
	}
}

func imageGone(b *bench) {
	d := newDepot(b)
	digest := d.push("team/desk:1.4")
	b.config(d.config())
	b.settle()
	d.push("team/desk:1.4")
	if _, err := b.agent.api.Variables().Delete(b.prefix+"/image/desk", nil); err != nil {
		b.Fatal(err)
	}
	plan, o := b.plan()
	b.does(plan, imageAddress, "update")
	b.says(o, "The record of this image was deleted outside Terraform")
	if c := plan[imageAddress]; c.Before["recorded"] != false || c.After["recorded"] != true || c.After["digest"] != digest {
		b.Errorf("plan %v → %v", c.Before, c.After)
	}
	b.settle()
	if got := b.record("image/desk"); got == nil || !strings.Contains(got.Items["spec"], digest) {
		b.Errorf("record %v", got)
	}
	b.destroy()
}

// imageForms are eight ways to name an image, two of them wrong.
func imageForms(b *bench) {
	text, err := os.ReadFile("testdata/image-pins.tf")
	if err != nil {
		b.Fatal(err)
	}
	b.config(string(text))
	bad := b.run("validate", "-no-color")
	b.fails(bad, "bad_digest", "64 hex digits", "upper", "only lower case")
	if n := strings.Count(bad.raw, "Error:"); n != 2 {
		b.Errorf("%d errors:\n%s", n, bad.raw)
	}
	good, _, _ := strings.Cut(string(text), `resource "botscreen_sandbox_image" "bad_digest"`)
	d := newDepot(b)
	for _, repository := range []string{"desk:1.4", "team/desk:1.4", "team/desk:latest"} {
		d.push(repository)
	}
	// The registry is on loopback; a name without one is docker's own, out of reach here.
	good = strings.ReplaceAll(good, "registry.example:5000", d.host)
	good = strings.Replace(good, `"desk:1.4"`, `"`+d.host+`/desk:1.4"`, 1)
	b.config(good)
	b.settle()
	digest := "sha256:" + strings.Repeat("0", 64)
	for address, image := range map[string]string{"digest": "desk@" + digest, "tag_digest": "desk@" + digest, "port": d.host + "/team/desk@" + digest} {
		b.has("botscreen_sandbox_image."+address, "image", image)
		b.has("botscreen_sandbox_image."+address, "decision", "pin")
	}
	if got := fmt.Sprint(b.state()["botscreen_sandbox_image.port_notag"]["image"]); !strings.HasPrefix(got, d.host+"/team/desk@sha256:") {
		b.Errorf("port without a tag: %s", got)
	}
	if got := fmt.Sprint(b.state()["botscreen_sandbox_image.apptainer"]["image"]); !strings.HasPrefix(got, "oras://"+d.host+"/team/desk@sha256:") {
		b.Errorf("apptainer: %s", got)
	}
	// An image file, for clusters without a registry.
	sif := filepath.Join(b.dir, "desk.sif")
	write(b.T, sif, "an image")
	b.config(fmt.Sprintf("resource \"botscreen_sandbox_image\" \"desk\" {\n  name = \"desk\"\n  kind = \"apptainer\"\n  reference = %q\n}\n", sif))
	b.settle()
	b.has(imageAddress, "image", sif+"@sha256:a5df3fde7b200c3fa2791144c7e05c5c2bced4c6ad863d3a4cf76c972c1712f9")
}
