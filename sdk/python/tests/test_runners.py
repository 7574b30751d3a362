"""Calls share tasks, and must not notice."""

from __future__ import annotations

import asyncio
from contextvars import ContextVar

from toolbus import Bus, tool
from toolbus.runners import Runners

from .conftest import serving


async def test_a_job_that_waits_holds_up_no_other() -> None:
    runners = Runners()
    go, ended = asyncio.Event(), asyncio.Event()
    order: list[str] = []

    async def waits(_: asyncio.Task[None]) -> bool:
        await go.wait()
        order.append("waits")
        ended.set()
        return True

    async def goes_on(_: asyncio.Task[None]) -> bool:
        order.append("goes on")
        return True

    async def last(_: asyncio.Task[None]) -> bool:
        go.set()
        return False

    for job in (waits, goes_on, waits, goes_on, last):
        runners.submit(job)
    await asyncio.wait_for(ended.wait(), 10)
    assert order[:2] == ["goes on", "goes on"]
    ended.clear()
    runners.submit(waits)  # one task has ended; others are there
    await asyncio.wait_for(ended.wait(), 10)
    runners.close()


async def test_a_task_is_used_again_unless_it_may_not_be() -> None:
    runners = Runners()
    used: list[asyncio.Task[None]] = []
    done = asyncio.Event()

    async def job(task: asyncio.Task[None]) -> bool:
        assert task is asyncio.current_task()
        used.append(task)
        if len(used) == 3:
            done.set()
        return len(used) != 2

    for _ in range(3):
        runners.submit(job)
    await asyncio.wait_for(done.wait(), 10)
    assert len(set(used)) > 1
    assert used[2] is not used[1]
    runners.close()


USER: ContextVar[str] = ContextVar("user", default="nobody")


async def test_no_call_sees_what_another_set(nats_url: str, bus: Bus) -> None:
    @tool(effect="read")
    async def whoami(name: str) -> str:
        before = USER.get()
        USER.set(name)
        return before

    async with serving(nats_url, whoami):
        for name in ("ann", "bob", "cy"):
            m = await bus.request(bus.subjects.call("whoami"), f'{{"name":"{name}"}}'.encode())
            assert m.data == b'"nobody"'
