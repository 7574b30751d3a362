"""Tasks that runs share: to make one costs more than most tools do."""

from __future__ import annotations

import asyncio
import contextvars
from collections import deque
from collections.abc import Awaitable, Callable

Job = Callable[["asyncio.Task[None]"], Awaitable[bool]]
"""What a task does next. It says whether the task may be used again."""


class Runners:
    """Runs each job in a task that has no other job meanwhile. It is for one event loop.

    A task that ends a job without having waited goes on with the next at once. For the case that it does wait, another
    is woken before, as long as jobs are left. So jobs begin in order, and none waits for another.
    """

    def __init__(self) -> None:
        self._clean = contextvars.copy_context()  # in which tasks are made: no job sees what another set
        self._jobs: deque[Job] = deque()
        self._idle: list[asyncio.Future[None]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken = False

    def submit(self, job: Job) -> None:
        """Run ``job`` soon. It must not raise."""
        self._jobs.append(job)
        if not self._woken:
            self._wake()

    def close(self) -> None:
        """End the tasks that have no job."""
        for waiting in self._idle:
            waiting.cancel()
        self._idle.clear()

    def _wake(self) -> None:
        self._woken = True
        if self._idle:
            self._idle.pop().set_result(None)
            return
        task = self._clean.run(asyncio.get_running_loop().create_task, self._serve())
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self) -> None:
        task = asyncio.current_task()
        assert task is not None
        while True:
            self._woken = False
            while self._jobs:
                job = self._jobs.popleft()
                if self._jobs and not self._woken:
                    self._wake()
                if not await job(task):
                    if self._jobs and not self._woken:
                        self._wake()
                    return
                del job  # what it holds must not live as long as this task
            idle: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._idle.append(idle)
            await idle
