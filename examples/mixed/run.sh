#!/usr/bin/env bash
# Starts a server, an executor and four workers (Python, TypeScript, an MCP server, a shell script), and calls them all in
# one turn: plan.yaml. Needs Go, Python 3.10, Node 20 and, the first time, their package registries; without one of them it
# says what is missing and ends with 0. What it fetches stays in $TOOLBUS_CACHE (default ~/.cache/toolbus).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${TOOLBUS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/toolbus}/mixed
tmp=$(mktemp -d)
mkdir -p "$cache/node"
started=()

finish() {
	local code=$? pid
	for pid in "${started[@]}"; do kill "$pid" 2>/dev/null || true; done
	for pid in "${started[@]}"; do wait "$pid" 2>/dev/null || true; done
	[ "$code" = 0 ] || tail -n 20 "$tmp"/*.log >&2
	rm -rf "$tmp"
}
trap finish EXIT
trap 'exit 130' INT TERM

skip() {
	echo "!!! SKIPPED examples/mixed: $*"
	exit 0
}

# quietly COMMAND...: what it says only matters where it fails.
quietly() { timeout 300 "$@" >"$tmp/setup.log" 2>&1; }

# start NAME COMMAND...: in the background, until the end.
start() {
	local name=$1
	shift
	"$@" >"$tmp/$name.log" 2>&1 &
	started+=($!)
}

for p in go python3 node npm npx; do command -v "$p" >/dev/null || skip "there is no $p"; done

go build -C "$root" -o "$tmp/" ./cmd/executor ./cmd/toolworker
[ -x "$cache/venv/bin/python" ] || quietly python3 -m venv "$cache/venv" || skip "python3 -m venv does not work here"
quietly "$cache/venv/bin/python" -m pip install "$root/sdk/python" || skip "the Python SDK cannot be installed: $(tail -n 1 "$tmp/setup.log")"
[ -d "$root/sdk/typescript/dist" ] || {
	quietly npm --prefix "$root/sdk/typescript" ci && quietly npm --prefix "$root/sdk/typescript" run build
} || skip "the TypeScript SDK cannot be built: $(tail -n 1 "$tmp/setup.log")"
echo '{"private": true, "type": "module"}' >"$cache/node/package.json"
quietly npm --prefix "$cache/node" install --no-audit --no-fund --install-links \
	"$root/sdk/typescript" zod tsx @modelcontextprotocol/server-filesystem || skip "npm packages cannot be fetched: $(tail -n 1 "$tmp/setup.log")"
cp "$here/packing.ts" "$cache/node"

start executor "$tmp/executor" dev --port -1 --store-dir "$tmp/store"
for _ in $(seq 100); do
	TOOLBUS_NATS_URL=$(sed -n 's/^ *nats  *//p' "$tmp/executor.log")
	[ -n "$TOOLBUS_NATS_URL" ] && break
	sleep 0.1
done
[ -n "$TOOLBUS_NATS_URL" ] || { echo "the executor did not start" >&2; exit 1; }
export TOOLBUS_NATS_URL

start python env PYTHONPATH="$here" "$cache/venv/bin/python" -m toolbus run sky
start typescript env -C "$cache/node" node --import tsx node_modules/toolbus/dist/cli.js run packing.ts
start mcp "$tmp/toolworker" mcp --tool-prefix files_ --only read_text_file --dir "$here" -- \
	node "$cache/node/node_modules/@modelcontextprotocol/server-filesystem/dist/index.js" "$here"
start shell "$tmp/toolworker" exec --manifest "$here/../tools/disk.yaml" -- sh "$here/../tools/disk.sh"

for tool in sky packing files_read_text_file disk; do
	for _ in $(seq 150); do
		"$tmp/executor" tools --json 2>/dev/null | grep -q "\"name\": \"$tool\"" && continue 2
		sleep 0.2
	done
	echo "nobody announced the tool $tool" >&2
	exit 1
done
"$tmp/executor" turn run "$here/plan.yaml" --values --turn mixed
printf '\nWhich shows, while this server is still there:\n\n'
"$tmp/executor" trace mixed
