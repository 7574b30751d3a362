"""SIGTERM and Ctrl-C, for as long as somebody listens."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any, Final

_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_ENOUGH: Final = 3


@contextlib.contextmanager
def heard(tell: Callable[[], None]) -> Iterator[None]:
    """Have ``tell`` called on this event loop each time that SIGTERM or SIGINT comes. The third does what it did before:
    by then something is stuck. So do all when the last who listens is done. Outside the main thread, where no handler can
    be set, this does nothing.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()

    def listener() -> None:
        loop.call_soon_threadsafe(tell)

    _handlers.add(listener)
    try:
        yield
    finally:
        _handlers.remove(listener)


class _Handlers:
    """The handlers of the process. It does not use an event loop's own, which could not be given back."""

    def __init__(self) -> None:
        self._listeners: list[Callable[[], None]] = []
        self._before: dict[int, Any] = {}
        self._count = 0

    def add(self, listener: Callable[[], None]) -> None:
        if not self._listeners:
            self._count = 0
            self._before = {s: signal.signal(s, self._hear) for s in _SIGNALS}
        self._listeners.append(listener)

    def remove(self, listener: Callable[[], None]) -> None:
        self._listeners.remove(listener)
        if not self._listeners:
            self._restore()

    def _restore(self) -> None:
        for s, handler in self._before.items():
            signal.signal(s, signal.SIG_DFL if handler is None else handler)  # None: set by what is not Python
        self._before = {}

    def _hear(self, number: int, _: object) -> None:
        self._count += 1
        if self._count >= _ENOUGH:
            self._restore()
            signal.raise_signal(number)
            return
        for listener in list(self._listeners):
            listener()


_handlers: Final = _Handlers()
