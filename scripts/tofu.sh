#!/usr/bin/env bash
# Builds OpenTofu from the Go module proxy into .botscreen/tofu, unless it is there. Its
# go.mod has a replace, so `go install` refuses it: it is built where it was downloaded.
set -euo pipefail
cd "$(dirname "$0")/.."
version=${1:?version}
out=$PWD/.botscreen/tofu
if [ -x "$out/tofu" ] && [ "$(cat "$out/version" 2>/dev/null)" = "$version" ]; then
	exit 0
fi
mkdir -p "$out"
dir=$(go mod download -json "github.com/opentofu/opentofu@$version" | sed -n 's/^[[:space:]]*"Dir": "\(.*\)",$/\1/p')
[ -n "$dir" ] || { echo "OpenTofu $version cannot be downloaded from the Go module proxy" >&2; exit 1; }
echo "Building OpenTofu $version; this takes some minutes once"
(cd "$dir" && CGO_ENABLED=0 GOFLAGS=-buildvcs=false go build -mod=readonly -trimpath -ldflags '-s -w' -o "$out/tofu" ./cmd/tofu)
echo "$version" >"$out/version"
