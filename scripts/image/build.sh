#!/usr/bin/env bash
# Builds the sandbox image without a registry: the base comes from Debian's archive by
# mmdebstrap, from the same package lists that the Dockerfile reads.
#
#   build.sh desktop|full TAG
#
# desktop is what a screen needs and nothing else; full adds the browser and the tools.
# DOCKER_HOST says which engine gets it, SUITE which Debian (bookworm).
set -euo pipefail
cd "$(dirname "$0")"

variant=${1:-} tag=${2:-}
if [ -z "$tag" ] || { [ "$variant" != desktop ] && [ "$variant" != full ]; }; then
	echo "usage: build.sh desktop|full TAG" >&2
	exit 2
fi
lists=(packages-desktop.txt)
[ "$variant" = desktop ] || lists+=(packages-full.txt)

for program in mmdebstrap docker; do
	if ! command -v "$program" >/dev/null; then
		echo "The image cannot be built: $program is not installed. Run:  apt-get install -y --no-install-recommends mmdebstrap docker.io" >&2
		exit 1
	fi
done
if ! docker version >/dev/null 2>&1; then
	echo "The image cannot be built: no docker engine answers at ${DOCKER_HOST:-/var/run/docker.sock}. Start it or set DOCKER_HOST." >&2
	exit 1
fi

packages=$(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "${lists[@]}" | sort -u | paste -sd,)
archive=$(mktemp --suffix=.tar)
trap 'rm -f "$archive"' EXIT

# prepare.sh makes the image's user and directories, in both ways of building it; what it
# makes in /tmp has to stay. The hooks are mmdebstrap's to expand.
# shellcheck disable=SC2016
mmdebstrap --quiet --variant=minbase --skip=cleanup/tmp --include="$packages" \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' --dpkgopt='path-exclude=/usr/share/man/*' \
	--customize-hook='copy-in prepare.sh /' \
	--customize-hook='chroot "$1" sh /prepare.sh' \
	--customize-hook='rm "$1/prepare.sh"' \
	"${SUITE:-bookworm}" "$archive"
docker import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
	--change 'ENV LANG=C.UTF-8' --change 'USER 1000:1000' "$archive" "$tag"
