#!/usr/bin/env bash
# From built binaries to a picture of a desktop: starts the embedded agent, runs the
# example's job, waits until the desktop is ready and writes screen.png. On a terminal it
# stays until Ctrl-C; otherwise it stops everything and ends with status 0.
set -euo pipefail
cd "$(dirname "$0")/.."

profile=researcher
log=$(mktemp)
bin/botscreen agent -dev >"$log" 2>&1 &
agent=$!

stop() {
	trap '' INT TERM
	bin/botscreen stop "$profile" || true
	kill -TERM "$agent" 2>/dev/null || true
	wait "$agent" || true
	rm -f "$log"
}
fail() {
	echo "$1 The agent says:" >&2
	tail -n 20 "$log" >&2
	stop
	exit 1
}

for _ in $(seq 150); do
	kill -0 "$agent" 2>/dev/null || { tail -n 20 "$log" >&2; exit 1; }
	# It prints its exports when its drivers have said what they can run.
	grep -q '^export NOMAD_TOKEN' "$log" && break
	sleep 0.2
done
bin/botscreen run examples/nomad/desktop.nomad.hcl || fail "The desktop did not start."
bin/botscreen screenshot -o screen.png "$profile" || fail "No picture could be taken."
bin/botscreen status "$profile"
cat <<EOF

screen.png is a picture of the desktop.
Look again with:  bin/botscreen screenshot -o screen.png $profile
See it live:      bin/botscreen view --vnc $profile
Run something:    bin/botscreen exec --gui $profile -- xfce4-terminal
EOF
if [ -t 0 ] && [ -t 1 ]; then
	echo "Ctrl-C stops the desktop and the agent."
	trap 'stop; exit 0' INT TERM
	wait "$agent"
	rm -f "$log"
else
	stop
	echo "Stopped."
fi
