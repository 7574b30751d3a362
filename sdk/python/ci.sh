#!/bin/sh
# Everything about the Python SDK: lint, types, tests, the wheel. Needs Python 3.10 or later and a package index; Go for the
# tests against a server, which are skipped without it, and say so.
set -eu
cd "$(dirname "$0")"
python=${PYTHON:-python3}
venv=${TOOLBUS_VENV:-.venv}

[ -x "$venv/bin/python" ] || "$python" -m venv "$venv"
"$venv/bin/pip" install --quiet --disable-pip-version-check -e '.[otel]' \
	'build>=1.2' 'mypy>=1.15' 'opentelemetry-sdk>=1.27,<2' 'pytest>=8.3' 'pytest-asyncio>=0.25' 'ruff>=0.9' 'hatchling>=1.27'

echo "── ruff"
"$venv/bin/ruff" check .
"$venv/bin/ruff" format --check .
echo "── mypy --strict"
"$venv/bin/mypy"
echo "── pytest"
if ! command -v go >/dev/null; then
	echo "SKIPPED: everything against a real NATS server, because there is no Go to build one with" >&2
fi
"$venv/bin/pytest" -rs
echo "── wheel"
"$venv/bin/python" -m build --no-isolation --outdir dist . >/dev/null
ls dist/*.whl

# The conformance run, where its runner is built: TOOLWORKER=path/to/toolworker ./ci.sh
if [ -n "${TOOLWORKER:-}" ]; then
	echo "── conformance, full"
	"$TOOLWORKER" conformance --level full -- "$venv/bin/python" tests/conformance_worker.py
else
	echo "SKIPPED: conformance, because TOOLWORKER does not name a toolworker" >&2
fi
