// SPDX-License-Identifier: MPL-2.0

package screen

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
)

// X21: however it is printed, the password is not there, and no record takes it.
func TestX21RegistryAuthIsNotShown(t *testing.T) {
	auth := NewRegistryAuth("robot", "CANARY")
	config := Defaults()
	config.Profile, config.DockerAuthUsername, config.DockerAuthPassword = "bot", "robot", "CANARY"
	spec, err := config.Validate()
	if err != nil {
		t.Fatal(err)
	}
	if spec.Docker.Auth != auth {
		t.Errorf("the spec has %v", spec.Docker.Auth)
	}
	for _, format := range []string{"%v", "%+v", "%#v", "%s", "%q", "%d", "%x"} {
		for _, shown := range []any{auth, &auth, spec.Docker, spec, []RegistryAuth{auth}} {
			if text := fmt.Sprintf(format, shown); strings.Contains(text, "CANARY") || strings.Contains(text, "434e4152") {
				t.Errorf("%s of %T: %s", format, shown, text)
			}
		}
	}
	if text, err := json.Marshal(spec); err == nil {
		t.Errorf("written down: %s", text)
	}
}

func TestRegistryAuthFaults(t *testing.T) {
	for name, pair := range map[string][2]string{
		"no password": {"robot", ""}, "no name": {"", "CANARY"}, "a line end": {"robot", "CANARY\n"},
		"too long": {"robot", "CANARY" + strings.Repeat("x", maxAuthBytes)},
	} {
		config := Defaults()
		config.Profile, config.DockerAuthUsername, config.DockerAuthPassword = "bot", pair[0], pair[1]
		_, err := config.Validate()
		if err == nil || !strings.Contains(err.Error(), "docker.auth") || strings.Contains(err.Error(), "CANARY") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
