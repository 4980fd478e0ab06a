// SPDX-License-Identifier: MPL-2.0

package task

import (
	"slices"
	"strings"
)

// scrubbed never reaches a desktop from the job or the node: it would tie the desktop
// to another one (S5, DSP-15) or change how programs are loaded.
var scrubbed = []string{
	"DISPLAY", "XAUTHORITY", "WAYLAND_DISPLAY", "WAYLAND_SOCKET", "SESSION_MANAGER", "DBUS_SESSION_BUS_ADDRESS",
	"DBUS_SYSTEM_BUS_ADDRESS", "XDG_RUNTIME_DIR", "XDG_SESSION_ID", "XDG_SEAT", "XDG_VTNR", "ICEAUTHORITY",
	"HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD",
}

// secretPrefixes and secretNames are the credentials Nomad hands to a task; only
// expose_secrets lets a desktop see them (X21).
var (
	secretPrefixes = []string{"NOMAD_TOKEN", "VAULT_", "CONSUL_TOKEN", "CONSUL_HTTP_TOKEN"}
	secretNames    = []string{"NOMAD_UNIX_ADDR", "NOMAD_SECRETS_DIR"}
)

// environmentOrder is all that decides what a desktop sees of a task's environment.
type environmentOrder struct {
	task          map[string]string
	node          []string // the plugin's own environment, as in os.Environ
	passEnv       []string
	exposeSecrets bool
}

// environment is the desktop's share of the task's environment, sorted. A value that
// the plugin has itself came from the node, not from the job: it is dropped unless
// pass_env names it. What remains is Nomad's description of the task and what the job
// set.
func environment(order environmentOrder) []string {
	var env []string
	for name, value := range order.task {
		entry := name + "=" + value
		switch {
		case strings.ContainsRune(entry, 0), name == "", strings.Contains(name, "="):
			continue // cannot be an environment entry
		case isSecret(name) && !order.exposeSecrets:
			continue
		case slices.Contains(order.passEnv, name):
		case slices.Contains(scrubbed, name), slices.Contains(order.node, entry):
			continue
		}
		env = append(env, entry)
	}
	slices.Sort(env)
	return env
}

func isSecret(name string) bool {
	if slices.Contains(secretNames, name) {
		return true
	}
	return slices.ContainsFunc(secretPrefixes, func(p string) bool { return strings.HasPrefix(name, p) })
}
