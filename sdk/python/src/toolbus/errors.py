"""The ways in which a call can go wrong: one exception for each kind of fault.

A tool raises one of them and so says exactly what happened; any other exception is classified once, by ``classify``.
A client gets the same exceptions.
"""

from __future__ import annotations

import asyncio
import builtins
import email.utils
import math
import re
import time
import traceback
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, ClassVar, Final, Literal, TypeVar

from .wire.errors import truncate
from .wire.records import Fault, Violation

Execution = Literal["", "not_started", "unknown", "stopped", "done"]
"""What is known of the run: nothing ran; it may have; it was stopped; it ran to its end. "" is what the kind says."""

MAX_MESSAGE: Final = 8 << 10
MAX_DETAIL: Final = 16 << 10
_DAY_MS: Final = 24 * 3600 * 1000


E = TypeVar("E", bound="ToolError")


class ToolError(Exception):
    """What every fault is. ``message`` is for the model and the user.

    ``detail`` is for people who run the tool and is never shown to a model. ``code`` is the tool's own, an HTTP status
    for one. ``retry_after``, in seconds, says not before when to try again. ``execution`` says what is known of the run,
    where that is not what the kind says. ``suggestions`` tell the model what to do next; None means the kind's own.
    """

    kind: str = "internal"
    transient: ClassVar[bool | None] = True
    """Whether time may mend it; None where it says nothing about the tool."""
    run: ClassVar[Execution] = "unknown"
    http: ClassVar[int] = 500
    advice: ClassVar[tuple[str, ...]] = ()

    def __new__(cls: type[E], *args: object, **_: object) -> E:
        """Sets what is there also where a class of somebody's own does not call ``__init__``."""
        e = super().__new__(cls, *args)
        e.detail = e.code = e.tool = e.worker = ""
        e.retry_after, e.attempt = 0.0, 0
        e.execution = cls.run
        e.suggestions, e.violations = list(cls.advice), []
        return e

    def __init__(
        self,
        message: str = "",
        *,
        detail: str = "",
        code: str | int = "",
        retry_after: float | timedelta = 0,
        execution: Execution = "",
        suggestions: Iterable[str] | None = None,
        violations: Iterable[Violation] = (),
        tool: str = "",
    ) -> None:
        super().__init__(message or self.kind.replace("_", " "))
        self.detail = str(detail)
        self.code = str(code)
        self.retry_after = retry_after.total_seconds() if isinstance(retry_after, timedelta) else float(retry_after)
        self.execution: Execution = execution or self.run
        if suggestions is None:
            suggestions = self.advice
        self.suggestions = [suggestions] if isinstance(suggestions, str) else [str(s) for s in suggestions]
        self.violations = [v for v in violations if isinstance(v, Violation)]
        self.tool = tool
        self.worker = ""
        self.attempt = 0

    @property
    def message(self) -> str:
        """The sentence for the model and the user."""
        try:
            return str(self)
        except Exception:  # a __str__ of somebody's own
            return type(self).__name__

    def fault(self) -> Fault:
        """The record that travels, cut down to what may: a fault must arrive."""
        return Fault(
            kind=self.kind,
            message=truncate(_utf8(self.message), MAX_MESSAGE),
            detail=truncate(_utf8(self.detail), MAX_DETAIL),
            code=truncate(_utf8(self.code), 128),
            retry_after_ms=_ms(self.retry_after),
            execution=self.execution,
            suggestions=[truncate(_utf8(s), 1024) for s in self.suggestions[:10]],
            violations=[
                Violation(truncate(_utf8(v.pointer), 1024), truncate(_utf8(v.expected), 1024), truncate(_utf8(v.got), 1024))
                for v in self.violations[:50]
            ],
            tool=self.tool,
            worker=self.worker,
            attempt=self.attempt,
        )


def _utf8(text: object) -> str:
    return str(text).encode("utf-8", "replace").decode()


def _ms(seconds: float) -> int:
    """Whole milliseconds, at most a day. A wait that is no number is none."""
    if math.isnan(seconds) or seconds <= 0:
        return 0
    return _DAY_MS if seconds * 1000 >= _DAY_MS else math.ceil(seconds * 1000)


class Timeout(ToolError):
    """It took too long. What ran is unknown unless ``execution`` says."""

    kind, http = "timeout", 504
    advice = ("Simplify the request", "Wait 30 seconds and try again", "Use an alternative tool")


class Unavailable(ToolError):
    """What the tool needs cannot be reached. Nothing ran."""

    kind, run, http = "unavailable", "not_started", 503
    advice = ("Try again after a short delay", "Use an alternative tool")


class WorkerLost(ToolError):
    """The worker, or executor, is gone. What ran is unknown."""

    kind, http = "worker_lost", 504
    advice = ("Check whether the call took effect before repeating it", "Use an alternative tool")


class Overloaded(ToolError):
    """There is no room now. Nothing ran; another worker gets the call at once."""

    kind, run, http = "overloaded", "not_started", 503
    advice = ("Try again after a short delay", "Make fewer calls at once")


class RateLimited(ToolError):
    """Too many calls: not before ``retry_after``."""

    kind, run, http = "rate_limited", "not_started", 429
    advice = ("Wait before calling this tool again", "Make fewer calls")


class Upstream(ToolError):
    """What the tool calls failed. What ran is unknown."""

    kind = "upstream"
    advice = ("Try again after a short delay", "Use an alternative tool")


class Partial(ToolError):
    """Pieces came, and then no more."""

    kind, http = "partial", 504
    advice = ("Go on with the pieces that came", "Ask for less at once")


class InvalidArguments(ToolError):
    """The arguments are wrong: all ``violations`` at once. The model mends it."""

    kind, transient, run, http = "invalid_arguments", False, "not_started", 400
    advice = ("Correct the arguments to match the tool's schema",)


class TruncatedCall(ToolError):
    """The arguments end too early, as when a model ran out of tokens."""

    kind, transient, run, http = "truncated_call", False, "not_started", 400
    advice = ("Repeat the whole call; its arguments were cut off", "Use shorter arguments")


class ToolNotFound(ToolError):
    """There is no such tool."""

    kind, transient, run, http = "tool_not_found", False, "not_started", 404
    advice = ("Use one of the available tools",)


class Denied(ToolError):
    """The caller may not."""

    kind, transient, run, http = "denied", False, "not_started", 403
    advice = ("Ask the user for access", "Use a different tool")


class ApprovalRequired(ToolError):
    """Somebody has to approve it first."""

    kind, transient, run, http = "approval_required", False, "not_started", 403
    advice = ("Ask the user to approve this call",)


class NotFound(ToolError):
    """What the call asks for does not exist."""

    kind, transient, run, http = "not_found", False, "done", 404
    advice = ("Check the name or id that you asked for", "List what exists first")


class Unsupported(ToolError):
    """The tool cannot do that."""

    kind, transient, run, http = "unsupported", False, "done", 501
    advice = ("Use a different operation", "Use a different tool")


class Failed(ToolError):
    """The tool's own answer is an error: it ran, and trying again would end the same way."""

    kind, transient, run, http = "failed", False, "done", 424
    advice = ("Read the message and try a different approach",)


class InvalidResult(ToolError):
    """The tool ran, and what it answered does not fit its output schema or cannot be sent."""

    kind, transient, run, http = "invalid_result", False, "done", 424
    advice = ("Use a different tool", "Tell the user that this tool answered in a form that it should not")


class CircuitOpen(ToolError):
    """The tool's circuit breaker is open. Executors say this, tools do not."""

    kind, run, http = "circuit_open", "not_started", 503
    advice = ("Use an alternative tool", "Wait before calling this tool again")


class Cancelled(ToolError):
    """Somebody cancelled it."""

    kind, transient, http = "cancelled", None, 499


class Deadline(ToolError):
    """The turn's time is up. Executors say this, tools do not."""

    kind, transient, http = "deadline", None, 504
    advice = ("Go on with the results that are there",)


class LoopBlocked(ToolError):
    """The same call failed the same way too often. Executors say this, tools do not."""

    kind, transient, run, http = "loop_blocked", False, "not_started", 409
    advice = ("Stop repeating this call; change the arguments or the approach",)


class Internal(ToolError):
    """The tool, or this library, is broken."""

    kind = "internal"
    advice = ("Try again after a short delay", "Use an alternative tool", "Tell the user if it happens again")


KINDS: Final[dict[str, type[ToolError]]] = {
    c.kind: c
    for c in (
        Timeout, Unavailable, WorkerLost, Overloaded, RateLimited, Upstream, Partial, InvalidArguments, TruncatedCall,
        ToolNotFound, Denied, ApprovalRequired, NotFound, Unsupported, Failed, InvalidResult, CircuitOpen, Cancelled,
        Deadline, LoopBlocked, Internal,
    )
}  # fmt: skip
"""Every kind of version 1. A kind of a later version means the same as ``internal`` and keeps its name."""

_KIND: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")


def error(kind: str, message: str = "", **more: Any) -> ToolError:
    """The exception of a kind that is only known by name. See ToolError for what else it takes."""
    known = KINDS.get(kind)
    if known is not None:
        return known(message, **more)
    e = Internal(message or kind, **more)
    e.kind = kind if _KIND.fullmatch(kind) else "upstream"
    return e


def from_fault(f: Fault) -> ToolError:
    """The exception of a record that came over the wire."""
    e = error(
        f.kind or "upstream",
        truncate(f.message, MAX_MESSAGE),
        detail=truncate(f.detail, MAX_DETAIL),
        code=f.code,
        retry_after=max(0, min(_DAY_MS, f.retry_after_ms)) / 1000,
        execution=f.execution if f.execution in ("not_started", "unknown", "stopped", "done") else "",
        suggestions=f.suggestions[:10],
        violations=f.violations[:50],
        tool=f.tool,
    )
    e.worker, e.attempt = f.worker, f.attempt
    return e


def classify(err: BaseException) -> ToolError:
    """What an exception of somebody else's means: docs/errors.md has the table. A ToolError is returned as it is,
    also where it is the cause of ``err``. What nobody knows is Upstream: transient, and of unknown run.
    """
    chain = _chain(err)
    for e in chain:
        if isinstance(e, ToolError):
            return e
    status, response = _status(chain)
    found: ToolError
    text = truncate(_utf8(str(err)), 4096) or type(err).__name__
    folded = text.lower()
    code = str(status) if status else ""
    if any(isinstance(e, asyncio.CancelledError) for e in chain):
        found = Cancelled(text, code=code)
    elif any(_is_timeout(e) for e in chain):
        found = Timeout(text, code=code)
    elif any(words in folded for words in ("rate limit", "rate_limit", "too many requests")):
        found = RateLimited(text, code=code)
    elif status >= 400:
        found = error(from_http(status), text, code=code)
    elif "connection refused" in folded or any(isinstance(e, ConnectionRefusedError) for e in chain):
        found = Unavailable(text, code=code)
    else:
        found = Upstream(text, code=code)
    found.retry_after = _retry_after(chain, response)
    found.detail = truncate("".join(traceback.format_exception(err)), MAX_DETAIL)
    found.__cause__ = err
    return found


def from_http(status: int) -> str:
    """The kind that an HTTP status from 400 on stands for."""
    kinds = {
        400: "invalid_arguments", 422: "invalid_arguments", 401: "denied", 403: "denied", 404: "not_found",
        410: "not_found", 405: "unsupported", 501: "unsupported", 408: "timeout", 429: "rate_limited",
        502: "unavailable", 503: "unavailable",
    }  # fmt: skip
    return kinds.get(status) or ("failed" if status < 500 else "upstream")


def _chain(err: BaseException) -> list[BaseException]:
    chain: list[BaseException] = []
    next_: BaseException | None = err
    while next_ is not None and next_ not in chain and len(chain) < 20:
        chain.append(next_)
        next_ = next_.__cause__
    return chain


def _is_timeout(e: BaseException) -> bool:
    if isinstance(e, builtins.TimeoutError | asyncio.TimeoutError):
        return True
    # httpx.TimeoutException, requests.Timeout and the like, without importing them.
    return any(c.__name__ in ("Timeout", "TimeoutException", "TimeoutError") for c in type(e).__mro__)


def _status(chain: list[BaseException]) -> tuple[int, Any]:
    """The HTTP status of an error of httpx, requests, aiohttp, urllib or one that speaks like them, and its response."""
    for e in chain:
        response = getattr(e, "response", None)
        for where, name in ((response, "status_code"), (e, "status_code"), (e, "status"), (e, "code")):
            status = getattr(where, name, None)
            if isinstance(status, int) and 400 <= status <= 999:
                return status, response if response is not None else e
    return 0, None


def _retry_after(chain: list[BaseException], response: Any) -> float:
    for e in chain:
        said = getattr(e, "retry_after", None)
        if isinstance(said, int | float) and said > 0:
            return float(said)
    headers = getattr(response, "headers", None)
    get = getattr(headers, "get", None)
    if get is None:
        return 0
    try:
        if ms := get("retry-after-ms"):
            return max(0.0, float(ms) / 1000)
        said = get("retry-after") or get("Retry-After")
        if not said:
            return 0
        if str(said).strip().isdigit():
            return float(said)
        return max(0.0, email.utils.parsedate_to_datetime(str(said)).timestamp() - time.time())
    except (TypeError, ValueError, OverflowError):
        return 0


@dataclass(frozen=True, slots=True)
class Bytes:
    """A result that is not JSON, with its content type."""

    data: bytes
    content_type: str = "application/octet-stream"
