#!/usr/bin/env bash
# From nothing to a desktop that Terraform made, on the embedded agent, and back to
# nothing: apply, a plan that is empty, a picture, destroy. TERRAFORM names another CLI.
set -euo pipefail
cd "$(dirname "$0")/.."
cli=${TERRAFORM:-terraform}
command -v "$cli" >/dev/null || cli=$PWD/.botscreen/tofu/tofu
[ -x "$(command -v "$cli")" ] || { echo "Neither terraform is on PATH nor OpenTofu is built: run \`make tofu\` first." >&2; exit 1; }
cli=$(realpath -s "$(command -v "$cli")") # it runs in another directory

work=$(mktemp -d)
chmod 711 "$work" # screens have uids of their own
agent=
ours= # set once the agent that commands talk to is that of this script
cleanup() {
	# A screen outlives its agent. After a whole run there is none any more.
	[ -z "$ours" ] || bin/botscreen stop --force --timeout 30s scout >/dev/null 2>&1 || true
	if [ -n "$agent" ] && kill "$agent" 2>/dev/null; then
		wait "$agent" 2>/dev/null || true
	fi
	rm -rf "$work"
}
trap cleanup EXIT

port=${PORT:-14646}
cat >"$work/agent.hcl" <<-EOF
	plugin "nomad-driver-botscreen" {
	  config {
	    allow_unsandboxed_host = true
	    state_dir = "$work/state"
	    run_dir   = "$work/run"
	  }
	}
EOF
bin/botscreen agent -dev -config "$work/agent.hcl" -data-dir "$work/data" -bind "127.0.0.1:$port" >"$work/agent.log" 2>&1 &
agent=$!
for _ in $(seq 100); do
	grep -q NOMAD_ADDR "$work/agent.log" && break
	kill -0 "$agent" 2>/dev/null || { cat "$work/agent.log" >&2; exit 1; }
	sleep 0.1
done
NOMAD_ADDR=http://127.0.0.1:$port
NOMAD_TOKEN=$(cat "$work/data/token")
ours=1
export NOMAD_ADDR NOMAD_TOKEN TF_IN_AUTOMATION=1 CHECKPOINT_DISABLE=1

cat >"$work/cli.rc" <<-EOF
	provider_installation {
	  dev_overrides {
	    "registry.terraform.io/botscreen/botscreen" = "$PWD/bin"
	    "registry.opentofu.org/botscreen/botscreen" = "$PWD/bin"
	  }
	  direct {}
	}
EOF
export TF_CLI_CONFIG_FILE=$work/cli.rc
cp examples/terraform/one-desktop/main.tf "$work/"
run() { # the note on development overrides says nothing here
	echo "+ $(basename "$cli") $*"
	(cd "$work" && "$cli" "$@" -no-color) | sed -n '/^Terraform will perform\|^OpenTofu will perform\|^botscreen_\|^Apply\|^Destroy\|^No changes\|^Plan:\|^Outputs\|^scout/p'
}
run apply -auto-approve
run plan -detailed-exitcode
bin/botscreen status scout
bin/botscreen screenshot -o screen.png scout
echo "Look: screen.png"
run destroy -auto-approve
[ "$(cd "$work" && "$cli" state list | wc -l)" -eq 0 ]
[ "$(ls "$work/run")" = node ] || { echo "Something of the screen is left in $work/run" >&2; exit 1; }
echo "Nothing is left."
