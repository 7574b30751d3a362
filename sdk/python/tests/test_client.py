"""Turns against a real executor."""

from __future__ import annotations

import asyncio

import pytest

from toolbus import Bus, Call, Client, InvalidArguments, NotFound, TurnRequest, Unavailable, tool

from .conftest import serving


@tool(effect="read")
async def py_double(n: int) -> dict[str, int]:
    """Doubles."""
    return {"n": 2 * n}


@tool(effect="read")
async def py_missing() -> None:
    """Finds nothing."""
    raise NotFound("nothing is there")


async def answered(client: Client, name: str) -> None:
    """Wait until the executor knows a tool: it says so with another fault than tool_not_found."""
    for _ in range(100):
        try:
            out = await client.run(Call(tool=name, args={"wrong": True}))
        except Unavailable:  # the executor itself is not up yet
            await asyncio.sleep(0.05)
            continue
        fault = out.results[0].fault
        if fault is None or fault.kind not in ("tool_not_found", "unavailable"):
            return
        await asyncio.sleep(0.05)


async def test_a_turn(executor_url: str) -> None:
    async with serving(executor_url, py_double, py_missing), await Client.connect(executor_url) as client:
        await answered(client, "py_double")
        out = await client.run(
            [
                Call("a", "py_double", {"n": 2}),
                Call("b", "py_double", {"n": {"$from": "a", "pointer": "/n"}}),
                Call(tool="py_missing", optional=True),
            ]
        )
        assert out["b"].value == {"n": 8}
        fault = out["c1"].fault
        assert fault is not None
        assert (fault.kind, fault.message) == ("not_found", "nothing is there")
        assert [r.call for r in out.results] == ["a", "b", "c1"]

        types = [e.type async for e in client.stream(TurnRequest(calls=[Call(tool="py_double", args={"n": 1})]))]
        assert types[0] == "TurnStarted"
        assert types[-1] == "TurnEnded"
        assert "CallSettled" in types

        journal = await client.trace(out.turn)
        assert journal[0].type == "TurnStarted"
        with pytest.raises(NotFound):
            await client.late(out.turn, "a")
        with pytest.raises(NotFound):
            await client.trace("no-such-turn")


async def test_the_executor_believes_our_digests(executor_url: str) -> None:
    """It takes a manifest only under the digest that it computes itself, and then checks arguments by it."""
    async with serving(executor_url, py_double), await Client.connect(executor_url) as client:
        await answered(client, "py_double")
        out = await client.run(Call(tool="py_double", args={"n": "2", "m": 1}))
        fault = out.results[0].fault
        assert fault is not None
        assert sorted(v.pointer for v in fault.violations) == ["/m", "/n"]


async def test_leaving_cancels_the_turn(executor_url: str) -> None:
    begun, stopped = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def py_slow() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            stopped.set()

    async with serving(executor_url, py_slow), await Client.connect(executor_url) as client:
        await answered(client, "py_slow")
        begun.clear()
        running = asyncio.create_task(client.run(Call(tool="py_slow")))
        await asyncio.wait_for(begun.wait(), 10)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await asyncio.wait_for(stopped.wait(), 10)


async def test_where_to_connect_without_a_url(nats_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLBUS_NATS_URL", f"nats://127.0.0.1:1, {nats_url}")
    async with await Client.connect() as client:
        assert client.bus.connected
    monkeypatch.setenv("TOOLBUS_NATS_URL", "nats://127.0.0.1:1")
    with pytest.raises(Unavailable, match=r"at nats://127\.0\.0\.1:1:"):
        await Client.connect()
    async with await Client.connect(nats_url) as client:
        assert client.bus.connected


async def test_mistakes_and_nobody(bus: Bus) -> None:
    client = Client(bus)
    with pytest.raises(InvalidArguments, match=r"calls\[0\].tool"):
        await client.run(Call(tool="a b"))
    with pytest.raises(InvalidArguments, match="expected at least one"):
        await client.run([])
    with pytest.raises(Unavailable, match="no executor is running"):
        await client.run(Call(tool="x"))
    with pytest.raises(Unavailable, match="no executor is running"):
        await client.late("", "x")
