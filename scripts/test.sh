#!/usr/bin/env bash
# Runs all tests with the race detector and closes with what was skipped and why.
set -euo pipefail
cd "$(dirname "$0")/.."
# The binaries under test are built once; tests find them here.
BOTSCREEN_BIN=$PWD/bin
export BOTSCREEN_BIN
# Every process of a test binary would otherwise sleep a second at its exit.
export GORACE="${GORACE:+$GORACE }atexit_sleep_ms=10"
scripts/with-engine.sh go test -race -timeout 30m -json "${@:-./...}" | go run ./scripts/testsum
