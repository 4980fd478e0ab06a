#!/usr/bin/env bash
# Builds the sandbox image without a registry: the base comes from Debian's archive by
# mmdebstrap, from the same package lists that the Dockerfile reads.
#
#   build.sh desktop|full TAG      an image of the docker engine
#   build.sh desktop|full FILE.sif an image file for apptainer
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

engine=docker
[[ $tag != *.sif ]] || engine=apptainer
for program in mmdebstrap "$engine"; do
	if ! command -v "$program" >/dev/null; then
		echo "The image cannot be built: $program is not installed. Install it: mmdebstrap and docker.io are Debian's packages, apptainer is at https://apptainer.org" >&2
		exit 1
	fi
done
if [ $engine = docker ] && ! docker version >/dev/null 2>&1; then
	echo "The image cannot be built: no docker engine answers at ${DOCKER_HOST:-/var/run/docker.sock}. Start it or set DOCKER_HOST." >&2
	exit 1
fi

packages=$(sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "${lists[@]}" | sort -u | paste -sd,)
archive=$(mktemp --suffix=.tar)
root=$(mktemp -d)
trap 'rm -rf "$archive" "$root"' EXIT

# prepare.sh makes the image's user and directories, in both ways of building it; what it
# makes in /tmp has to stay. The hooks are mmdebstrap's to expand.
# shellcheck disable=SC2016
mmdebstrap --quiet --variant=minbase --skip=cleanup/tmp --include="$packages" \
	--dpkgopt='path-exclude=/usr/share/doc/*' --dpkgopt='path-include=/usr/share/doc/*/copyright' --dpkgopt='path-exclude=/usr/share/man/*' \
	--customize-hook='copy-in prepare.sh /' \
	--customize-hook='chroot "$1" sh /prepare.sh' \
	--customize-hook='rm "$1/prepare.sh"' \
	"${SUITE:-bookworm}" "$archive"
if [ $engine = apptainer ]; then
	tar -x -C "$root" -f "$archive" --exclude='./dev/*'
	apptainer --silent build --force "$tag" "$root"
	exit
fi
docker import --change 'ENV PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' \
	--change 'ENV LANG=C.UTF-8' --change 'USER 1000:1000' --change "LABEL botscreen.image=$variant" "$archive" "$tag"
