#!/usr/bin/env bash
# Installs what the workers of this benchmark need ($TOOLBUS_CACHE, default ~/.cache/toolbus, keeps it), and runs it. The
# arguments are the program's. A language whose toolchain or packages are not to be had is left out, loudly.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
base=${TOOLBUS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/toolbus}
cache=$base/bench
mkdir -p "$cache"
cp "$here"/*.py "$here"/*.mjs "$cache"
have=(-dir "$cache")

quietly() { timeout 300 "$@" >"$cache/setup.log" 2>&1; }
skip() {
	echo "!!! SKIPPED $*" >&2
	tail -n 3 "$cache/setup.log" >&2 2>/dev/null || true
}

if { [ -x "$cache/venv/bin/python" ] || quietly python3 -m venv "$cache/venv"; } &&
	quietly "$cache/venv/bin/python" -m pip install "$root/sdk/python"; then
	have+=(-python "$cache/venv/bin/python")
else
	skip "Python: no python3 with venv, or the SDK cannot be installed"
fi

echo '{"private": true, "type": "module"}' >"$cache/package.json"
if { [ -d "$root/sdk/typescript/dist" ] ||
	{ quietly npm --prefix "$root/sdk/typescript" ci && quietly npm --prefix "$root/sdk/typescript" run build; }; } &&
	quietly npm --prefix "$cache" install --no-audit --no-fund --install-links "$root/sdk/typescript" @nats-io/transport-node; then
	have+=(-node "$(command -v node)")
else
	skip "TypeScript: no Node, or the SDK cannot be built and installed"
fi

if [ -x "$base/workers/rust/debug/worker" ] && [ -d "$base/workers/java/classes" ]; then
	have+=(-extra "$base/workers")
else
	skip "Rust and Java: run examples/workers/ci.sh first"
fi
go build -C "$root" -o "$cache/bench" ./bench/sdk
exec "$cache/bench" "${have[@]}" "$@"
