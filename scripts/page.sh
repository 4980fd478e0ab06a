#!/usr/bin/env bash
# Builds the viewer's page, from exactly the packages of its lockfile and without running
# any script of theirs. With -try it leaves a machine without npm, or without a registry,
# as it is: the programs then build without the page and say so.
set -euo pipefail
cd "$(dirname "$0")/../shared/relay/webviewer/page"
dist=../dist/page.html.gz
newest=$(find . -name node_modules -prune -o -type f -newer $dist -print 2>/dev/null | head -n 1 || true)
if [ -e $dist ] && [ -z "$newest" ]; then
	exit 0
fi
build() {
	npm ci --ignore-scripts --loglevel=error && npm test --silent && npm run --silent build
}
if [ "${1:-}" != -try ]; then
	build
elif ! command -v npm >/dev/null || ! build; then
	echo "page: not built (npm, or its packages, cannot be had here); botscreen is built without the viewer's page" >&2
fi
