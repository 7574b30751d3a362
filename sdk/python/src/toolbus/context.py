"""What a tool knows of the call that it runs."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any, Final

_NOTHING: Final[Mapping[str, str]] = {}
making: Final = threading.Lock()
"""Held while something is made that all threads of a tool share."""
_log = logging.getLogger("toolbus.tool")


class Context:
    """One call, as its tool sees it. Valid until the tool returns.

    Declare a parameter of this type to get it, or ask ``toolbus.current()``. In a test make one with nothing in it:
    then nobody listens. ``progress`` and ``partial`` may be called from any thread.
    """

    def __init__(
        self,
        tool: str = "",
        *,
        turn: str = "",
        call: str = "",
        attempt: int = 0,
        session: str = "",
        key: str = "",
        timeout: float = 30.0,
        timeout_ms: int = 0,
        headers: Mapping[str, str] = _NOTHING,
        worker: str = "",
    ) -> None:
        self.tool = tool
        self.turn = turn
        """Empty for a bare request, as are call and session."""
        self.call = call
        self.attempt = attempt
        """From 1; 0 for a bare request."""
        self.session = session
        self.key = key
        """The idempotency key: the caller's, else <turn>/<call>; empty for a bare request."""
        self.timeout_ms = timeout_ms
        """What the caller said was left for this attempt; 0 where it said nothing and the manifest's timeout holds."""
        self.headers = headers
        """As they came, without Nats-*. Only to be read."""
        self.deadline = time.monotonic() + timeout
        """When the attempt's time is up, on the clock of ``time.monotonic()``."""
        self.worker = worker
        self._cancelled: threading.Event | None = None
        self._stopping = False
        self._progress: Callable[[float, float, str], None] | None = None
        self._partial: Callable[[Any], None] | None = None
        self._said = 0.0

    @property
    def traceparent(self) -> str:
        """The W3C trace context that the call came with, or ""."""
        for name, value in self.headers.items():
            if name.lower() == "traceparent":
                return value
        return ""

    def remaining(self) -> float:
        """Seconds that are left for this attempt; never below 0."""
        return max(0.0, self.deadline - time.monotonic())

    @property
    def cancelled(self) -> threading.Event:
        """Set when the tool should stop: a cancel, the deadline, or a worker that shuts down.

        A sync tool must look at it (``is_set()``, or ``wait(seconds)`` instead of sleeping): nothing else can stop a
        thread. One that does not return within 250 ms is answered for, counted as leaked, and keeps its place until it
        returns. An async tool gets ``asyncio.CancelledError`` and needs to look only where it never awaits.
        """
        event = self._cancelled
        if event is None:
            with making:
                event = self._cancelled = self._cancelled or threading.Event()
            if self._stopping:  # after it is there for all: _stop, which looks in the other order, may have missed it
                event.set()
        return event

    def _stop(self) -> None:
        self._stopping = True
        if self._cancelled is not None:
            self._cancelled.set()

    @property
    def logger(self) -> logging.LoggerAdapter[logging.Logger]:
        """The worker's log, with the call in every line."""
        ref = f"{self.turn}/{self.call}/{self.attempt}" if self.turn else ""
        return logging.LoggerAdapter(_log, {"tool": self.tool, "call": ref, "worker": self.worker})

    def progress(self, done: float, total: float = 0, message: str = "") -> None:
        """Tell the caller how far the call is; ``total`` 0 means not known. What comes more often than 20 times a
        second is dropped. It also keeps the call's idle timeout from running out.
        """
        if self._progress is None:
            return
        now = time.monotonic()
        if now - self._said >= 0.05:
            self._said = now
            self._progress(float(done), float(total), message)

    def partial(self, piece: Any) -> None:
        """Send a piece of the result ahead, in order. ValueError says that nobody can get it: it is no JSON, is larger
        than a message, or the call is over. Bare requests get no pieces, without an error: they get the result.
        """
        if self._partial is not None:
            self._partial(piece)


current_context: Final[ContextVar[Callable[[], Context]]] = ContextVar("toolbus_context")
"""Makes the Context of the call that runs here, once somebody asks."""


def current() -> Context:
    """The Context of the call that runs here. LookupError where none does."""
    try:
        return current_context.get()()
    except LookupError:
        raise LookupError("no call runs here: toolbus.current() is for functions that a tool calls") from None
