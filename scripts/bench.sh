#!/usr/bin/env bash
# Measures the targets beside their references on an otherwise idle machine and writes
# docs/benchmarks/latest.json. Arguments go to the program, for example -n 3.
set -euo pipefail
cd "$(dirname "$0")/.."
scripts/with-engine.sh go run ./scripts/bench/targets "$@"
