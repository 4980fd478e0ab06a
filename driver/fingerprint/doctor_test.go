// SPDX-License-Identifier: MPL-2.0

package fingerprint

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/botscreen/botscreen/driver/display"
	"github.com/botscreen/botscreen/driver/requirements"
)

var checkNames = []string{
	"isolation_docker", "isolation_apptainer", "isolation_host", "programs", "xvnc", "browser", "x11_unix", "displays",
	"memory", "cgroups", "user_namespaces", "dev_shm",
}

func checkOf(t *testing.T, d Diagnosis, name string) requirements.Check {
	t.Helper()
	i := slices.IndexFunc(d.Checks, func(c requirements.Check) bool { return c.Name == name })
	if i < 0 {
		t.Fatalf("no check %q", name)
	}
	return d.Checks[i]
}

func TestDiagnosisOfANodeWithNothing(t *testing.T) {
	f := fakeNode(t, newProbe(Docker, Report{Reason: "docker is not installed"}))
	d := f.Diagnose(t.Context())
	for i, c := range d.Checks {
		if c.Name != checkNames[i] {
			t.Errorf("check %d is %q, want %q", i, c.Name, checkNames[i])
		}
		if !c.OK && (c.Found == "" || c.Why == "" || c.Fix == "") {
			t.Errorf("a failure without found, why or fix: %+v", c)
		}
	}
	for _, name := range []string{"isolation_docker", "isolation_host", "programs", "xvnc", "browser", "x11_unix", "user_namespaces", "dev_shm"} {
		if c := checkOf(t, d, name); c.OK {
			t.Errorf("%+v, want a failure", c)
		}
	}
	for name, found := range map[string]string{"displays": "3 of 3 free", "memory": "4000 MB available on the host"} {
		if c := checkOf(t, d, name); !c.OK || !strings.Contains(c.Found, found) {
			t.Errorf("%+v, want %q", c, found)
		}
	}
	data, err := json.Marshal(d)
	if err != nil || !strings.HasPrefix(string(data), `{"isolations":[],"checks":[{"name":"isolation_docker","ok":false`) {
		t.Errorf("JSON %s, %v", data, err)
	}
}

func TestDiagnosisOfThisMachine(t *testing.T) {
	host := requirements.Host{}
	f := &Fingerprinter{Probes: []Probe{NewHostProbe(host, true)}, Band: display.DefaultBand}
	d := f.Diagnose(t.Context())
	for _, c := range d.Checks {
		t.Logf("%-20s ok=%-5v %s; %s %s", c.Name, c.OK, c.Found, c.Why, c.Fix)
	}
	if want := len(host.Missing().Required()) == 0; want != slices.Contains(d.Isolations, Host) {
		t.Errorf("isolations %v, programs there: %v", d.Isolations, want)
	}
	if c := checkOf(t, d, "memory"); !strings.Contains(c.Found, "MB available") {
		t.Errorf("%+v", c)
	}
}

func TestDiagnosisEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	probe := hanging(Docker)
	defer close(probe.release)
	if d := fakeNode(t, probe).Diagnose(ctx); d.Isolations == nil || len(d.Checks) != 0 {
		t.Errorf("got %+v", d)
	}
}
