#!/bin/sh
# SPDX-License-Identifier: MPL-2.0
#
# Generates the Go code of Nomad's plugin protocol from the .proto files beside it.
# With -check it changes nothing and fails when the committed code differs.
# Needs protoc with its well-known types (Debian: protobuf-compiler, libprotobuf-dev) and Go;
# the two generators are fetched by Go at the versions below.
set -eu

gen_go=google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.12
gen_grpc=google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.1

root=$(cd "$(dirname "$0")/.." && pwd)
protos=$root/shared/nomadplugin/proto
module=$(cd "$root" && go list -m)

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
mkdir "$work/bin" "$work/out"
GOBIN=$work/bin GOFLAGS=-mod=mod go install "$gen_go"
GOBIN=$work/bin GOFLAGS=-mod=mod go install "$gen_grpc"

(
	cd "$protos"
	# shellcheck disable=SC2046 # the paths are ours and have no spaces
	PATH=$work/bin:$PATH protoc -I . \
		--go_out="$work/out" --go_opt=module="$module" \
		--go-grpc_out="$work/out" --go-grpc_opt=module="$module" \
		$(find plugins -name '*.proto' | sort)
)

# The generated header names the version of the protoc that ran; it says nothing about the code and
# would differ between machines.
find "$work/out" -name '*.pb.go' -exec \
	sed -i -E '/^\/\/\s+(- )?protoc(-gen-go(-grpc)?)?\s+v[0-9.]+$/d; /^\/\/ versions:$/d' {} +

if [ "${1-}" = -check ]; then
	stale=$(diff -rq -x '*.proto' -x doc.go -x plugins "$work/out/shared/nomadplugin/proto" "$protos" || true)
	if [ -n "$stale" ]; then
		printf '%s\n%s\n' "$stale" "generated plugin protocol code is stale: run scripts/generate-proto.sh" >&2
		exit 1
	fi
	exit 0
fi
find "$protos" -name '*.pb.go' -exec rm {} +
cp -R "$work/out/shared/nomadplugin/proto/." "$protos/"
