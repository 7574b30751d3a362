"""``toolbus.serve`` in a program of one's own, and what signals do to it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest

from toolbus import Bus, serve, tool
from toolbus.signals import heard
from toolbus.wire import codec
from toolbus.wire.records import Heartbeat

PROGRAM = """
import asyncio, sys
from toolbus import serve, tool

@tool(effect="read")
async def slow() -> str:
    print("begun", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    return "done"

@tool(effect="read")
async def endless() -> str:
    print("begun", flush=True)
    await asyncio.Event().wait()
    return "never"

asyncio.run(serve(slow, endless, %s))
"""


@contextmanager
def program(url: str, options: str = "") -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM % options], env={**os.environ, "TOOLBUS_NATS_URL": url},
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class States:
    """What the one worker says of itself."""

    def __init__(self) -> None:
        self.beats: asyncio.Queue[Heartbeat] = asyncio.Queue()

    async def until(self, state: str, draining: bool = False) -> None:
        while True:
            beat = await asyncio.wait_for(self.beats.get(), 20)
            if beat.state == state and beat.draining == draining:
                return


@asynccontextmanager
async def states(bus: Bus) -> AsyncIterator[States]:
    seen = States()
    sub = await bus.subscribe(bus.subjects.heartbeats(), lambda m: seen.beats.put_nowait(codec.decode(m.data, Heartbeat)))
    await bus.flush()
    yield seen
    await bus.drain([sub], 5)


async def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return await asyncio.wait_for(asyncio.to_thread(process.stdout.readline), 20)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_drains(nats_url: str, bus: Bus, number: signal.Signals) -> None:
    async with states(bus) as seen:
        with program(nats_url) as process:
            await seen.until("hello")
            asked = asyncio.create_task(bus.request(bus.subjects.call("slow"), timeout=30))
            assert await line(process) == "begun\n"
            process.send_signal(number)
            await seen.until("beat", draining=True)
            assert not asked.done()
            assert process.stdin is not None
            process.stdin.write("\n")
            process.stdin.flush()
            assert (await asked).data == b'"done"'
            await seen.until("bye", draining=True)
            assert await asyncio.to_thread(process.wait, 20) == 0


async def test_a_second_signal_ends_the_grace(nats_url: str, bus: Bus) -> None:
    async with states(bus) as seen:
        with program(nats_url, "grace=3600") as process:
            await seen.until("hello")
            asked = asyncio.create_task(bus.request(bus.subjects.call("endless"), timeout=30))
            assert await line(process) == "begun\n"
            process.send_signal(signal.SIGTERM)
            await seen.until("beat", draining=True)
            process.send_signal(signal.SIGINT)
            assert b'"kind":"worker_lost"' in (await asked).data
            await seen.until("bye", draining=True)
            assert await asyncio.to_thread(process.wait, 20) == 0


async def test_signals_can_be_left_alone(nats_url: str, bus: Bus) -> None:
    async with states(bus) as seen:
        with program(nats_url, "signals=False") as process:
            await seen.until("hello")
            process.send_signal(signal.SIGTERM)
            assert await asyncio.to_thread(process.wait, 20) == -signal.SIGTERM


async def test_a_third_signal_does_what_it_did_before() -> None:
    before = [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)]
    seen: asyncio.Queue[str] = asyncio.Queue()
    passed: list[int] = []
    mine = signal.signal(signal.SIGTERM, lambda n, _: passed.append(n))
    try:
        with heard(lambda: seen.put_nowait("a")):
            with heard(lambda: seen.put_nowait("b")):
                signal.raise_signal(signal.SIGTERM)
                assert [await seen.get(), await seen.get()] == ["a", "b"]
            signal.raise_signal(signal.SIGINT)
            assert await seen.get() == "a"
            assert passed == []
            signal.raise_signal(signal.SIGTERM)
            assert passed == [signal.SIGTERM]
        signal.raise_signal(signal.SIGTERM)
        assert passed == [signal.SIGTERM] * 2
    finally:
        signal.signal(signal.SIGTERM, mine)
    assert [signal.getsignal(s) for s in (signal.SIGTERM, signal.SIGINT)] == before


@tool(effect="read")
async def same(**args: object) -> object:
    return args


async def test_it_serves_in_any_thread(nats_url: str, bus: Bus) -> None:
    async with states(bus) as seen:
        thread = threading.Thread(target=lambda: asyncio.run(serve(same, url=nats_url)))
        thread.start()
        await seen.until("hello")
        assert (await bus.request(bus.subjects.call("same"), b'{"a":1}')).data == b'{"a":1}'
        beat = await asyncio.wait_for(seen.beats.get(), 20)
        bus.publish(bus.subjects.to(beat.worker), b"", {"Tb-Frame": "drain"})
        await seen.until("bye", draining=True)
        await asyncio.to_thread(thread.join, 20)
        assert not thread.is_alive()
