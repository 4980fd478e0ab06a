#!/usr/bin/env bash
# Runs a command beside a docker engine that has the desktop image: the node's engine
# when one answers, else one of our own for as long as the command runs. What the command
# needs to find it stands in BOTSCREEN_TEST_DOCKER. Where no engine can be had the command
# runs all the same, and its tests say what they miss. An image with a browser is used
# where the engine has one (`make image`), and built where BOTSCREEN_TEST_FULL is 1.
#
#   with-engine.sh COMMAND ARGUMENT...
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
state=$(dirname "$here")/.botscreen/engine
image=botscreen-desktop:test
image_full=botscreen-full:test
pid=

stop() {
	[ -n "$pid" ] || return 0
	kill "$pid" 2>/dev/null || true
	wait "$pid" 2>/dev/null || true
	# The engine leaves the mount of its own network namespace.
	while read -r _ point _; do umount "$point"; done < <(grep -F " $state/" /proc/self/mounts | tac)
	rm -rf "$run"
}

without() {
	echo "No docker engine for the tests: $1" >&2
	unset DOCKER_HOST
	"${command[@]}"
	exit
}

command=("$@")
[ -z "${BOTSCREEN_TEST_DOCKER:-}" ] || exec "${command[@]}"
[ "$(id -u)" -eq 0 ] || without "it takes root"
command -v docker >/dev/null || without "the docker command is not installed"
if ! docker version >/dev/null 2>&1; then
	command -v dockerd >/dev/null || without "none answers, and dockerd is not installed"
	mkdir -p "$state"
	run=$(mktemp -d /tmp/bse-XXXXXX) # short: a socket's path has at most 107 bytes
	trap stop EXIT
	# No bridge and no firewall rules: screens have no network, and the node keeps its own.
	dockerd --data-root "$state/data" --exec-root "$state/exec" --pidfile "$run/pid" --host "unix://$run/sock" \
		--bridge none --iptables=false --ip6tables=false >"$state/log" 2>&1 &
	pid=$!
	export DOCKER_HOST=unix://$run/sock
	deadline=$((SECONDS + 60))
	until docker version >/dev/null 2>&1; do
		[ $SECONDS -lt $deadline ] || without "dockerd does not answer, see $state/log"
		if ! kill -0 "$pid" 2>/dev/null; then
			tail -n 3 "$state/log" >&2
			pid=
			without "dockerd ended, see $state/log"
		fi
		sleep 0.2
	done
fi
export BOTSCREEN_TEST_DOCKER=${DOCKER_HOST:-unix:///var/run/docker.sock}
if ! docker image inspect "$image" >/dev/null 2>&1; then
	echo "Building $image" >&2
	"$here/image/build.sh" desktop "$image" >&2 || echo "The image could not be built; tests that need it are skipped." >&2
fi
full=${BOTSCREEN_TEST_BROWSER_IMAGE:-$(docker images --filter label=botscreen.image=full --filter dangling=false --format '{{.Repository}}:{{.Tag}}' | head -n 1)}
if [ -z "$full" ] && [ "${BOTSCREEN_TEST_FULL:-}" = 1 ]; then
	echo "Building $image_full" >&2
	if "$here/image/build.sh" full "$image_full" >&2; then
		full=$image_full
	else
		echo "The image with a browser could not be built; tests that need it are skipped." >&2
	fi
fi
[ -z "$full" ] || export BOTSCREEN_TEST_BROWSER_IMAGE=$full

# Apptainer runs the same images as directories.
#
#   unpack IMAGE NAME VARIABLE
unpack() {
	local id root container
	root=$(dirname "$here")/.botscreen/$2
	id=$(docker image inspect --format '{{.Id}}' "$1" 2>/dev/null) || return 0
	if [ "$(cat "$root.id" 2>/dev/null)" != "$id" ]; then
		rm -rf "$root" "$root.id"
		mkdir -p "$root"
		container=$(docker create "$1" true)
		docker export "$container" | tar -x -C "$root"
		docker rm "$container" >/dev/null
		echo "$id" >"$root.id"
	fi
	export "$3=$root"
}
if command -v apptainer >/dev/null; then
	[ -n "${BOTSCREEN_TEST_ROOT:-}" ] || unpack "$image" desktop-root BOTSCREEN_TEST_ROOT
	[ -z "$full" ] || [ -n "${BOTSCREEN_TEST_BROWSER_ROOT:-}" ] || unpack "$full" browser-root BOTSCREEN_TEST_BROWSER_ROOT
fi
"${command[@]}"
