"""``python -m toolbus run module``: a worker from the tools of a module.

Exit codes: 0 it left cleanly, 1 calls had to be abandoned, 2 a mistake in what was given, 3 NATS cannot be reached or
refuses, 130 ended at once by a second Ctrl-C.
"""

from __future__ import annotations

import argparse
import asyncio
import importlib
import json
import logging
import os
import sys
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from .bus import Bus
from .errors import Denied, ToolError, Unavailable
from .signals import heard
from .tools import AnyTool, Tool
from .version import VERSION
from .worker import Worker


def main(argv: list[str] | None = None) -> int:
    """The program. It returns the exit code."""
    args = _parser().parse_args(argv)
    _log(args.log_format, args.log_level)
    try:
        tools = load(args.app)
    except (ImportError, AttributeError, TypeError, ValueError) as e:
        print(f"toolbus: {args.app}: {e}", file=sys.stderr)
        return 2
    code = asyncio.run(_run(args, tools))
    if code in (1, 130):
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)  # threads that do not stop are still there
    return code


def load(app: str) -> list[AnyTool]:
    """The tools of ``module`` or ``module:name``, where name is a tool or a list of them."""
    module_name, _, name = app.partition(":")
    sys.path.insert(0, str(Path.cwd()))
    module = importlib.import_module(module_name)
    found: Any = getattr(module, name) if name else [v for v in vars(module).values() if isinstance(v, Tool)]
    tools = [found] if isinstance(found, Tool) else list(found) if isinstance(found, Iterable) else None
    if tools is None or not all(isinstance(t, Tool) for t in tools):
        raise TypeError(f"expected a function with @tool, or a list of them, got {found!r:.100}")
    if not tools:
        raise ValueError("there is no function with @tool in it")
    return list(dict.fromkeys(tools))


async def _run(args: argparse.Namespace, tools: list[AnyTool]) -> int:
    options: dict[str, Any] = {}
    if args.creds:
        options["user_credentials"] = args.creds
    if args.nkey:
        options["nkeys_seed"] = args.nkey
    try:
        bus = await Bus.connect(args.nats_url, name="toolbus worker", prefix=args.prefix, worker_id=args.id, **options)
    except (Unavailable, Denied) as e:
        print(f"toolbus: {e}", file=sys.stderr)
        return 3
    except (ToolError, ValueError, OSError) as e:
        print(f"toolbus: {e}", file=sys.stderr)
        return 2
    try:
        worker = Worker(bus, tools, concurrency=args.concurrency, grace=args.grace)
    except (ValueError, TypeError) as e:
        print(f"toolbus: {e}", file=sys.stderr)
        await bus.close()
        return 2
    stopped = False

    def told() -> None:
        nonlocal stopped
        if stopped:
            os._exit(130)
        stopped = True
        worker.stop()

    announced = asyncio.create_task(_say_ready(worker, tools))
    try:
        with heard(told):
            left = await worker.run()
    except (Unavailable, Denied) as e:
        print(f"toolbus: {e}", file=sys.stderr)
        return 3
    finally:
        announced.cancel()
        await bus.close()
    for call in left:
        print(f"toolbus: abandoned {call}, which did not stop", file=sys.stderr)
    return 1 if left else 0


async def _say_ready(worker: Worker, tools: list[AnyTool]) -> None:
    await worker.ready.wait()
    names = ", ".join(t.name for t in tools)
    logging.getLogger("toolbus").info("serving %s as worker %s; Ctrl-C drains", names, worker.id)


def _env(name: str, default: str = "") -> str:
    return os.environ.get(f"TOOLBUS_{name}", default)


def _parser() -> argparse.ArgumentParser:
    p = argparse.ArgumentParser(prog="python -m toolbus", description="Tools for AI agents over NATS.")
    p.add_argument("--version", action="version", version=VERSION)
    run = p.add_subparsers(dest="command", required=True, metavar="COMMAND").add_parser(
        "run", help="serve the tools of a module until SIGTERM or Ctrl-C; a second Ctrl-C ends it at once"
    )
    run.add_argument("app", help="module, or module:name of a tool or a list of tools")
    # Defaults from the environment are text, so that argparse checks them like flags.
    run.add_argument("--nats-url", default=_env("NATS_URL"), help="NATS server, or several with commas (TOOLBUS_NATS_URL)")
    run.add_argument("--prefix", default=_env("PREFIX"), help="first token of all subjects, default tb (TOOLBUS_PREFIX)")
    run.add_argument("--id", default=_env("ID"), help="name of this worker on the bus, default a random one (TOOLBUS_ID)")
    run.add_argument(
        "--concurrency", type=_positive, default=_env("CONCURRENCY") or None,
        help="calls at once, default four per CPU (TOOLBUS_CONCURRENCY)",
    )  # fmt: skip
    run.add_argument(
        "--grace",
        type=_seconds,
        default=_env("GRACE", "10"),
        help="seconds that running calls get at the end (TOOLBUS_GRACE)",
    )
    run.add_argument("--creds", default=_env("CREDS"), help="file with NATS credentials (TOOLBUS_CREDS)")
    run.add_argument("--nkey", default=_env("NKEY"), help="file with an nkey seed (TOOLBUS_NKEY)")
    run.add_argument("--log-format", choices=("text", "json"), default=_env("LOG_FORMAT", "text"))
    run.add_argument("--log-level", choices=("debug", "info", "warn", "error"), default=_env("LOG_LEVEL", "info"))
    return p


def _positive(text: str) -> int:
    n = int(text)
    if n < 1:
        raise argparse.ArgumentTypeError(f"expected 1 or more, got {n}")
    return n


def _seconds(text: str) -> float:
    n = float(text)
    if not 0 <= n <= 86_400:
        raise argparse.ArgumentTypeError(f"expected 0 to 86400, got {text}")
    return n


class _JSONLines(logging.Formatter):
    """One JSON object per line."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, Any] = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created)) + f".{int(record.msecs):03d}Z",
            "level": record.levelname,
            "msg": record.getMessage(),
            "logger": record.name,
        }
        for field in ("tool", "call", "worker"):
            if value := getattr(record, field, ""):
                line[field] = value
        if record.exc_info:
            line["detail"] = self.formatException(record.exc_info)
        return json.dumps(line, ensure_ascii=False)


class _Text(logging.Formatter):
    """A line for people."""

    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        tool, call = getattr(record, "tool", ""), getattr(record, "call", "")
        return f"{text} tool={tool} call={call}" if tool else text


def _log(style: str, level: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_JSONLines() if style == "json" else _Text("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(level="WARNING" if level == "warn" else level.upper(), handlers=[handler])
