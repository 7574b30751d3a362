"""The ways past nats-py lead where its own do."""

from __future__ import annotations

import asyncio
import os
import random

import pytest
from nats.aio.client import Client as NATSClient
from nats.aio.msg import Msg

from toolbus import Bus, InvalidArguments, shortcut, tool
from toolbus.shortcut import Client, Outlet
from toolbus.wire import headers
from toolbus.wire.errors import WireError

from .conftest import serving


def test_headers_are_read_as_by_nats_py() -> None:
    seed = int(os.environ.get("TOOLBUS_SEED", random.randrange(1 << 32)))
    print(f"TOOLBUS_SEED={seed}")
    dice = random.Random(seed)
    pieces = [b"Tb-Call", b"A", b":", b": ", b"\r\n", b"\r", b"\n", b" ", b"\t", b"\xff", b"\xc3\xa9", b"\x1c", b"v", b"\x00"]
    for _ in range(5000):
        raw = b"".join(dice.choices(pieces, k=dice.randrange(20)))
        assert Client._parse_header_lines(raw) == NATSClient._parse_header_lines(raw), raw


def test_long_names_are_not_remembered() -> None:
    caches = (shortcut._header_name, headers._folded, headers._is_name)
    for cache in caches:
        cache.cache_clear()
    for i in range(100):
        name = f"X-{i}-" + "x" * 10_000
        found = Client._parse_header_lines(f"{name}: v\r\nTb-Call: t/c/1\r\n\r\n".encode())
        assert found == {name: "v", "Tb-Call": "t/c/1"}
        with pytest.raises(WireError):
            headers.read(found)
    assert max(cache.cache_info().currsize for cache in caches) <= 1


class Box:
    """Keeps what a subscription brings."""

    def __init__(self) -> None:
        self.messages: asyncio.Queue[Msg] = asyncio.Queue()

    async def next(self) -> bytes:
        return (await asyncio.wait_for(self.messages.get(), 10)).data

    def all(self) -> list[Msg]:
        return [self.messages.get_nowait() for _ in range(self.messages.qsize())]


async def test_all_messages_keep_their_order(nats_url: str, bus: Bus) -> None:
    box = Box()
    sub = await bus.subscribe("order", box.messages.put_nowait)
    await bus.flush()
    for i in range(200):
        bus.publish("order", b"%d" % i, {"Tb-Seq": str(i)} if i % 3 == 0 else None, "_INBOX.x" if i % 5 == 0 else "")
    assert [int(await box.next()) for _ in range(200)] == list(range(200))
    assert (bus.nc.stats["out_msgs"], bus.nc.stats["in_msgs"]) == (200, 200)
    await bus.drain([sub], 5)


async def test_a_drained_subscription_hears_what_was_sent_before_its_end() -> None:
    """A server that has sent a message when it reads that nobody wants more."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        info = b'{"server_id":"x","version":"2.11.0","headers":true,"max_payload":1048576}'
        writer.write(b"INFO %b\r\n" % info)
        while line := await reader.readline():
            if line.startswith(b"PING"):
                writer.write(b"PONG\r\n")
            elif line.startswith(b"UNSUB"):
                for _ in range(10):
                    await asyncio.sleep(0)
                writer.write(b"MSG last %b 4\r\nlast\r\n" % line.split()[1])
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        own = await Bus.connect(f"nats://127.0.0.1:{port}")
        box = Box()
        subs = [await own.subscribe("last", box.messages.put_nowait) for _ in range(3)]
        await own.drain(subs, 10)
        assert [m.data for m in box.all()] == [b"last"] * 3
        await own.close()


async def test_a_handler_that_raises_gets_the_next_message(bus: Bus, caplog: pytest.LogCaptureFixture) -> None:
    box = Box()

    def take(m: Msg) -> None:
        if m.data == b"bad":
            raise RuntimeError("a bug")
        box.messages.put_nowait(m)

    await bus.subscribe("raises", take)
    await bus.flush()
    bus.publish("raises", b"bad")
    bus.publish("raises", b"good")
    assert await box.next() == b"good"
    assert "message on raises not handled" in caplog.text


@pytest.mark.parametrize("subject", ["a b", "a\r\nPUB b 0\r\n", "a\tb", "a\x00\nb", "\ud800"])
async def test_no_subject_becomes_a_command(bus: Bus, subject: str) -> None:
    with pytest.raises(InvalidArguments):
        bus.publish(subject, b"")
    with pytest.raises(InvalidArguments):
        bus.publish("a", b"", None, subject)


@tool(effect="read")
async def same(**args: object) -> object:
    return args


async def test_an_unknown_nats_py_is_left_to_its_own_ways(nats_url: str, bus: Bus) -> None:
    class Other:
        stats: dict[str, int]

    assert not Outlet(Other()).put("x", b"")  # type: ignore[arg-type]
    async with serving(nats_url, same) as w:
        w.bus._outlet._known = False
        assert (await bus.request(w.bus.subjects.call("same"), b'{"a":1}')).data == b'{"a":1}'


async def test_a_closed_connection_takes_nothing(nats_url: str) -> None:
    own = await Bus.connect(nats_url)
    assert own._outlet.put("x", b"")
    assert not own._outlet.put("x", b"x" * (2 << 20))
    await own.close()
    assert not own._outlet.put("x", b"")
