"""A worker against a real server: what conformance does not see, or sees only from afar."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from nats.aio.msg import Msg

from toolbus import Bus, Bytes, Context, Denied, RateLimited, Unavailable, Worker, current, tool, tracing
from toolbus.run import CANCELLED
from toolbus.wire import codec, headers, jsontext
from toolbus.wire.records import Fault

from .conftest import serving


@tool(effect="read")
async def echo(**args: Any) -> Any:
    return args


async def until(true: Callable[[], bool]) -> None:
    """Let the event loop go on until something holds."""

    async def look() -> None:
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0)

    await asyncio.wait_for(look(), 10)


def hold_up(true: Callable[[], bool]) -> None:
    """Keep the event loop from going on until something holds."""
    while not true():
        time.sleep(0)


class Caller:
    """Sends calls to a worker, and keeps what comes back."""

    def __init__(self, bus: Bus, worker: Worker) -> None:
        self.bus, self.worker = bus, worker
        self.frames: asyncio.Queue[Msg] = asyncio.Queue()
        self.reply = f"_INBOX.{bus.id}.{id(self)}"

    async def __aenter__(self) -> Caller:
        self.sub = await self.bus.subscribe(self.reply, self.frames.put_nowait)
        await self.bus.flush()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.sub.unsubscribe()

    def call(self, name: str, args: object, ref: str = "t/c/1", **header: str) -> None:
        h = {"Tb-Call": ref, "Tb-Tool": name, **{k.replace("_", "-"): v for k, v in header.items()}}
        self.bus.publish(self.worker.bus.subjects.to(self.worker.id), jsontext.dumps(args), h, self.reply)

    def say(self, frame: str, ref: str = "t/c/1") -> None:
        self.bus.publish(self.worker.bus.subjects.to(self.worker.id), b"", {"Tb-Call": ref, "Tb-Frame": frame}, self.reply)

    async def frame(self, *but: str) -> tuple[str, Any]:
        """The next frame that is none of these, and its payload: a fault where it is one."""
        while True:
            m = await asyncio.wait_for(self.frames.get(), 10)
            frame = headers.frame_of(m.headers)
            if frame not in but:
                break
        if frame in ("error", "nack", "stopped"):
            return frame, codec.unmarshal(headers.JSON, m.data, Fault)
        return frame, jsontext.loads(m.data) if m.data and headers.is_json(headers.get(m.headers, "Content-Type")) else m.data


async def test_a_bare_request(nats_url: str, bus: Bus) -> None:
    async with serving(nats_url, echo) as w:
        m = await bus.request(w.bus.subjects.call("echo"), b'{"text":"hi"}')
        assert (m.data, m.headers) == (b'{"text":"hi"}', None)


async def test_a_thread_that_does_not_stop_is_leaked(nats_url: str, bus: Bus) -> None:
    free = threading.Event()

    @tool(effect="write")
    def stuck() -> int:
        return 1 if free.wait(20) else 0

    async with serving(nats_url, stuck, concurrency=1) as w, Caller(bus, w) as c:
        c.call("stuck", {}, **{"Tb_Timeout_Ms": "100"})
        frame, fault = await c.frame("accept")
        assert (frame, fault.kind, fault.execution) == ("error", "timeout", "unknown")
        assert "may still be running" in fault.message
        assert w.stats.leaked == 1
        c.call("stuck", {}, "t/c/2")
        frame, fault = await c.frame("accept")
        assert (frame, fault.kind) == ("nack", "overloaded")
        free.set()
        await until(lambda: not w.stats.running)
        assert w.stats.leaked == 0


async def test_a_thread_sees_its_cancel(nats_url: str, bus: Bus) -> None:
    @tool(effect="read")
    def wait(ctx: Context) -> dict[str, bool]:
        assert current() is ctx
        if ctx.cancelled.wait(20):
            raise RateLimited("stopped in the middle")
        return {}

    async with serving(nats_url, wait) as w, Caller(bus, w) as c:
        c.call("wait", {})
        assert (await c.frame())[0] == "accept"
        c.say("cancel")
        frame, fault = await c.frame()
        assert (frame, fault.kind, fault.execution) == ("stopped", "cancelled", "stopped")
        assert "stopped in the middle" in fault.detail


async def test_a_thread_that_stopped_while_the_event_loop_was_held_up(nats_url: str, bus: Bus) -> None:
    @tool(effect="read")
    def wait(ctx: Context) -> None:
        if ctx.cancelled.wait(20):
            raise RateLimited("stopped in the middle")

    async with serving(nats_url, wait) as w, Caller(bus, w) as c:
        c.call("wait", {})
        assert (await c.frame())[0] == "accept"
        (run,) = w._live
        run.stop(CANCELLED)
        hold_up(lambda: bool(w.threads._done))
        run._give_up = w.loop.time() - 1
        run.due()
        frame, fault = await c.frame()
        assert (frame, fault.kind, fault.execution) == ("stopped", "cancelled", "stopped")
        assert w.stats.leaked == 0


async def test_pieces_and_progress_from_a_thread_keep_their_order(nats_url: str, bus: Bus) -> None:
    @tool(effect="read")
    def pieces(ctx: Context, n: int) -> int:
        ctx.progress(1, 2, "half")
        for i in range(n):
            ctx.partial(i)
        return n

    async with serving(nats_url, pieces) as w, Caller(bus, w) as c:
        c.call("pieces", {"n": 50})
        seen = []
        while True:
            frame, value = await c.frame("accept", "progress")
            seen.append(value)
            if frame != "partial":
                break
        assert seen == [*range(50), 50]


async def test_what_a_tool_raises(nats_url: str, bus: Bus) -> None:
    @tool(effect="read")
    async def fail(how: str) -> None:
        if how == "limit":
            raise RateLimited("slow down", retry_after=1.5)
        raise KeyError("a bug")

    async with serving(nats_url, fail) as w, Caller(bus, w) as c:
        c.call("fail", {"how": "limit"}, "t/a/1")
        frame, fault = await c.frame()
        assert (frame, fault.kind, fault.retry_after_ms, fault.tool, fault.worker) == (
            "error",
            "rate_limited",
            1500,
            "fail",
            w.id,
        )
        c.call("fail", {"how": "bug"}, "t/b/1")
        frame, fault = await c.frame()
        assert (frame, fault.kind, fault.execution) == ("error", "upstream", "unknown")
        assert "Traceback" in fault.detail
        assert "Traceback" not in fault.message


async def test_a_result_of_any_type(nats_url: str, bus: Bus) -> None:
    @tool(effect="read")
    async def picture() -> Bytes:
        return Bytes(b"\x89PNG", "image/png")

    async with serving(nats_url, picture) as w:
        m = await bus.request(w.bus.subjects.call("picture"))
        assert (m.data, m.headers) == (b"\x89PNG", {"Content-Type": "image/png"})


async def test_ten_megabytes_there_and_back(nats_url: str, bus: Bus) -> None:
    from toolbus import blobs
    from toolbus.wire.refs import BlobRef

    text = "é" * (5 << 20)
    async with serving(nats_url, echo) as w:
        ref = await blobs.put(bus, jsontext.dumps({"text": text}), 60)
        m = await bus.request(w.bus.subjects.call("echo"), b"", {"Tb-Blob": str(ref)}, 20)
        assert m.data == b""
        back = await blobs.get(bus, BlobRef.parse(headers.get(m.headers, "Tb-Blob")))
        assert jsontext.loads(back) == {"text": text}


async def test_a_cancelled_run_drains(nats_url: str, bus: Bus) -> None:
    begun, free = asyncio.Event(), asyncio.Event()

    @tool(effect="read")
    async def slow() -> int:
        begun.set()
        await free.wait()
        return 7

    own = await Bus.connect(nats_url)
    worker = Worker(own, [slow])
    running = asyncio.create_task(worker.run())
    await worker.ready.wait()
    async with Caller(bus, worker) as c:
        c.call("slow", {})
        await begun.wait()
        running.cancel()
        await until(lambda: worker.stats.draining)
        free.set()
        assert await c.frame("accept") == ("", 7)
    with pytest.raises(asyncio.CancelledError):
        await running
    await own.close()


async def test_a_tool_that_swallows_its_cancel_is_abandoned_at_the_end(nats_url: str, bus: Bus) -> None:
    begun, free = asyncio.Event(), asyncio.Event()

    @tool(effect="write")
    async def deaf() -> None:
        begun.set()
        while not free.is_set():
            try:
                await free.wait()
            except asyncio.CancelledError:
                continue

    own = await Bus.connect(nats_url)
    worker = Worker(own, [deaf], grace=0.05)
    running = asyncio.create_task(worker.run())
    await worker.ready.wait()
    async with Caller(bus, worker) as c:
        c.call("deaf", {})
        await begun.wait()
        worker.stop()
        frame, fault = await c.frame("accept")
        assert (frame, fault.kind, fault.execution) == ("error", "worker_lost", "unknown")
    assert await running == ["deaf t/c/1"]
    free.set()
    await own.close()


async def test_a_foreign_reply_is_not_answered(nats_url: str, bus: Bus) -> None:
    async with serving(nats_url, echo) as w:
        bus.publish(w.bus.subjects.call("echo"), b"{}", None, "$JS.API.STREAM.PURGE.TB_BLOBS")
        bus.publish(w.bus.subjects.call("echo"), b"{}", None, "elsewhere.x")
        await bus.request(w.bus.subjects.call("echo"), b"{}")
        assert w.stats.bad_reply == 2
        assert w.stats.calls == 1


async def test_random_messages_do_no_harm(nats_url: str, bus: Bus) -> None:
    import os
    import random

    seed = int(os.environ.get("TOOLBUS_SEED", random.randrange(1 << 32)))
    print(f"TOOLBUS_SEED={seed}")
    dice = random.Random(seed)
    refs = ["t/c/1", "t/c/2", "t/c/0", "x", "t/d/1"]
    frames = ["", "cancel", "ping", "describe", "novel", "result"]
    async with serving(nats_url, echo, concurrency=4) as w:
        s = w.bus.subjects
        for _ in range(500):
            subject = dice.choice([s.call("echo"), s.to(w.id), s.cancel("echo"), s.rollcall()])
            header = {"Tb-Call": dice.choice(refs), "Tb-Frame": dice.choice(frames), "Tb-Tool": dice.choice(["echo", "no"])}
            header["Tb-Key"] = dice.choice(["k", "é" * 600, ""])
            bus.publish(subject, dice.randbytes(dice.randrange(20)), header, f"_INBOX.{dice.randrange(9)}")
        m = await bus.request(s.call("echo"), b'{"well":true}')
        assert m.data == b'{"well":true}'
        assert w.stats.leaked == 0


async def test_nobody_there() -> None:
    with pytest.raises(Unavailable, match=r"cannot connect to NATS at nats://127\.0\.0\.1:1"):
        await Bus.connect("nats://127.0.0.1:1")


async def test_publish_refuses(bus: Bus) -> None:
    from toolbus import InvalidArguments

    with pytest.raises(InvalidArguments, match="line break"):
        bus.publish("x", b"", {"Tb-Key": "a\r\nb"})
    with pytest.raises(InvalidArguments, match="larger than"):
        bus.publish("x", b"x" * (2 << 20))
    with pytest.raises(Denied):
        bus.respond("$JS.API.INFO")


async def test_spans(nats_url: str, bus: Bus) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry import trace
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    kept = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    trace.set_tracer_provider(provider)
    async with serving(nats_url, echo) as w, Caller(bus, w) as c:
        c.call("echo", {}, traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01")
        assert await c.frame() == ("", {})
        worker = w.id
    (span,) = kept.get_finished_spans()
    assert span.name == "execute_tool echo"
    assert span.attributes is not None
    assert dict(span.attributes) == {  # as workers in Go and TypeScript have them
        "gen_ai.tool.name": "echo",
        "messaging.system": "nats",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.template": "tb.v1.call.{tool}",
        "messaging.message.conversation_id": "t",
        "toolbus.turn": "t",
        "toolbus.call": "c",
        "toolbus.attempt": 1,
        "toolbus.worker": worker,
    }
    assert span.context is not None
    assert f"{span.context.trace_id:032x}" == "0af7651916cd43dd8448eb211c80319c"


@pytest.mark.parametrize(
    ("capture", "kind", "said"),
    [("", "upstream", [None]), ("true", "upstream", ["no user hunter2"]), ("true", "cancelled", [])],
)
def test_what_a_fault_says_is_on_no_span_unless_wanted(
    monkeypatch: pytest.MonkeyPatch, capture: str, kind: str, said: list[str | None]
) -> None:
    pytest.importorskip("opentelemetry.sdk")
    from opentelemetry.sdk.trace import TracerProvider

    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", capture)
    span = TracerProvider().get_tracer("test").start_span("execute_tool t")
    tracing.failed(span, kind, "unknown", "no user hunter2")
    assert getattr(span, "attributes")["toolbus.execution"] == "unknown"  # noqa: B009
    status = getattr(span, "status")  # noqa: B009
    assert ([status.description] if not status.is_unset else []) == said
