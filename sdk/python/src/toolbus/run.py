"""One use of a tool, from its beginning to the one frame that ends it."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from . import blobs, tracing
from .context import Context, current_context, making
from .errors import (
    MAX_MESSAGE,
    Cancelled,
    InvalidResult,
    Overloaded,
    Timeout,
    ToolError,
    Upstream,
    WorkerLost,
    classify,
)
from .memory import Item
from .request import Request, parse_args
from .tools import AnyTool, encode_plain
from .wire import codec, headers
from .wire.errors import truncate
from .wire.limits import ACCEPT_AFTER, CANCEL_GRACE, MAX_BLOB
from .wire.records import ProgressRecord

if TYPE_CHECKING:
    from .worker import Worker

log = logging.getLogger("toolbus")

MAX_CALLERS: Final = 8
_BLOB_TTL: Final = 24 * 3600
_PATIENCE: Final = 10.0  # seconds with NATS, in what no call bounds
_MAX_AHEAD: Final = 32 << 20  # bytes of pieces that wait for the socket
_LATE: Final = 0.025  # seconds after which a timer was held up, as all else on the event loop

TIMEOUT: Final = "timeout"
CANCELLED: Final = "cancelled"
SHUTDOWN: Final = "shutdown"


@dataclass(slots=True)
class Answer:
    """What ends a call: a result, or a fault and the frame that carries it."""

    frame: str = ""
    fault: ToolError | None = None
    header: dict[str, str] | None = None
    data: bytes = b""

    @property
    def lasting(self) -> bool:
        """Whether a repeat of the call may get the same answer: it was done, and would be again."""
        f = self.fault
        return f is None or (f.execution == "done" and f.transient is False)

    @property
    def size(self) -> int:
        """About how many bytes it holds."""
        f = self.fault
        return 256 + len(self.data) + (1024 + len(f.message) + len(f.detail) if f else 0)


def failed(f: ToolError) -> Answer:
    """The end of a call that did not go well."""
    return Answer("error", f)


def nack(f: ToolError) -> Answer:
    """Says that the call did not run and will not."""
    f.execution = "not_started"
    return Answer("nack", f)


@dataclass(slots=True)
class Caller:
    """Who waits for a run: one attempt, and where to answer it. A bare request has no ``call`` and hears only the end."""

    call: str
    attempt: int
    reply: str
    progress: str
    accepted: bool = False


@dataclass(slots=True)
class Memo:
    """What is remembered of a call, or of an idempotency key."""

    attempt: int = 0
    sum: bytes = b""
    run: Run | None = None
    answer: Answer | None = None


MemoItem = Item[tuple[str, str], Memo]


class Run:
    """One use of a tool. Its callers may change while it runs: a newer attempt takes the place of an older one, and
    another call with the same key joins. The deadline stays that of the first.

    Two things can end it for its callers, whichever comes first: the tool's return (``Worker.finish``) and the timer,
    once the tool had its grace after the deadline or a cancel and did not return (``Worker.abandon``).

    What most runs never need, as a context or a timer, is made when it is needed.
    """

    memos: Sequence[MemoItem] = ()
    key: MemoItem | None = None
    leaked = False
    ended = False
    stopping = ""
    """Why the tool was told to stop."""
    _context: Context | None = None
    _timer: asyncio.TimerHandle | None = None
    _task: asyncio.Task[None] | None = None  # what to cancel, where a cancel does any good
    _spoilt = False  # the tool left something behind in its task
    _patient = False  # it waited once more
    _seq = 0

    def __init__(self, worker: Worker, tool: AnyTool, request: Request, caller: Caller, begun: float) -> None:
        self.worker = worker
        self.tool = tool
        self.request = request
        self.callers = [caller]
        self.begun = begun
        self.timeout = request.timeout_ms / 1000 if request.timeout_ms else tool.timeout
        self._deadline = begun + self.timeout
        self._give_up = self._deadline + CANCEL_GRACE

    def context(self) -> Context:
        """What the tool may know of the call."""
        if self._context is None:
            with making:
                if self._context is None:
                    self._context = self._make_context()
            if self.stopping:  # after it is there for all: _halt, which looks in the other order, may have missed it
                self._context._stop()
        return self._context

    def _make_context(self) -> Context:
        q = self.request
        ref = q.ref
        c = Context(
            self.tool.name,
            turn=ref.turn if ref else "",
            call=ref.call if ref else "",
            attempt=q.attempt,
            session=q.session,
            key=q.key,
            timeout=self._deadline - self.worker.loop.time(),
            timeout_ms=q.timeout_ms,
            headers=q.header,
            worker=self.worker.id,
        )
        if self.tool.is_async:
            c._progress, c._partial = self._progress, self._partial
        else:
            loop = self.worker.loop
            c._progress = lambda *p: _later(loop, self._progress, *p)
            c._partial = self._partial_from_thread
        return c

    def __str__(self) -> str:
        return f"{self.tool.name} {self.request.reference}".rstrip()

    # ── its life ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def start(self) -> None:
        """Begin."""
        if self.timeout <= ACCEPT_AFTER:
            self._arm(self._deadline)
        else:
            self.worker.watch(self)
        self.worker.runners.submit(self.serve)

    async def serve(self, task: asyncio.Task[None]) -> bool:
        """Run the tool in ``task`` and settle what comes of it. It says whether the task may serve others."""
        try:
            answer = await (self._traced(task) if self.worker.traced else self._outcome(task))
        except ToolError as e:  # before the tool, or after it
            answer = failed(e)
        except BaseException as e:  # ours: the tool's own are dealt with
            log.exception("worker broke down while %s ran", self)
            answer = failed(classify(e))
        self.worker.finish(self, answer)
        return not (self.stopping or self._spoilt)

    async def _traced(self, task: asyncio.Task[None]) -> Answer:
        template = self.worker.bus.subjects.call("{tool}")
        with tracing.span(self.tool.name, self.request.reference, self.worker.id, template, self.request.header) as span:
            try:
                answer = await self._outcome(task)
            except ToolError as e:
                answer = failed(e)
            if answer.fault is not None:
                tracing.failed(span, answer.fault.kind, answer.fault.execution, answer.fault.message)
            return answer

    async def _outcome(self, task: asyncio.Task[None]) -> Answer:
        raw = self.request.args
        if self.request.blob is not None:
            fetched = await self._fetch(task)
            if isinstance(fetched, Answer):
                return fetched
            raw = fetched
        bound = self.tool.bind(parse_args(raw), self.context() if self.tool.takes_context else None)
        if self.stopping:
            return self.stopped("not_started")
        token = current_context.set(self.context)
        here = contextvars.copy_context()
        try:
            if self.tool.is_async:
                self._task = task
                value = await self.tool.function(**bound)
            else:  # nothing can stop a thread: it is waited for
                value = await self.worker.threads.submit(functools.partial(here.run, self.tool.function, **bound))
        except BaseException as e:
            return self._failure(e)
        finally:
            self._task = None
            # The next call must not see what this one left behind. (An equal context is a quick question.)
            self._spoilt = self.tool.is_async and contextvars.copy_context() != here
            current_context.reset(token)
        content_type, data = self.tool.encode(value)
        answer = Answer(data=data)
        if content_type != headers.JSON:
            answer.header = {headers.CONTENT_TYPE: content_type}
        if len(data) > self.worker.bus.inline:
            await self._check_in(answer)
        return answer

    async def _fetch(self, task: asyncio.Task[None]) -> bytes | Answer:
        assert self.request.blob is not None
        if self.stopping:
            return self.stopped("not_started")
        self._task = task
        try:
            return await blobs.get(self.worker.bus, self.request.blob)
        except asyncio.CancelledError:
            return self.stopped("not_started")
        except Exception as e:
            f = classify(e)
            f.args = (f"the arguments could not be fetched: {f.message}",)
            f.execution = "not_started"
            return failed(f)
        finally:
            self._task = None

    async def _check_in(self, answer: Answer) -> None:
        """Put a large result where its claim check says."""
        size = len(answer.data)
        if size > MAX_BLOB:
            raise InvalidResult(
                f"the result has {size} bytes, at most {MAX_BLOB} are allowed: return a part, or a reference to it"
            )
        try:
            ref = await asyncio.wait_for(blobs.put(self.worker.bus, answer.data, _BLOB_TTL), _PATIENCE)
        except (ToolError, asyncio.TimeoutError) as e:
            raise Upstream(
                f"the tool ran, but its result of {size} bytes does not fit into a message and could not be stored: {e}",
                execution="done",
            ) from e
        answer.header = {**(answer.header or {}), headers.BLOB: str(ref)}
        answer.data = b""

    def _failure(self, e: BaseException) -> Answer:
        """What a tool's exception means. One after it was told to stop means that it stopped, unless it says itself
        that it was done.
        """
        f = classify(e)
        said = f is e or f.__cause__ is not e
        if not said and f.execution == "not_started":
            f.execution = "unknown"  # what could not be reached did not run; the tool, which tried to, did
        if not self.stopping:
            if not said:
                log.warning("%s failed: %s", self, f.message, exc_info=e if isinstance(e, Exception) else None)
            return failed(f)
        if said and f.execution == "done":
            return failed(f)
        a = self.stopped("stopped")
        assert a.fault is not None
        if not isinstance(e, asyncio.CancelledError):
            a.fault.detail = truncate(f"{type(e).__name__}: {e}", MAX_MESSAGE)
        return a

    def stopped(self, execution: Any) -> Answer:
        """The end of a run that was told to stop, by the reason for it. With ``unknown`` the tool has not returned."""
        f: ToolError
        frame = "error"
        if self.stopping == CANCELLED:
            f, frame = Cancelled("the call was cancelled"), "stopped"
        elif self.stopping == SHUTDOWN:
            f = WorkerLost("the worker was shut down while the call ran")
        else:
            f = Timeout(f"{self.tool.name} did not answer within {self.timeout:g}s")
        f.execution = execution
        if execution == "unknown":
            frame = "error"
            f.args = (f"{f.message} and may still be running: it did not stop when it was told to",)
        return Answer(frame, f)

    def due(self) -> None:
        """The time has come for something: the accept frame, the deadline, or the end of patience."""
        if self.ended:
            return
        now = self.worker.loop.time()
        self._accept()
        if now >= self._deadline:
            self._halt(TIMEOUT)
        if now >= self._give_up:
            if self._patient or now - self._give_up < _LATE:
                self.worker.abandon(self)
            else:  # the tool may have returned in time, and its answer lie behind us; or it was held up as we were
                self._patient = True
                self._arm(now + _LATE)
            return
        self._arm(self._give_up if self.stopping else self._deadline)

    @property
    def timed(self) -> bool:
        """Whether it has a timer of its own."""
        return self._timer is not None

    def _arm(self, when: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self.worker.loop.call_at(when, self.due)

    def stop(self, why: str) -> None:
        """Tell the tool to stop, and give it the grace to do so."""
        if self.ended or self.stopping:
            return
        self._halt(why)
        self._arm(self._give_up)

    def _halt(self, why: str) -> None:
        if self.stopping:
            return
        self.stopping = why
        self._give_up = min(self._give_up, self.worker.loop.time() + CANCEL_GRACE)
        if self._context is not None:
            self._context._stop()
        if self._task is not None:
            self._task.cancel()

    # ── its callers ──────────────────────────────────────────────────────────────────────────────────────────────────

    def attach(self, c: Caller) -> bool:
        """Another caller: in the place of an older attempt at the same call, or beside others. False where the run is as
        good as over, or has too many.
        """
        if self.ended or self.stopping:
            return False
        for i, o in enumerate(self.callers):
            if o.call == c.call:
                self.callers[i] = c
                break
        else:
            if len(self.callers) >= MAX_CALLERS:
                return False
            self.callers.append(c)
        self._accept()
        return True

    def drop(self, call: str, attempt: int) -> Caller | None:
        """Cancel an attempt, or an older one of its call. The run stops with its last caller; where others wait for it
        the caller is taken away and returned, to be answered.
        """
        for i, o in enumerate(self.callers):
            if not self.ended and o.call == call and o.attempt <= attempt:
                if len(self.callers) == 1:
                    self.stop(CANCELLED)
                    return None
                return self.callers.pop(i)
        return None

    def serves(self, call: str, attempt: int, *, exactly: bool) -> bool:
        """Whether an attempt up to this one waits for the run; with ``exactly``, this very one."""
        return not self.ended and any(
            o.call == call and (o.attempt == attempt or (not exactly and o.attempt < attempt)) for o in self.callers
        )

    def end(self, a: Answer) -> None:
        """Answer all callers, once."""
        if self.ended:
            return
        self.ended = True
        if self._timer is not None:
            self._timer.cancel()
        for c in self.callers:
            self.worker.answer(self.tool, c, a)

    # ── frames that end nothing ──────────────────────────────────────────────────────────────────────────────────────

    def _accept(self) -> None:
        for c in self.callers:
            if c.call and not c.accepted:
                c.accepted = True
                self.worker.send(c.progress, {headers.FRAME: "accept", headers.WORKER: self.worker.id})

    def _frame(self, frame: str, header: dict[str, str], data: bytes) -> None:
        self._accept()
        h = {headers.FRAME: frame, headers.WORKER: self.worker.id, **header}
        for c in self.callers:
            if c.call:
                self.worker.send(c.progress, h, data)

    def _progress(self, done: float, total: float, message: str) -> None:
        if self.ended:
            return
        try:
            data = codec.marshal(headers.JSON, ProgressRecord(done, total, truncate(str(message), MAX_MESSAGE)))
        except ValueError as e:
            log.warning("progress of %s dropped: %s", self, e)
            return
        self._frame("progress", {}, data)

    def _partial(self, piece: Any) -> None:
        content_type, data = self._encode(piece)
        if self.ended:
            raise ValueError(f"a piece of the result of {self.tool.name} came after the end of the call")
        if self.worker.bus.nc.pending_data_size > _MAX_AHEAD:
            raise ValueError(f"{self.tool.name} sends pieces faster than they leave: await something between them")
        self._seq += 1
        header = {headers.SEQ: str(self._seq)}
        if content_type != headers.JSON:
            header[headers.CONTENT_TYPE] = content_type
        self._frame("partial", header, data)

    def _encode(self, piece: Any) -> tuple[str, bytes]:
        content_type, data = encode_plain(piece)
        most = self.worker.bus.inline
        if len(data) > most:
            raise ValueError(f"a piece of {len(data)} bytes does not fit into a message, at most {most} do")
        return content_type, data

    def _partial_from_thread(self, piece: Any) -> None:
        """``_partial`` on the event loop, waited for: a thread cannot run ahead of the socket by much."""
        self._encode(piece)
        if self.ended:
            raise ValueError(f"a piece of the result of {self.tool.name} came after the end of the call")

        async def send() -> None:
            self._partial(piece)

        asyncio.run_coroutine_threadsafe(send(), self.worker.loop).result(_PATIENCE)


def _later(loop: asyncio.AbstractEventLoop, f: Any, *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(f, *args)
    except RuntimeError:
        return  # the loop is closed: nobody listens any more


def request_sum(q: Request) -> bytes:
    """Tells arguments apart. A claim check stands for what it was made of."""
    if q.blob is not None:
        return q.blob.sha256.encode()
    if len(q.args) <= 64:
        return b"=" + q.args
    return hashlib.blake2b(q.args, digest_size=16).digest()


def overloaded(message: str, after: float) -> Answer:
    """The nack of a worker that has no room."""
    return nack(Overloaded(message, retry_after=after))
