#!/usr/bin/env bash
# The gate of the sandbox image: as a user without any privilege every program resolves,
# and then a screen comes up in it, passes the conformance suite, answers three viewers
# over an exec's input and output, and shows a browser.
#
#   smoke.sh IMAGE
#
# DOCKER_HOST says which engine has it (unix:// only).
set -euo pipefail
cd "$(dirname "$0")/../.."

image=${1:-}
if [ -z "$image" ]; then
	echo "usage: smoke.sh IMAGE" >&2
	exit 2
fi
programs=(
	Xvnc xfwm4 xfce4-panel xfdesktop xfsettingsd xfce4-terminal dbus-daemon fc-list chromium
	git curl jq rg fd tmux less nano vim zip unzip rsync tree ps htop sudo python3 node
)
fonts=("Noto Sans CJK JP" "Noto Color Emoji" "DejaVu Sans")

run=(docker run --rm --network none --user 65000:65000 --cap-drop ALL --security-opt no-new-privileges "$image")
fail=0
# shellcheck disable=SC2016 # expanded inside
missing=$("${run[@]}" sh -c 'for p; do command -v "$p" >/dev/null || [ -x "/usr/lib/$(uname -m)-linux-gnu/xfce4/$p" ] || echo "$p"; done' sh "${programs[@]}")
if [ -n "$missing" ]; then
	echo "$image lacks: ${missing//$'\n'/ }" >&2
	fail=1
fi
for font in "${fonts[@]}"; do
	if ! "${run[@]}" fc-list ":family=$font" 2>/dev/null | grep -q .; then
		echo "$image lacks the font $font" >&2
		fail=1
	fi
done
if [ "$("${run[@]}" stat -c %A /tmp/.X11-unix)" != drwxrwxrwt ]; then
	echo "$image: /tmp/.X11-unix is not 1777" >&2
	fail=1
fi
[ $fail -eq 0 ] || exit 1

log=$(mktemp)
trap 'rm -f "$log"' EXIT
BOTSCREEN_TEST_DOCKER=${DOCKER_HOST:-unix:///var/run/docker.sock} BOTSCREEN_TEST_IMAGE=$image \
	go test -count=1 -v -run 'TestConformance$|TestScreenOfADriver|TestElsewhereScreen' ./driver/isolation/docker | tee "$log"
# A node without user namespaces skips the browser, and a gate that has not tried it is none.
if ! grep -q -e '--- PASS: TestConformance/W1_X23' "$log"; then
	echo "the browser of $image was not tried; the line with W1_X23 above says why" >&2
	exit 1
fi
