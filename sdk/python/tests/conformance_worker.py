"""The worker of conformance/README.md: ``python tests/conformance_worker.py``, told everything by the environment."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from toolbus import Context, error, tool
from toolbus.cli import main


@tool(effect="read")
def conf_echo(**args: Any) -> dict[str, Any]:
    """Answers with its arguments."""
    return args


@tool(effect="read")
def conf_size(data: str) -> dict[str, int]:
    """Says how long a text is, in bytes of UTF-8."""
    return {"bytes": len(data.encode())}


@tool(effect="read")
async def conf_add(a: int, b: int) -> dict[str, int]:
    """Adds two integers."""
    return {"sum": a + b}


@tool(effect="read")
async def conf_fail(
    kind: str, message: str, code: str = "", detail: str = "", retry_after_ms: int = 0, execution: str = ""
) -> None:
    """Fails with exactly that fault."""
    more: dict[str, Any] = {"execution": execution}
    raise error(kind, message, code=code, detail=detail, retry_after=retry_after_ms / 1000, **more)


@tool(effect="read")
def conf_crash() -> None:
    """Fails in a way that nobody classified."""
    raise ZeroDivisionError("nobody saw this coming")


@tool(effect="idempotent")
async def conf_sleep(ctx: Context, ms: int, progress_every_ms: int = 0, ignore_cancel: bool = False) -> dict[str, int]:
    """Sleeps, and ends at a cancel unless it is to ignore it."""
    end = time.monotonic() + ms / 1000
    while (left := end - time.monotonic()) > 0:
        try:
            await asyncio.sleep(min(left, (progress_every_ms or ms) / 1000))
        except asyncio.CancelledError:
            if not ignore_cancel:
                raise
        if progress_every_ms:
            ctx.progress(min(ms, ms - (end - time.monotonic()) * 1000), ms)
    return {"slept": ms}


@tool(effect="read")
def conf_context(ctx: Context) -> dict[str, Any]:
    """Answers what it was told."""
    return {
        "turn": ctx.turn,
        "call": ctx.call,
        "attempt": ctx.attempt,
        "session": ctx.session,
        "key": ctx.key,
        "timeout_ms": ctx.timeout_ms,
        "traceparent": ctx.traceparent,
    }


@tool(effect="read")
def conf_stream(ctx: Context, pieces: int) -> dict[str, int]:
    """Sends pieces ahead."""
    for i in range(pieces):
        ctx.partial({"i": i + 1})
    return {"pieces": pieces}


@tool(effect="read")
def conf_big(bytes: int) -> dict[str, str]:  # noqa: A002
    """Answers with that many bytes."""
    return {"data": "x" * bytes}


_runs = 0


@tool(effect="write", keeps_keys=True)
async def conf_count(n: int) -> dict[str, int]:
    """Counts its runs in this process."""
    global _runs
    _runs += 1
    return {"runs": _runs, "n": n}


if __name__ == "__main__":
    sys.exit(main(["run", "__main__"]))
