#!/usr/bin/env bash
# Installs what is missing on Debian or Ubuntu: for a desktop, or (without an argument)
# for the tests as well, or for the bench and its peers. Elsewhere it names the command
# to run.
#
#   install-deps.sh [desktop|bench]
set -euo pipefail

desktop=(
	Xvnc:tigervnc-standalone-server xfwm4:xfwm4 xfce4-panel:xfce4-panel xfdesktop:xfdesktop4
	xfsettingsd:xfce4-settings xfce4-terminal:xfce4-terminal dbus-daemon:dbus fc-list:fontconfig
)
tests=(
	gcc:gcc xdotool:xdotool xwininfo:x11-utils import:imagemagick ss:iproute2
	shellcheck:shellcheck protoc:protobuf-compiler chromium:chromium curl:curl xauth:xauth xsetroot:x11-xserver-utils
	dockerd:docker.io mmdebstrap:mmdebstrap node:nodejs npm:npm zenity:zenity
)

wanted=("${desktop[@]}")
[ "${1:-}" = desktop ] || wanted+=("${tests[@]}")
[ "${1:-}" != bench ] || wanted+=(websockify:websockify)

missing=()
for pair in "${wanted[@]}"; do
	command -v "${pair%%:*}" >/dev/null || [ -x "/usr/lib/x86_64-linux-gnu/${pair%%:*}" ] || missing+=("${pair##*:}")
done
# protoc needs Google's own .proto files, which are another package.
if [ "${1:-}" != desktop ] && [ ! -e /usr/include/google/protobuf/timestamp.proto ]; then
	missing+=(libprotobuf-dev)
fi
# Text without a font is empty boxes, and no program of the list brings one.
fc-list 2>/dev/null | grep -q DejaVuSans || missing+=(fonts-dejavu-core)
[ ${#missing[@]} -gt 0 ] || exit 0

if ! command -v apt-get >/dev/null; then
	echo "Missing here: ${missing[*]}. This script knows apt only; install them with this system's package manager." >&2
	exit 1
fi
install=(apt-get install -y --no-install-recommends "${missing[@]}")
if [ "$(id -u)" -ne 0 ]; then
	echo "Missing here: ${missing[*]}. Run:  sudo ${install[*]}" >&2
	exit 1
fi
echo "Installing ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
export DEBIAN_FRONTEND=noninteractive
if ! { apt-get update && "${install[@]}"; } >"$log" 2>&1; then
	tail -n 20 "$log" >&2
	exit 1
fi
