"""Threads for sync tools. They are daemons: one that never returns must not keep the process from ending."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

_Job = tuple[Callable[[], Any], "asyncio.Future[Any]"]


class Threads:
    """Up to ``most`` threads, started when they are needed. It is for one event loop.

    To wake a thread costs more than most tools do. So a thread that has done a job goes on with the next at once, and for
    the case that this one takes long it wakes another before, as long as jobs are left. No job waits for another while
    there is a thread for it.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._lock = threading.Lock()  # of the five that follow
        self._jobs: deque[_Job] = deque()
        self._idle: list[threading.Lock] = []  # what each waits for; who began to wait last is woken first
        self._coming = False  # one was woken, or started, and has not looked for a job yet
        self._started = 0
        self._closed = False
        self._done: deque[tuple[asyncio.Future[Any], Any, BaseException | None]] = deque()
        self._told = False

    def submit(self, job: Callable[[], Any]) -> asyncio.Future[Any]:
        """Run ``job`` in a thread. The future is done when it has returned; cancelling the future stops nothing.
        RuntimeError after ``close``, and where the system gives no thread.
        """
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        with self._lock:
            if self._closed:
                raise RuntimeError("the threads are closed")
            self._jobs.append((job, future))
            try:
                self._call(loop)
            except RuntimeError:  # the system gives no thread
                if not self._started:
                    self._jobs.pop()
                    raise
        return future

    def close(self) -> None:
        """Let the threads end that have nothing to do, and the others when they are done."""
        with self._lock:
            self._closed = True
            while self._idle:
                self._idle.pop().release()

    def _call(self, loop: asyncio.AbstractEventLoop) -> None:
        """Have a thread come for the first job, unless one does."""
        if self._coming or not self._jobs:
            return
        if self._idle:
            self._idle.pop().release()
        elif self._started < self._most:
            name = f"toolbus-tool-{self._started + 1}"
            threading.Thread(target=self._work, args=(loop,), name=name, daemon=True).start()
            self._started += 1
        else:
            return
        self._coming = True

    def _next(self, loop: asyncio.AbstractEventLoop, wake: threading.Lock, came: bool) -> _Job | None:
        """The next job, waited for. None where there will be none."""
        while True:
            with self._lock:
                if came:
                    self._coming = False
                if self._jobs:
                    job = self._jobs.popleft()
                    with contextlib.suppress(RuntimeError):  # the system gives no thread: those that are there do it all
                        self._call(loop)
                    return job
                if self._closed:
                    return None
                self._idle.append(wake)
            wake.acquire()
            came = True

    def _work(self, loop: asyncio.AbstractEventLoop) -> None:
        wake = threading.Lock()
        wake.acquire()
        came = True
        while (item := self._next(loop, wake, came)) is not None:
            came = False
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
        if future.done():
            return
        if error is None:
            future.set_result(value)
        elif isinstance(error, StopIteration):  # a future does not take it
            future.set_exception(RuntimeError("the tool raised StopIteration"))
        else:
            future.set_exception(error)
