#!/usr/bin/env bash
# Everything that needs no running program: formatting, vet, staticcheck, generated
# files, the structure of the code, shell scripts. Prints what is wrong and ends with a status.
set -euo pipefail
cd "$(dirname "$0")/.."
staticcheck=$1

fail=0
unformatted=$(git ls-files -z "*.go" | xargs -0 gofmt -l)
if [ -n "$unformatted" ]; then
	printf 'gofmt: these files are not formatted:\n%s\n' "$unformatted" >&2
	fail=1
fi
go vet ./... || fail=1
go run "$staticcheck" ./... || fail=1
scripts/generate-proto.sh -check || fail=1
structure=$(go test ./acctest/structure 2>&1) || { # who may import whom, one home for each library
	printf '%s\n' "$structure" >&2
	fail=1
}
if command -v shellcheck >/dev/null; then
	find scripts .ci -type f -print0 | xargs -0 grep -lZ '^#!.*\bsh\b\|^#!.*bash' | xargs -0 shellcheck || fail=1
else
	echo "shellcheck is not installed: scripts not checked" >&2
	fail=1
fi
go mod verify >/dev/null || fail=1
[ $fail -eq 0 ] && echo "check: ok"
exit $fail
