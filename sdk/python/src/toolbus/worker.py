"""A worker: it takes calls from the bus, runs each in its tool, and answers every one exactly once.

    call ──► checked ──► remembered? ──► room? ──► tool ──► result
               │             │            │          │
             error      same answer     nack     error, stopped

What always holds: it answers only to reply subjects that callers may choose. A call that it does not run gets a nack at
once. A call ends with one frame, and nothing follows that; a tool that goes on regardless is counted as leaked and keeps
its place until it returns. A bare NATS request is a call, and its plain result has no headers. Calls that carry Tb-Call
run once per idempotency key and tool as long as the worker remembers the key.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import random
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from nats.aio.msg import Msg
from nats.aio.subscription import Subscription

from . import tracing
from .bus import Bus
from .discovery import Discovery
from .errors import Cancelled, Denied, InvalidArguments, ToolError, ToolNotFound, Unavailable
from .memory import Memory
from .request import Request
from .run import SHUTDOWN, Answer, Caller, Memo, MemoItem, Run, failed, nack, overloaded, request_sum
from .runners import Runners
from .signals import heard
from .threads import Threads
from .tools import AnyTool, Tool
from .version import SDK
from .wire import codec, headers
from .wire.errors import WireError, quote, truncate
from .wire.limits import ACCEPT_AFTER, CANCEL_GRACE, HEARTBEAT_EVERY, MAX_TOOLS
from .wire.names import check_id, nearest
from .wire.records import Describe, Heartbeat, ToolLine
from .wire.refs import CallRef
from .wire.subjects import QUEUE_WORKERS, ReplyRule

log = logging.getLogger("toolbus")

_MEMORY_BYTES: Final = 64 << 20
_CANCEL_TTL: Final = 10.0
_MAX_CANCELS: Final = 10_000
_BUSY: Final = 0.05  # seconds after which a full worker may be asked again
_AWAY: Final = 0.5  # and one that leaves
_MAX_LETTERS: Final = 1000
_MAX_LETTER_BYTES: Final = 64 << 20
_ROLLCALL_JITTER: Final = 0.02

FRESH, OPEN, DRAINING, CLOSED = range(4)


@dataclass(slots=True)
class Stats:
    """What a worker counts since it was made."""

    running: int = 0
    """Tools that have not returned, leaked ones included."""
    leaked: int = 0
    """Tools that go on although their call is over."""
    capacity: int = 0
    draining: bool = False
    calls: int = 0
    errors: int = 0
    nacked: int = 0
    repeated: int = 0
    """Answered from memory, or by a run that was there."""
    bad_reply: int = 0
    """Ignored, because of where they wanted their answer."""
    unsent: int = 0
    """Answers that wait for the connection to come back."""


class Worker:
    """Runs tools until it is told to stop. ``tools`` are what ``@tool`` made.

    ``concurrency`` is how many calls run at once, over all tools; more get a nack. None means four per CPU, at least
    four. ``grace`` is how many seconds a shutdown lets running calls go on. ``every`` is the time between heartbeats.
    ``key_ttl`` and ``max_keys`` bound what is remembered of calls and their answers, beside 64 MiB of them in all.
    ``discovery`` answers NATS service discovery. It belongs to the event loop of ``bus``.
    """

    def __init__(
        self,
        bus: Bus,
        tools: Iterable[AnyTool],
        *,
        concurrency: int | None = None,
        grace: float = 10.0,
        every: float = HEARTBEAT_EVERY,
        key_ttl: float = 600.0,
        max_keys: int = 10_000,
        discovery: bool = True,
    ) -> None:
        self.bus = bus
        self.id = bus.id
        check_id(self.id)
        self.loop = asyncio.get_running_loop()
        self.ready = asyncio.Event()
        self.concurrency = concurrency if concurrency is not None else max(4, 4 * (os.cpu_count() or 1))
        if self.concurrency < 1:
            raise ValueError(f"concurrency: expected 1 or more, got {concurrency}")
        self.runners = Runners()
        self.threads = Threads(self.concurrency)
        self.traced = tracing.enabled()
        """Whether calls get spans. It is asked again with each heartbeat."""
        self.tools: dict[str, AnyTool] = {}
        for t in tools:
            if not isinstance(t, Tool):
                raise TypeError(f"tools: expected functions with @tool, got {t!r}")
            if t.name in self.tools:
                raise ValueError(f"tools: {t.name} is there twice")
            self.tools[t.name] = t
        if not 1 <= len(self.tools) <= MAX_TOOLS:
            raise ValueError(f"tools: expected 1 to {MAX_TOOLS}, got {len(self.tools)}")

        self._grace = grace
        self._every = every
        self._rule = ReplyRule(bus.subjects)
        self._lines = [ToolLine(t.name, t.manifest.version, t.digest) for t in self.tools.values()]
        self._describe = codec.marshal(headers.MSGPACK, Describe(self.id, [t.manifest for t in self.tools.values()]))
        if len(self._describe) > bus.inline:
            raise ValueError(
                f"the manifests of {len(self.tools)} tools have {len(self._describe)} bytes, "
                f"at most {bus.inline} fit into a message: run several workers"
            )
        self._discovery = Discovery(self) if discovery else None

        self._phase = FRESH
        self._quiet = False
        self._live: dict[Run, None] = {}  # the oldest first
        self._watching = False
        self._counted = Stats(capacity=self.concurrency)
        self._memory: Memory[tuple[str, str], Memo] = Memory(key_ttl, max_keys, _MEMORY_BYTES)
        self._gone: Memory[str, list[int]] = Memory(_CANCEL_TTL, _MAX_CANCELS, _MEMORY_BYTES)
        self._unsent: list[tuple[str, dict[str, str] | None, bytes]] = []
        self._unsent_bytes = 0
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()
        self._idle = asyncio.Event()
        self._beats = asyncio.Event()
        self._done = asyncio.Event()
        self._seq = 0

    # ── its life ─────────────────────────────────────────────────────────────────────────────────────────────────────

    async def run(self) -> list[str]:
        """Take calls until ``stop`` is called, a drain frame comes or this is cancelled, and then leave: take no more,
        finish what runs within the grace, say bye. It returns the calls that did not stop: none after a clean drain.
        Unavailable where the connection ended for good, Denied where the server refuses a subject.
        """
        if self._phase != FRESH:
            raise RuntimeError("Worker.run was called twice: make a new Worker")
        self._phase = OPEN
        self.bus.on_reconnect.append(self._resume)
        calls: list[Subscription] = []
        others: list[Subscription] = []
        heart: asyncio.Task[None] | None = None
        try:
            await self._subscribe(calls, others)
            heart = self.loop.create_task(self._beat())
            interrupted = await self._until_told()
            if self.bus.closed.is_set():
                self._enter(CLOSED)
                await self._abort()
                raise Unavailable("the connection was closed while the worker ran")
            left = await self._leave(calls, others)
            if interrupted is not None:
                raise interrupted
            return left
        finally:
            self._phase = CLOSED
            if heart is not None:
                heart.cancel()
                await asyncio.gather(heart, return_exceptions=True)
                await self._bye()
            self.bus.on_reconnect.remove(self._resume)
            self.runners.close()
            self.threads.close()
            self._done.set()

    def stop(self) -> None:
        """Begin to leave. It does not wait: ``run`` returns when it is done."""
        self._stop.set()

    def hurry(self) -> None:
        """``stop``, and let running calls go on no longer: they are told to stop."""
        self._stop.set()
        self._hurry.set()

    async def shutdown(self) -> None:
        """``stop``, and wait until ``run`` is about to return."""
        self.stop()
        if self._phase != FRESH:
            await self._done.wait()

    async def _until_told(self) -> asyncio.CancelledError | None:
        try:
            await _first(self._stop, self.bus.closed)
        except asyncio.CancelledError as e:
            return e
        return None

    async def _subscribe(self, calls: list[Subscription], others: list[Subscription]) -> None:
        """Listen to everything. Calls come last, when all that may follow one is there."""
        s = self.bus.subjects
        others.append(await self.bus.subscribe(s.rollcall(), lambda _: self._beats.set()))
        for name in self.tools:
            others.append(await self.bus.subscribe(s.cancel(name), partial(self._take_cancel, name=name)))
        if self._discovery is not None:
            for subject, answer in self._discovery.subjects().items():
                others.append(await self.bus.subscribe(subject, answer))
        others.append(await self.bus.subscribe(s.to(self.id), self._take_own))
        for name in self.tools:
            calls.append(await self.bus.subscribe(s.call(name), partial(self._take_call, name=name), QUEUE_WORKERS))
        await self.bus.flush()
        for sub in [*others, *calls]:
            if why := self.bus.refused.get(sub.subject):
                raise Denied(f"subscribe to {sub.subject}: {why}: let this user subscribe to it")

    async def _leave(self, calls: list[Subscription], others: list[Subscription]) -> list[str]:
        self._enter(DRAINING)
        self._beats.set()
        await self.bus.drain(calls, self._grace)
        self._enter(CLOSED)
        await _first(self._idle, self._hurry, timeout=self._grace)
        if not self._idle.is_set():
            log.warning("%d calls still run at the end of the grace: they are told to stop", len(self._live))
        left = await self._abort()
        await self.bus.drain(others, CANCEL_GRACE)
        return left

    async def _abort(self) -> list[str]:
        """Tell what still runs to stop, and say what did not."""
        for r in list(self._live):
            r.stop(SHUTDOWN)
        await self._idle.wait()  # all are told to stop, so after the grace none is open
        left = [str(r) for r in self._live]
        for call in left:
            log.error("abandoned %s, which did not stop", call)
        return left

    def _enter(self, phase: int) -> None:
        self._phase = phase
        self._rest()

    def _rest(self) -> None:
        if self._phase == CLOSED and len(self._live) <= self._counted.leaked:
            self._idle.set()

    @property
    def stats(self) -> Stats:
        """What it counts, at this moment."""
        c = self._counted
        c.running, c.draining, c.unsent = len(self._live), self._phase > OPEN or self._quiet, len(self._unsent)
        return c

    # ── calls ────────────────────────────────────────────────────────────────────────────────────────────────────────

    def _take_call(self, m: Msg, name: str, *, chosen: bool = False) -> None:
        q = Request(name, m.headers, m.data)
        t = self.tools.get(q.tool)
        if not self._may_answer(m.reply, q.tool):
            return
        c = Caller(q.call, q.attempt, m.reply, m.reply)
        f: ToolError | None = q.fault
        if f is None and q.progress:
            c.progress = q.progress
            if not self._rule.allows(q.progress, q.tool):
                f = InvalidArguments(
                    f"header {headers.PROGRESS}: expected a reply subject of {q.tool} or an inbox, got {quote(q.progress)}"
                )
        if f is not None:
            self.answer(t, c, failed(f))
        elif t is None:
            self.answer(None, c, self._unknown(q.tool))
        else:
            a = self._admit(t, q, c, chosen)
            if a is not None:
                self.answer(t, c, a)

    def _may_answer(self, reply: str, name: str) -> bool:
        """The first question about any message: whether its reply subject is one that a caller may choose."""
        if name in self.tools:
            if self._rule.allows(reply, name):
                return True
        elif any(self._rule.allows(reply, n) for n in self.tools):
            return True
        self._counted.bad_reply += 1
        log.warning("message ignored: we do not answer there: reply=%s tool=%s", quote(reply), quote(name))
        return False

    def _unknown(self, name: str) -> Answer:
        if not name:
            return nack(
                ToolNotFound(f"header {headers.TOOL} is missing: a call to a worker of one's choice must name the tool")
            )
        f = ToolNotFound(f"this worker has no tool {quote(name)}")
        if near := nearest(name, list(self.tools)):
            f.suggestions = near
        return nack(f)

    def _admit(self, t: AnyTool, q: Request, c: Caller, chosen: bool) -> Answer | None:
        """Begin a run, give the caller to one that is there, or say what to answer now."""
        at = self.loop.time()
        m = None
        if q.call:
            gone = self._gone.get(q.call, at)
            if gone is not None and c.attempt <= gone.value[0]:
                return Answer("stopped", Cancelled("the call was cancelled before it came", execution="not_started"))
            m = self._memory.get((t.name, q.call), at)
            if m is not None and c.attempt < m.value.attempt:
                return self._no(nack(Cancelled(f"attempt {c.attempt} is older than attempt {m.value.attempt}")))
        total = b""
        if q.key:
            total = request_sum(q)
            if q.key != q.call:
                m = self._memory.get((t.name, q.key), at)
            if m is not None and (m.value.run is not None or m.value.answer is not None):
                return self._repeat(m, total, t, q, c, at)
        if self._quiet or self._phase == CLOSED or (self._phase == DRAINING and chosen):
            return self._no(overloaded("this worker takes no more calls", _AWAY))
        if len(self._live) >= self.concurrency:
            return self._no(overloaded(f"this worker runs {len(self._live)} calls, which is all it may", _BUSY))

        r = Run(self, t, q, c, at)
        if q.key:
            r.key = self._remember(r, q.key, c.attempt if q.key == q.call else 0, at)
            r.key.value.sum = total
        if q.call and q.call != q.key:
            self._remember(r, q.call, c.attempt, at)
        self._live[r] = None
        self._counted.calls += 1
        r.start()
        return None

    def _no(self, a: Answer) -> Answer:
        self._counted.nacked += 1
        return a

    def _remember(self, r: Run, name: str, attempt: int, at: float) -> MemoItem:
        """Put a run under a key for as long as it runs."""
        m = self._memory.hold((r.tool.name, name), Memo(), at)
        m.value.run = r
        m.value.attempt = max(m.value.attempt, attempt)
        if m not in r.memos:
            r.memos = (*r.memos, m)
        return m

    def watch(self, r: Run) -> None:
        """See to it that a run is ``due`` ACCEPT_AFTER its begin, if it has not ended by then. One timer does for all:
        most runs end before it.
        """
        if not self._watching:
            self._watching = True
            self.loop.call_at(r.begun + ACCEPT_AFTER, self._look)

    def _look(self) -> None:
        self._watching = False
        old = self.loop.time() - ACCEPT_AFTER
        for r in list(self._live):
            if r.timed:
                continue
            if r.begun > old:  # as are those that come after it
                self.watch(r)
                return
            r.due()

    def _repeat(self, m: MemoItem, total: bytes, t: AnyTool, q: Request, c: Caller, at: float) -> Answer | None:
        """A call whose key is known: it gets the answer that was given, or waits for the run that is there."""
        if m.value.sum != total:
            return failed(
                InvalidArguments(f"the key {quote(q.key)} was used with other arguments: choose another key for another call")
            )
        if m.value.answer is not None:
            self._counted.repeated += 1
            m.value.attempt = max(m.value.attempt, c.attempt)
            self._memory.keep(m, m.value.answer.size, at)
            return m.value.answer
        r = m.value.run
        assert r is not None
        if not r.attach(c):
            return self._no(
                overloaded(f"an earlier run for the key {quote(q.key)} has not ended: ask again later", CANCEL_GRACE)
            )
        self._counted.repeated += 1
        if q.call:
            self._remember(r, q.call, c.attempt, at)
        return None

    def finish(self, r: Run, a: Answer) -> None:
        """The end of a tool: its place is free, its answer is remembered if it lasts, and then its callers get it, unless
        they were answered before. In this order: who has the answer may ask again at once.
        """
        at = self.loop.time()
        self._live.pop(r, None)
        for m in r.memos:
            if m.value.run is not r:
                continue
            m.value.run = None
            size = 0
            if m is r.key and a.lasting:
                m.value.answer, size = a, a.size
            self._memory.keep(m, size, at)
        if r.leaked:
            self._counted.leaked -= 1
        self._note(r, a, at - r.begun, r.leaked)
        r.end(a)
        self._rest()

    def abandon(self, r: Run) -> None:
        """The end of a call whose tool does not stop. The tool keeps its place. Its key is free for another run only
        where two at once do no harm.
        """
        a = r.stopped("unknown")
        if r not in self._live or r.leaked:
            return
        r.leaked = True
        self._counted.leaked += 1
        self._note(r, a, 0, False)
        if r.tool.may_run_twice():
            for m in r.memos:
                m.value.run = None
                self._memory.keep(m, 0, self.loop.time())
            r.memos = ()
        r.end(a)
        log.error("tool leaked: %s goes on although its call is over: %s", r, a.fault)
        self._rest()

    def _note(self, r: Run, a: Answer, took: float, leaked: bool) -> None:
        if a.fault is not None and not leaked:
            self._counted.errors += 1
        if self._discovery is not None:
            self._discovery.note(r.tool.name, took, None if leaked else a.fault)

    # ── what is said to it ───────────────────────────────────────────────────────────────────────────────────────────

    def _take_own(self, m: Msg) -> None:
        frame = headers.frame_of(m.headers)
        if not frame:
            self._take_call(m, "", chosen=True)
        elif frame == "cancel":
            self._take_cancel(m, "")
        elif frame == "ping":
            self._pong(m)
        elif frame == "describe":
            self.reply(
                m.reply,
                {headers.FRAME: "manifests", headers.WORKER: self.id, headers.CONTENT_TYPE: headers.MSGPACK},
                self._describe,
            )
        elif frame == "drain":
            log.info("told to drain")
            self.stop()
        elif frame == "quarantine":
            log.warning("told to take no more calls")
            self._quiet = True
            self._beats.set()
        else:
            log.warning("frame of an unknown kind ignored: %s", quote(frame))

    def reply(self, subject: str, header: dict[str, str] | None, data: bytes) -> None:
        """Answer a control frame, if the asker may choose that subject."""
        if self._may_answer(subject, ""):
            self.send(subject, header, data)

    def _pong(self, m: Msg) -> None:
        h = {headers.FRAME: "pong", headers.WORKER: self.id}
        if v := headers.get(m.headers, headers.CALL):
            try:
                h[headers.RUNNING] = "1" if self._runs(CallRef.parse(v), "", exactly=True) else "0"
            except WireError:
                h[headers.RUNNING] = "0"
        self.reply(m.reply, h, b"")

    def _take_cancel(self, m: Msg, name: str) -> None:
        """Stop an attempt and older ones of its call. Where it is not here it may be on its way: then it is stopped when
        it comes. Nobody is answered but the caller of the attempt.
        """
        try:
            ref = CallRef.parse(headers.get(m.headers, headers.CALL))
        except WireError as e:
            log.warning("cancel ignored: %s", e)
            return
        runs = self._runs(ref, name, exactly=False)
        if not runs:
            self._foresee(ref)
        for r in runs:
            c = r.drop(ref.key, ref.attempt)
            if c is not None:
                f = Cancelled("the call was cancelled; its run goes on for others with the same key")
                self.answer(r.tool, c, Answer("stopped", f))

    def _runs(self, ref: CallRef, name: str, *, exactly: bool) -> list[Run]:
        """The runs that serve a call: this attempt exactly, or also older ones."""
        at = self.loop.time()
        found: list[Run] = []
        for n in [name] if name else self.tools:
            m = self._memory.get((n, ref.key), at)
            if m is not None and m.value.run is not None and m.value.run.serves(ref.key, ref.attempt, exactly=exactly):
                found.append(m.value.run)
        return found

    def _foresee(self, ref: CallRef) -> None:
        """Remember a cancel whose call is not here, for a while, unless the call has been here."""
        at = self.loop.time()
        for n in self.tools:
            m = self._memory.get((n, ref.key), at)
            if m is not None and m.value.attempt >= ref.attempt:
                return
        g = self._gone.hold(ref.key, [0], at)
        g.value[0] = max(g.value[0], ref.attempt)
        self._gone.keep(g, len(g.key), at)

    # ── what it says ─────────────────────────────────────────────────────────────────────────────────────────────────

    def answer(self, t: AnyTool | None, c: Caller, a: Answer) -> None:
        """End an attempt. Where the connection is away the answer waits for it, within bounds."""
        header, data = a.header, a.data
        if a.fault is not None:
            record = a.fault.fault()
            record.worker, record.attempt = self.id, c.attempt
            record.tool = record.tool or (t.name if t is not None else "")
            data = codec.marshal(headers.JSON, record)
            header = {
                headers.FRAME: a.frame,
                headers.WORKER: self.id,
                headers.SERVICE_ERROR: _one_line(record.message) or record.kind,
                headers.SERVICE_ERROR_CODE: str(a.fault.http),
            }
            if record.retry_after_ms:
                header[headers.RETRY_AFTER] = str(record.retry_after_ms)
        if self.send(c.reply, header, data):
            return
        if len(self._unsent) < _MAX_LETTERS and self._unsent_bytes + len(data) <= _MAX_LETTER_BYTES:
            self._unsent.append((c.reply, header, data))
            self._unsent_bytes += len(data)

    def send(self, subject: str, header: dict[str, str] | None, data: bytes = b"") -> bool:
        """Publish a frame to a subject that was found to be for replies when it came. False where the connection is away,
        so that it may be sent later.
        """
        try:
            self.bus.publish(subject, data, header)
        except Unavailable as e:
            log.warning("frame %s not sent: %s", headers.frame_of(header) or "result", e)
            return False
        except ToolError as e:
            log.warning("frame %s dropped: %s", headers.frame_of(header) or "result", e)
        return True

    def _resume(self) -> None:
        """After a reconnect: the answers that waited, and a heartbeat."""
        letters, self._unsent, self._unsent_bytes = self._unsent, [], 0
        for subject, header, data in letters:
            self.send(subject, header, data)
        self._beats.set()

    async def _beat(self) -> None:
        """Say hello, then beat."""
        self._say("hello")
        self.ready.set()
        due = self.loop.time() + self._every
        while True:
            try:
                await asyncio.wait_for(self._beats.wait(), max(0.0, due - self.loop.time()))
                await asyncio.sleep(random.random() * _ROLLCALL_JITTER)  # a thousand workers do not speak at once
            except asyncio.TimeoutError:
                self.traced = tracing.enabled()
                due = max(due + self._every, self.loop.time())
                self._memory.forget(self.loop.time())
                self._gone.forget(self.loop.time())
            self._beats.clear()
            self._say("beat")

    async def _bye(self) -> None:
        self._say("bye")
        if self.bus.connected:
            try:
                await self.bus.flush()
            except Unavailable as e:
                log.warning("last words may be lost: %s", e)

    def _say(self, state: str) -> None:
        self._seq += 1
        s = self.stats
        beat = Heartbeat(
            worker=self.id,
            state=state,
            tools=self._lines,
            running=s.running,
            capacity=s.capacity,
            leaked=s.leaked,
            draining=s.draining,
            sdk=SDK,
            every_ms=round(self._every * 1000),
            seq=self._seq,
        )
        try:
            self.bus.publish(self.bus.subjects.heartbeat(self.id), codec.marshal(headers.MSGPACK, beat))
        except ToolError as e:
            log.warning("heartbeat not sent: %s", e)


def _one_line(text: str) -> str:
    line = "".join(" " if c < " " or "\x7f" <= c < "\xa0" else c for c in text[:1000])
    return truncate(line, 512).strip()


async def serve(*tools: AnyTool, url: str = "", signals: bool = True, **options: Any) -> None:
    """Connect, run tools until SIGTERM, Ctrl-C or a drain frame comes, or this is cancelled, drain and disconnect. A second
    signal ends the grace. ``options`` are those of Worker. See also ``python -m toolbus``.

    With ``signals`` False it leaves signals alone, for a program that has handlers of its own, and so it does outside the
    main thread, where Python allows none: cancel the task then.
    """
    bus = await Bus.connect(url)
    try:
        worker = Worker(bus, tools, **options)
        asked = False

        def told() -> None:
            nonlocal asked
            (worker.hurry if asked else worker.stop)()
            asked = True

        with heard(told) if signals else contextlib.nullcontext():
            await worker.run()
    finally:
        await bus.close()


async def _first(*events: asyncio.Event, timeout: float | None = None) -> None:
    """Wait for one of several events, for at most that many seconds."""
    waits = [asyncio.ensure_future(e.wait()) for e in events]
    try:
        await asyncio.wait(waits, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for w in waits:
            w.cancel()
