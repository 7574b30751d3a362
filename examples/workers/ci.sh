#!/usr/bin/env bash
# Builds each worker of this folder whose toolchain is here, plays the conformance transcripts of its level to it, and
# prints a table. What it cannot do without, a toolchain or a package registry, it skips loudly. With names as arguments,
# only those: ci.sh rust shell.
#
# Nothing is built in the source tree. What is fetched and built stays in $TOOLBUS_CACHE (default ~/.cache/toolbus), so
# that only the first run takes more than some seconds. TOOLWORKER names a toolworker; without it one is built.
set -uo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
cache=${TOOLBUS_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}/toolbus}/workers
mkdir -p "$cache"
fetching=${FETCH_SECONDS:-120} building=${BUILD_SECONDS:-300} playing=${PLAY_SECONDS:-90}
log=$(mktemp)
trap 'rm -f "$log"' EXIT
failed=0

skip() { printf '!!! SKIPPED %-11s %s\n' "$1" "$2"; }
fail() {
	printf '*** FAILED  %-11s %s\n' "$1" "$2"
	tail -n 60 "$log"
	failed=1
}

# have LANGUAGE PROGRAM...: whether they are all here.
have() {
	local language=$1 p
	shift
	for p; do
		command -v "$p" >/dev/null 2>&1 || { skip "$language" "there is no $p"; return 1; }
	done
}

# fetch LANGUAGE COMMAND...: what needs a registry. Where that cannot be reached there is no worker, and no failure.
fetch() {
	local language=$1
	shift
	timeout "$fetching" "$@" >"$log" 2>&1 && return
	tail -n 5 "$log"
	skip "$language" "what it depends on cannot be fetched: $*"
	return 1
}

# build LANGUAGE COMMAND...: what needs no network any more.
build() {
	local language=$1
	shift
	timeout "$building" "$@" >"$log" 2>&1 && return
	fail "$language" "$*"
	return 1
}

# play LANGUAGE LEVEL COMMAND...
play() {
	local language=$1 level=$2 begun=$SECONDS
	shift 2
	if timeout "$playing" "$toolworker" conformance --level "$level" -- "$@" >"$log" 2>&1; then
		printf 'pass        %-11s %s, %d s\n' "$language" "$(tail -n 1 "$log")" $((SECONDS - begun))
	else
		fail "$language" "conformance --level $level"
	fi
}

shell() { play shell plain bash "$here/shell/worker.sh"; }

go_() {
	have go go && build go go -C "$root" build -o "$cache/go" ./examples/workers/go && play go plain "$cache/go"
}

python() {
	have python python3 || return
	[ -x "$cache/python/bin/python" ] || fetch python python3 -m venv "$cache/python" || return
	"$cache/python/bin/python" -c 'import nats' 2>/dev/null ||
		fetch python "$cache/python/bin/python" -m pip install -q 'nats-py>=2.16,<3' || return
	play python plain "$cache/python/bin/python" "$here/python/worker.py"
}

typescript() {
	have typescript node npm || return
	local to=$cache/typescript
	mkdir -p "$to"
	cmp -s "$here/typescript/package.json" "$to/package.json" && [ -d "$to/node_modules" ] || {
		cp "$here/typescript/package.json" "$to"
		fetch typescript npm --prefix "$to" install --no-audit --no-fund --no-package-lock || { rm "$to/package.json"; return; }
	}
	build typescript "$to/node_modules/.bin/esbuild" "$here/typescript/worker.ts" --format=esm --outfile="$to/worker.mjs" &&
		play typescript plain node "$to/worker.mjs"
}

rust() {
	have rust cargo || return
	local cargo=(env CARGO_TARGET_DIR="$cache/rust" cargo)
	fetch rust cargo fetch --quiet --locked --manifest-path "$here/rust/Cargo.toml" &&
		build rust "${cargo[@]}" build --quiet --locked --offline --manifest-path "$here/rust/Cargo.toml" &&
		play rust standard "$cache/rust/debug/worker"
}

java() {
	have java java javac || return
	local to=$cache/java
	cmp -s "$here/java/pom.xml" "$to/pom.xml" || {
		have java mvn || return
		mkdir -p "$to"
		fetch java mvn -q -B -f "$here/java/pom.xml" dependency:copy-dependencies -DoutputDirectory="$to/lib" || return
		cp "$here/java/pom.xml" "$to"
	}
	build java javac -Xlint:all -Werror -cp "$to/lib/*" -d "$to/classes" "$here/java/Worker.java" &&
		play java standard java -cp "$to/classes:$to/lib/*" Worker
}

toolworker=${TOOLWORKER:-$cache/toolworker}
if [ -z "${TOOLWORKER:-}" ]; then
	have toolworker go || exit 0
	build toolworker go -C "$root" build -o "$toolworker" ./cmd/toolworker || exit 1
fi
for language in "${@:-all}"; do
	case $language in
	all) shell; go_; python; typescript; rust; java ;;
	go) go_ ;;
	shell | python | typescript | rust | java) "$language" ;;
	*) echo "ci.sh: $language: expected shell, go, python, typescript, rust or java" >&2; exit 2 ;;
	esac
done
exit $failed
