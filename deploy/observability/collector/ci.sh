#!/usr/bin/env bash
# Starts an OpenTelemetry Collector, Prometheus and Jaeger with the configurations of deploy/observability, and executor and
# workers in Go, Python and TypeScript around them. Needs Go and its module proxy. What else is not here is skipped loudly:
# python3 and a package index, node with npm and its registry, prometheus, and Jaeger, which JAEGER names.
#
# What is fetched stays in $TOOLBUS_CACHE (default ~/.cache/toolbus). TOOLBUS_TEST_EXECUTOR and TOOLWORKER name our programs;
# without them they are built. sdk/typescript must be built: npm ci && npm run build there.
set -euo pipefail
cd "$(dirname "$0")"
sdk=$(cd ../../../sdk && pwd)
cache=${TOOLBUS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/toolbus}/collector
cache=$cache/$(cat ci.sh "$sdk/python/pyproject.toml" <(echo "$sdk") | sha256sum | cut -c 1-16) # of this checkout
mkdir -p "$cache"

# once NAME: runs fetch_NAME where it did not succeed before.
once() {
	[ -e "$cache/$1.ok" ] || { timeout 240 bash -c "fetch_$1" && touch "$cache/$1.ok"; }
}
fetch_python() {
	python3 -m venv --clear "$cache/python" &&
		"$cache/python/bin/pip" install --quiet --disable-pip-version-check -e "$sdk/python[otel]" \
			'opentelemetry-sdk>=1.27,<2' 'opentelemetry-exporter-otlp-proto-http>=1.27,<2'
}
fetch_node() { # the SDK as it stands in this checkout, and what exports spans
	npm install --silent --no-audit --no-fund --no-package-lock --prefix "$cache/node" "$sdk/typescript" \
		'@opentelemetry/api@~1.9.1' '@opentelemetry/resources@^2.12.0' '@opentelemetry/sdk-trace-node@^2.12.0' \
		'@opentelemetry/exporter-trace-otlp-proto@>=0.200 <1'
}
export -f fetch_python fetch_node
export cache sdk

if ! command -v python3 >/dev/null || ! once python; then
	echo "!!! SKIPPED Python: there is no python3, or no package index" >&2
fi
if ! command -v npm >/dev/null || ! once node; then
	echo "!!! SKIPPED TypeScript: there is no npm, or its registry cannot be reached" >&2
elif ! [ -e "$sdk/typescript/dist/index.js" ]; then
	echo "!!! SKIPPED TypeScript: sdk/typescript is not built (npm ci && npm run build)" >&2
fi

unformatted=$(gofmt -l .)
[ -z "$unformatted" ] || { echo "not gofmt-ed: $unformatted" >&2; exit 1; }
go vet . # and no go mod tidy: it fetches hundreds of modules more than are built here
PYTHON="$cache/python/bin/python" NODE_MODULES="$cache/node/node_modules" go test -count=1 -timeout 4m -v .
