#!/bin/sh
# What CI runs for the TypeScript SDK. Needs Node 20 or later; Go for the tests on a real server.
set -eu
cd "$(dirname "$0")"

if ! command -v node >/dev/null || ! command -v npm >/dev/null; then
	echo "SKIPPED: sdk/typescript: there is no Node" >&2
	exit 0
fi
npm ci --no-audit --no-fund
npx biome check .
npx tsc --noEmit
npx vitest run
npm run --silent build:conformance
npm pack --dry-run
command -v go >/dev/null || echo "SKIPPED: sdk/typescript: there is no Go, so nothing ran on a real server" >&2
