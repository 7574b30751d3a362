"""Threads for sync tools. They are daemons: one that never returns must not keep the process from ending."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

_Job = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Threads:
    """Up to ``most`` threads, started when they are needed. It is for one event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._done: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._told = False
        self._started = 0
        self._busy = 0

    def submit(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run ``job`` in a thread. The future is done when it has returned; cancelling the future stops nothing."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        self._busy += 1
        if self._busy > self._started and self._started < self._most:
            self._started += 1
            threading.Thread(target=self._work, args=(loop,), name=f"toolbus-tool-{self._started}", daemon=True).start()
        self._jobs.put((job, future))
        return future

    def close(self) -> None:
        """Let the threads end that have nothing to do."""
        for _ in range(self._started):
            self._jobs.put(None)

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        while (item := self._jobs.get()) is not None:
            job, future = item
            value: Any = None
            error: BaseException | None = None
            try:
                value = job()
            except BaseException as e:
                error = e
            self._done.append((future, value, error))
            if not self._told:  # else what was told before takes this one along
                self._told = True
                try:
                    loop.call_soon_threadsafe(self._settle)
                except RuntimeError:
                    return  # the loop is closed: nobody waits any more
            del item, job, future, value, error

    def _settle(self) -> None:
        self._told = False  # before it looks: what comes after this is told anew
        while self._done:
            self._settle_one(*self._done.popleft())

    def _settle_one(self, future: asyncio.Future[Any], value: Any, error: BaseException | None) -> None:
        self._busy -= 1
        if future.done():
            return
        if error is None:
            future.set_result(value)
        elif isinstance(error, StopIteration):  # a future does not take it
            future.set_exception(RuntimeError("the tool raised StopIteration"))
        else:
            future.set_exception(error)
