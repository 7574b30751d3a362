"""Threads are shared, and no job notices."""

from __future__ import annotations

import asyncio
import os
import random
import threading

import pytest

from toolbus import Context
from toolbus.threads import Threads


async def ended(*threads: threading.Thread) -> None:
    for t in threads:
        await asyncio.to_thread(t.join, 10)
        assert not t.is_alive()


async def test_jobs_that_block_hold_up_no_other() -> None:
    threads = Threads(4)
    free = threading.Event()
    seen: list[threading.Thread] = []

    def blocks() -> bool:
        seen.append(threading.current_thread())
        return free.wait(20)

    stuck = [threads.submit(blocks) for _ in range(3)]
    for i in range(50):
        assert await asyncio.wait_for(threads.submit(lambda i=i: i), 10) == i  # type: ignore[misc]
    stuck.append(threads.submit(blocks))
    late = threads.submit(lambda: "late")
    while len(seen) < 4:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert not late.done()  # there are four threads, and all have a job
    free.set()
    assert await asyncio.wait_for(asyncio.gather(*stuck, late), 10) == [True] * 4 + ["late"]
    assert len(set(seen)) == 4
    threads.close()
    await ended(*seen)


async def test_jobs_that_meet_run_at_once() -> None:
    """Each waits for all others: none may be kept behind one that runs."""
    seed = int(os.environ.get("TOOLBUS_SEED", random.randrange(1 << 32)))
    print(f"TOOLBUS_SEED={seed}")
    dice = random.Random(seed)
    threads = Threads(16)
    for _ in range(100):
        n = dice.randrange(1, 17)
        meeting = threading.Barrier(n)
        jobs = [threads.submit(lambda m=meeting: m.wait(20)) for _ in range(n)]  # type: ignore[misc]
        if dice.random() < 0.5:
            jobs += [threads.submit(int) for _ in range(dice.randrange(20))]
        done = await asyncio.wait_for(asyncio.gather(*jobs), 20)
        assert sorted(done[:n]) == list(range(n))
    threads.close()


async def test_after_the_end_there_are_no_jobs() -> None:
    threads = Threads(1)
    assert await threads.submit(int) == 0
    threads.close()
    with pytest.raises(RuntimeError, match="closed"):
        threads.submit(int)


async def test_what_a_job_raises() -> None:
    threads = Threads(1)

    def fail(e: BaseException) -> None:
        raise e

    for e, as_ in ((KeyError("x"), KeyError), (StopIteration(), RuntimeError), (SystemExit(1), SystemExit)):
        future = threads.submit(lambda e=e: fail(e))  # type: ignore[misc]
        await asyncio.wait([future])
        assert isinstance(future.exception(), as_)
    threads.close()


async def test_without_threads_nothing_is_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    threads = Threads(2)
    with monkeypatch.context() as m:
        m.setattr(threading.Thread, "start", none)
        with pytest.raises(RuntimeError, match="new thread"):
            threads.submit(int)
    assert await threads.submit(int) == 0
    with monkeypatch.context() as m:
        m.setattr(threading.Thread, "start", none)
        assert await asyncio.wait_for(asyncio.gather(*(threads.submit(int) for _ in range(9))), 10) == [0] * 9
    threads.close()


def test_all_threads_of_a_tool_wait_for_the_same_cancel() -> None:
    for _ in range(200):
        ctx = Context()
        meeting = threading.Barrier(3)
        seen: list[threading.Event] = []

        def look(ctx: Context = ctx, meeting: threading.Barrier = meeting, seen: list[threading.Event] = seen) -> None:
            meeting.wait(10)
            seen.append(ctx.cancelled)

        threads = [threading.Thread(target=look) for _ in range(2)]
        for t in threads:
            t.start()
        meeting.wait(10)
        ctx._stop()
        for t in threads:
            t.join(10)
        assert seen[0] is seen[1]
        assert seen[0].is_set()
