"""Hands turns to executors over the bus, and brings back what happens to them. It decides nothing."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import itertools
import secrets
from collections import deque
from collections.abc import AsyncGenerator, Iterable
from typing import Any, Final, TypeVar

from nats.aio.msg import Msg

from . import blobs, tracing
from .bus import Bus
from .errors import (
    Internal,
    InvalidArguments,
    NotFound,
    Timeout,
    Unavailable,
    WorkerLost,
    from_fault,
)
from .wire import check, codec, headers
from .wire.errors import WireError
from .wire.names import RESERVED, check_id
from .wire.records import (
    Call,
    Event,
    LateQuery,
    LateRecord,
    Outcome,
    Page,
    Record,
    TraceQuery,
    TurnControl,
    TurnRequest,
)
from .wire.refs import BlobRef

R = TypeVar("R", bound=Record)

SILENCE: Final = 5.0
"""Seconds for which an executor may say nothing about a turn before it is taken for lost. A live one speaks each second."""

_MAX_FRAMES: Final = 4096
_MAX_BYTES: Final = 32 << 20
_ANSWER: Final = 10.0
_MAX_EVENTS: Final = 100_000
_MAX_ANSWER: Final = 64 << 20


class _Inbox:
    """The frames that came back for one request. Beyond its bounds the oldest are dropped, so that the last, which has
    the outcome, never is.
    """

    def __init__(self, frames: int = _MAX_FRAMES, size: int = _MAX_BYTES) -> None:
        self._frames: deque[Msg] = deque()
        self._more: asyncio.Future[None] | None = None
        self._most, self._most_bytes, self._bytes = frames, size, 0
        self.dropped = False

    def put(self, m: Msg) -> None:
        self._bytes += len(m.data)
        self._frames.append(m)
        while len(self._frames) > 1 and (len(self._frames) > self._most or self._bytes > self._most_bytes):
            self._bytes -= len(self._frames.popleft().data)
            self.dropped = True
        if self._more is not None and not self._more.done():
            self._more.set_result(None)

    async def get(self, timeout: float) -> Msg:
        if not self._frames:
            # Not wait_for: before Python 3.12 it swallows a cancel that comes together with a frame.
            self._more = asyncio.get_running_loop().create_future()
            late = asyncio.get_running_loop().call_later(timeout, _give_up, self._more)
            try:
                await self._more
            finally:
                late.cancel()
        m = self._frames.popleft()
        self._bytes -= len(m.data)
        return m


def _give_up(waiting: asyncio.Future[None]) -> None:
    if not waiting.done():
        waiting.set_exception(asyncio.TimeoutError())


class Client:
    """Runs turns. Make it with ``connect`` and use it as an async context manager, or on a Bus of your own.

    What it raises is a ToolError: Unavailable where no executor is there (nothing ran), WorkerLost where the executor
    went silent (what ran is unknown).
    """

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self._owned = False
        self._numbers = itertools.count(1)
        self._inboxes: dict[str, _Inbox] = {}
        self._listening = False
        self._listen = asyncio.Lock()

    @classmethod
    async def connect(cls, url: str = "", *, prefix: str = "", **options: Any) -> Client:
        """A client on a connection of its own, made as ``Bus.connect`` does: without a URL by TOOLBUS_NATS_URL."""
        client = cls(await Bus.connect(url, name="toolbus client", prefix=prefix, **options))
        client._owned = True
        return client

    async def __aenter__(self) -> Client:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection, where it is the client's own."""
        if self._owned:
            await self.bus.close()

    async def run(self, turn: TurnRequest | Call | Iterable[Call]) -> Outcome:
        """Run a turn and return its outcome. Cancelling this cancels the turn."""
        async with contextlib.aclosing(self.stream(turn)) as events:
            async for event in events:
                if event.outcome is not None:
                    return event.outcome
        raise Internal("the events ended without an outcome")

    async def stream(self, turn: TurnRequest | Call | Iterable[Call]) -> AsyncGenerator[Event, None]:
        """Run a turn and give each event as it comes; the last is TurnEnded, with the outcome. Calls without an id get
        one. Leaving the loop early, or cancelling it, cancels the turn.
        """
        request = _request(turn)
        header, body = await self._pack(request)
        inbox, reply = await self._open()
        header[headers.PROGRESS] = reply
        header.update(tracing.outgoing())
        ended = False
        try:
            self.bus.publish(self.bus.subjects.turn_run(), body, header, reply)
            while not ended:
                event = await self._event(inbox, request.id)
                if event is None or event.type == "Alive":
                    continue
                ended = event.type == "TurnEnded"
                if ended and event.outcome is None:
                    raise Internal(f"the executor ended turn {request.id} without an outcome")
                yield event
        except (Unavailable, WorkerLost):
            ended = True  # there is nobody to tell
            raise
        finally:
            self._close(reply)
            if not ended:
                with contextlib.suppress(Unavailable):
                    self.cancel(request.id)

    async def _event(self, inbox: _Inbox, turn: str) -> Event | None:
        try:
            m = await inbox.get(SILENCE)
        except asyncio.TimeoutError:
            raise WorkerLost(f"the executor of turn {turn} has gone silent: what ran is unknown") from None
        event = self._decode(await self._payload(m), Event)
        # What speaks of another turn is not for us: whoever runs a turn chooses where its events go.
        return event if event.turn in ("", turn) else None

    def cancel(self, turn: str, call: str = "") -> None:
        """Tell whoever runs the turn to stop it, or one call of it. It does not wait: the outcome says what came of it."""
        check_id(turn)
        header = {headers.FRAME: "cancel", headers.CONTENT_TYPE: headers.MSGPACK}
        control = TurnControl(call=call)
        check.check(control)
        self.bus.publish(self.bus.subjects.turn_ctl(turn), codec.marshal(headers.MSGPACK, control), header)

    async def late(self, turn: str, call: str) -> LateRecord:
        """What came of a call that went on after its turn had ended; kept for a day. An empty turn means whichever turn
        had such a call last. NotFound where there is nothing.
        """
        query = LateQuery(turn, call)
        async with contextlib.aclosing(self._ask(self.bus.subjects.turn_late(), query)) as parts:
            async for data in parts:
                record = self._decode(data, LateRecord)
                if record.fault is not None:
                    raise from_fault(record.fault)
                if record.result is None or record.result.call != call or turn not in ("", record.turn):
                    raise Internal(f"the executor answered with the late result of another call than {call}")
                return record
        raise Internal("no answer came")

    async def trace(self, turn: str) -> list[Event]:
        """The journal of a turn: its events in order, those so far where it still runs. NotFound where there is none."""
        events: list[Event] = []
        async with contextlib.aclosing(self._ask(self.bus.subjects.turn_trace(), TraceQuery(turn))) as parts:
            async for data in parts:
                page = self._decode(data, Page)
                if page.fault is not None:
                    raise from_fault(page.fault)
                if page.turn != turn:
                    raise Internal(f"the executor answered with events of another turn than {turn}")
                events += page.events
                if len(events) > _MAX_EVENTS:
                    raise Internal(f"the journal of turn {turn} has more than the {_MAX_EVENTS} events that are taken in")
                if page.last:
                    break
        if not events:
            raise NotFound(f"there is no journal of turn {turn}")
        return events

    async def _ask(self, subject: str, query: Record) -> AsyncGenerator[bytes, None]:
        """Ask any executor, and give the parts of its answer until nobody wants more."""
        _checked(query)
        header, body = await self._pack(query)
        inbox, reply = await self._open(_MAX_EVENTS, _MAX_ANSWER)
        size = 0
        try:
            self.bus.publish(subject, body, header, reply)
            while True:
                try:
                    data = await self._payload(await inbox.get(_ANSWER))
                except asyncio.TimeoutError:
                    raise Timeout(f"no executor has answered on {subject} for {_ANSWER:g} s; try again") from None
                size += len(data)
                if inbox.dropped or size > _MAX_ANSWER:
                    raise Internal(f"the answer on {subject} is larger than the {_MAX_ANSWER} bytes that are taken in")
                yield data
        finally:
            self._close(reply)

    async def _open(self, frames: int = _MAX_FRAMES, size: int = _MAX_BYTES) -> tuple[_Inbox, str]:
        """An inbox and its reply subject. All of a client share one subscription."""
        async with self._listen:
            if not self._listening:
                await self.bus.subscribe(self.bus.subjects.replies(self.bus.id), self._take)
                self._listening = True
        reply = self.bus.subjects.reply(RESERVED, self.bus.id, str(next(self._numbers)))
        inbox = self._inboxes[reply] = _Inbox(frames, size)
        return inbox, reply

    def _close(self, reply: str) -> None:
        self._inboxes.pop(reply, None)

    def _take(self, m: Msg) -> None:
        inbox = self._inboxes.get(m.subject)
        if inbox is not None:
            inbox.put(m)

    async def _pack(self, record: Record) -> tuple[dict[str, str], bytes]:
        """A record ready to send. What does not fit a message is put behind a claim check."""
        header = {headers.CONTENT_TYPE: headers.MSGPACK}
        body = _encoded(record)
        if len(body) > self.bus.inline:
            header[headers.BLOB] = str(await blobs.put(self.bus, body, 3600))
            body = b""
        return header, body

    async def _payload(self, m: Msg) -> bytes:
        """What a frame from an executor holds, behind a claim check or not."""
        if not m.data and headers.get(m.headers, "Status") == "503":
            raise Unavailable("no executor is running: start one with `executor serve` or `executor dev`")
        text = headers.get(m.headers, headers.BLOB)
        if not text:
            return m.data
        try:
            ref = BlobRef.parse(text)
        except WireError as e:
            raise Internal(f"the executor sent a claim check that cannot be read: {e}") from None
        return await blobs.get(self.bus, ref)

    def _decode(self, data: bytes, into: type[R]) -> R:
        try:
            return codec.decode(data, into)
        except WireError as e:
            raise Internal(f"what the executor sent cannot be read: {e}", execution="unknown") from None


def _request(turn: TurnRequest | Call | Iterable[Call]) -> TurnRequest:
    """A turn with an id, and an id for each of its calls."""
    if isinstance(turn, Call):
        turn = [turn]
    request = dataclasses.replace(turn) if isinstance(turn, TurnRequest) else TurnRequest(calls=list(turn))
    request.id = request.id or secrets.token_hex(11)
    taken = {c.id for c in request.calls}
    free = (f"c{n}" for n in itertools.count(1) if f"c{n}" not in taken)
    request.calls = [c if c.id else dataclasses.replace(c, id=next(free)) for c in request.calls]
    _checked(request)
    return request


def _checked(record: Record) -> None:
    try:
        check.check(record)
    except WireError as e:
        raise InvalidArguments(str(e)) from None


def _encoded(record: Record) -> bytes:
    try:
        return codec.marshal(headers.MSGPACK, record)
    except (ValueError, TypeError, RecursionError) as e:
        raise InvalidArguments(str(e)) from None
