"""``python -m toolbus run``."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from toolbus import Bus
from toolbus.wire import codec
from toolbus.wire.records import Heartbeat

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


def start(*args: str, **env: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "toolbus", "run", *args],
        cwd=EXAMPLES, env={**os.environ, **env}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


async def test_it_serves_and_drains(nats_url: str, bus: Bus) -> None:
    states: asyncio.Queue[Heartbeat] = asyncio.Queue()
    await bus.subscribe("py.v1.hb.*", lambda m: states.put_nowait(codec.decode(m.data, Heartbeat)))
    await bus.flush()
    process = start("sky", TOOLBUS_NATS_URL=nats_url, TOOLBUS_PREFIX="py", TOOLBUS_CONCURRENCY="3", TOOLBUS_LOG_FORMAT="json")
    try:
        hello = await asyncio.wait_for(states.get(), 20)
        assert (hello.state, hello.capacity, [t.id for t in hello.tools]) == ("hello", 3, ["sky"])
        m = await bus.request("py.v1.call.sky", b'{"city":"Oslo"}')
        assert json.loads(m.data) == {"city": "Oslo", "sky": "snow"}
        assert process.stderr is not None
        first = json.loads(await asyncio.wait_for(asyncio.to_thread(process.stderr.readline), 20))
        assert first["msg"] == f"serving sky as worker {hello.worker}; Ctrl-C drains"
        process.send_signal(signal.SIGTERM)
        while (await asyncio.wait_for(states.get(), 20)).state != "bye":
            pass
        assert await asyncio.to_thread(process.wait, 20) == 0
    finally:
        process.kill()
        process.communicate()


def test_mistakes() -> None:
    for args, code, words in (
        (("nothing_here",), 2, "No module named"),
        (("sky:SKY",), 2, "expected a function with @tool"),
        (("sky", "--concurrency", "0"), 2, "expected 1 or more"),
        (("sky", "--prefix", "a.b"), 2, "subject prefix"),
        (("sky", "--nats-url", "nats://127.0.0.1:1"), 3, "cannot connect"),
    ):
        process = start(*args)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, words in err) == (code, True), err
