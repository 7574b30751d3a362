"""The structured records of version 1. Their fields stand in the order in which they are written.

A raw field is JSON that we only pass on: bytes of JSON as they stand, or (going out) any value that JSON can hold; None
is absent. What came in is bytes; the properties beside a raw field read it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from . import jsontext
from .headers import is_json

_REQUEST = 300_000  # values: enough for 1,000 calls with everything set


def _w(kind: Any, name: str = "", *, always: bool = False, default: Any = None) -> Any:
    """A field: its kind for the codec, its name on the wire where that is another, whether it is there when empty."""
    meta = {"kind": kind, "name": name, "always": always}
    if (isinstance(kind, tuple) and kind[0] == "list") or kind in ("strs", "map", "overrides"):
        return field(default_factory=dict if kind in ("map", "overrides") else list, metadata=meta)
    return field(default=default, metadata=meta)


def text(name: str = "", *, always: bool = False) -> Any:
    """A text."""
    return _w("str", name, always=always, default="")


def integer(name: str = "", *, always: bool = False) -> Any:
    """An integer within ±2^53."""
    return _w("int", name, always=always, default=0)


def fraction(name: str = "", *, always: bool = False) -> Any:
    """Any number."""
    return _w("float", name, always=always, default=0)


def truth(name: str = "", *, always: bool = False) -> Any:
    """True or false."""
    return _w("bool", name, always=always, default=False)


def maybe(kind: str, name: str = "") -> Any:
    """A value of this kind, or None where nobody said."""
    return _w(kind + "?", name)


def raw(name: str = "") -> Any:
    """JSON that is passed on."""
    return _w("raw", name)


class Record:
    """What all records have in common: see ``codec``."""

    MAX_VALUES: ClassVar[int] = 10_000


@dataclass(slots=True)
class ProgressRecord(Record):
    """How far a call is. ``total`` 0 means not known."""

    done: float = fraction(always=True)
    total: float = fraction()
    message: str = text()


@dataclass(slots=True)
class ToolLine(Record):
    """One tool of a worker and the digest of its manifest."""

    id: str = text(always=True)
    version: str = text()
    digest: str = text(always=True)


@dataclass(slots=True)
class Heartbeat(Record):
    """What a worker says of itself. ``state`` is hello, beat or bye."""

    worker: str = text(always=True)
    state: str = text(always=True)
    tools: list[ToolLine] = _w(("list", ToolLine), always=True)
    running: int = integer(always=True)
    capacity: int = integer(always=True)
    leaked: int = integer()
    draining: bool = truth()
    sdk: str = text()
    every_ms: int = integer(always=True)
    seq: int = integer(always=True)


@dataclass(slots=True)
class Violation(Record):
    """One way in which arguments or a result break their schema. ``pointer`` is RFC 6901; "" is the whole value."""

    pointer: str = text(always=True)
    expected: str = text()
    got: str = text()


@dataclass(slots=True)
class Fault(Record):
    """Why a call gave no result. ``message`` is for the model, ``detail`` for people only."""

    kind: str = text(always=True)
    message: str = text(always=True)
    detail: str = text()
    code: str = text()
    retry_after_ms: int = integer()
    execution: str = text()
    suggestions: list[str] = _w("strs")
    violations: list[Violation] = _w(("list", Violation))
    tool: str = text()
    worker: str = text()
    attempt: int = integer()


@dataclass(slots=True)
class RetryPolicy(Record):
    """How failed attempts are repeated. None leaves the word to the next layer."""

    strategy: str = text()
    initial_delay_ms: int | None = maybe("int")
    max_delay_ms: int | None = maybe("int")
    multiplier: float | None = maybe("float")
    jitter_percent: float | None = maybe("float")
    max_attempts: int | None = maybe("int")
    max_total_time_ms: int | None = maybe("int")


@dataclass(slots=True)
class BreakerPolicy(Record):
    """When calls are not even tried."""

    failure_threshold: int | None = maybe("int")
    success_threshold: int | None = maybe("int")
    timeout_ms: int | None = maybe("int")
    mode: str = text()
    window_ms: int | None = maybe("int")
    min_calls: int | None = maybe("int")
    rate: float | None = maybe("float")
    slow_ms: int | None = maybe("int")
    timeout_growth: float | None = maybe("float")
    max_timeout_ms: int | None = maybe("int")
    probes: int | None = maybe("int")
    min_reporters: int | None = maybe("int")
    distinct_calls: bool = truth()
    ramp_up: bool = truth()


@dataclass(slots=True)
class Override(Record):
    """Changes one fault's meaning for one tool. ``class_`` is transient or permanent."""

    class_: str = text("class")
    retry: bool | None = maybe("bool")
    breaker: bool | None = maybe("bool")


@dataclass(slots=True)
class Classification(Record):
    """What faults of this tool mean: by kind, or by the fault's code, which wins."""

    kinds: dict[str, Override] = _w("overrides")
    codes: dict[str, Override] = _w("overrides")


@dataclass(slots=True)
class Manifest(Record):
    """What a tool declares about itself: docs/manifest.md says what each field means."""

    id: str = text(always=True)
    version: str = text()
    description: str = text()
    input_schema: Any = raw()
    output_schema: Any = raw()
    effect: str = text()
    timeout_ms: int = integer()
    idle_timeout_ms: int = integer()
    retry_policy: RetryPolicy | None = _w(RetryPolicy)
    circuit_breaker: BreakerPolicy | None = _w(BreakerPolicy)
    classification: Classification | None = _w(Classification)
    idempotency_keys: bool = truth()
    fallback: str = text()
    alternatives: list[str] = _w("strs")
    fallback_on: list[str] = _w("strs")
    optional: bool = truth()
    default: Any = raw()
    tags: list[str] = _w("strs")
    annotations: dict[str, str] = _w("map")


@dataclass(slots=True)
class Describe(Record):
    """The answer to describe."""

    MAX_VALUES: ClassVar[int] = 100_000

    worker: str = text(always=True)
    manifests: list[Manifest] = _w(("list", Manifest), always=True)


@dataclass(slots=True)
class Alternative(Record):
    """Another tool that can stand in for the one that was called."""

    tool: str = text(always=True)
    args: Any = raw()
    timeout_ms: int = integer()
    retry: RetryPolicy | None = _w(RetryPolicy)
    breaker_key: str = text()


@dataclass(slots=True)
class Call(Record):
    """One use of a tool within a turn. docs/protocol.md says what each field means and what empty ones default to."""

    id: str = text(always=True)
    tool: str = text(always=True)
    args: Any = raw()
    timeout_ms: int = integer()
    key: str = text()
    breaker_key: str = text()
    retry: RetryPolicy | None = _w(RetryPolicy)
    effect: str = text()
    after: list[str] = _w("strs")
    join: str = text()
    join_by_ms: int = integer()
    optional: bool = truth()
    default: Any = raw()
    alternatives: list[Alternative] = _w(("list", Alternative))
    fallback_on: list[str] = _w("strs")


@dataclass(slots=True)
class TurnRequest(Record):
    """Asks an executor to run a turn: calls and a deadline."""

    MAX_VALUES: ClassVar[int] = _REQUEST

    id: str = text(always=True)
    session: str = text()
    deadline_ms: int = integer()
    calls: list[Call] = _w(("list", Call), always=True)
    deadline_mode: str = text()
    parallel: int = integer()
    tool_parallel: int = integer()
    on_failure: str = text()
    on_client_loss: str = text()
    open: bool = truth()


@dataclass(slots=True)
class TurnControl(Record):
    """What is said to a turn that runs."""

    MAX_VALUES: ClassVar[int] = _REQUEST

    call: str = text()
    calls: list[Call] = _w(("list", Call))
    seq: int = integer()


@dataclass(slots=True)
class TurnReply(Record):
    """The answer to add and close."""

    ok: bool = truth(always=True)
    fault: Fault | None = _w(Fault)


@dataclass(slots=True)
class LateQuery(Record):
    """Asks for the late result of a call. An empty turn means whichever had such a call last."""

    turn: str = text()
    call: str = text(always=True)


@dataclass(slots=True)
class TraceQuery(Record):
    """Asks for the journal of a turn."""

    turn: str = text(always=True)


@dataclass(slots=True)
class Attempt(Record):
    """One try at a call, as the result's history tells it. Times are milliseconds."""

    n: int = integer(always=True)
    tool: str = text(always=True)
    worker: str = text()
    kind: str = text()
    message: str = text()
    start_ms: float = fraction(always=True)
    duration_ms: float = fraction(always=True)
    delay_ms: float = fraction()
    decision: str = text()
    because: str = text()


@dataclass(slots=True)
class Result(Record):
    """The one end that every call gets. ``status`` is one of those in docs/protocol.md."""

    call: str = text(always=True)
    tool: str = text(always=True)
    status: str = text(always=True)
    fallback_tool: str = text()
    because_of: str = text()
    raw: bytes | None = _w("raw", "value")
    content_type: str = text()
    fault: Fault | None = _w(Fault)
    attempts: list[Attempt] = _w(("list", Attempt))
    sentence: str = text()
    duration_ms: float = fraction(always=True)

    @property
    def value(self) -> Any:
        """What the tool answered: the JSON, or bytes where ``content_type`` says that it is something else."""
        if self.raw is None:
            return None
        return jsontext.loads(self.raw) if is_json(self.content_type) else self.raw


@dataclass(slots=True)
class LateRecord(Record):
    """A result that came after its turn had ended, or why there is none."""

    v: int = integer(always=True)
    turn: str = text(always=True)
    session: str = text()
    timestamp: str = text()
    result: Result | None = _w(Result)
    fault: Fault | None = _w(Fault)


@dataclass(slots=True)
class Outcome(Record):
    """What a turn ends with: one result for every call, in order."""

    MAX_VALUES: ClassVar[int] = _REQUEST

    turn: str = text(always=True)
    status: str = text(always=True)
    results: list[Result] = _w(("list", Result), always=True)
    running: list[str] = _w("strs")
    sentence: str = text()
    duration_ms: float = fraction(always=True)

    def __getitem__(self, call: str) -> Result:
        """The result of the call with this id."""
        for r in self.results:
            if r.call == call:
                return r
        raise KeyError(call)


@dataclass(slots=True)
class Event(Record):
    """One line of a turn's journal. docs/protocol.md lists the types and what each has; the rest is empty."""

    MAX_VALUES: ClassVar[int] = _REQUEST + 1000

    v: int = integer(always=True)
    type: str = text(always=True)
    seq: int = integer(always=True)
    at_ms: float = fraction(always=True)
    timestamp: str = text()
    turn: str = text(always=True)
    call: str = text()
    tool_id: str = text()
    attempt: int = integer()
    worker: str = text()
    executor: str = text()
    traceparent: str = text()
    """Where TurnStarted stands in a trace, as W3C writes it; empty where nobody traces."""
    progress: ProgressRecord | None = _w(ProgressRecord)
    raw_piece: bytes | None = _w("raw", "piece")
    piece_seq: int = integer()
    error: Fault | None = _w(Fault)
    classification: str = text()
    circuit_breaker_state: str = text()
    retry_count: int = integer()
    decision: str = text()
    because: str = text()
    delay_ms: float = fraction()
    request: TurnRequest | None = _w(TurnRequest)
    timeout_ms: float = fraction()
    because_of: str = text()
    result: Result | None = _w(Result)
    outcome: Outcome | None = _w(Outcome)

    @property
    def piece(self) -> Any:
        """The piece of a Partial."""
        return None if self.raw_piece is None else jsontext.loads(self.raw_piece)


@dataclass(slots=True)
class Page(Record):
    """Some events of one turn in order."""

    MAX_VALUES: ClassVar[int] = _REQUEST + 2000

    v: int = integer(always=True)
    turn: str = text(always=True)
    events: list[Event] = _w(("list", Event))
    last: bool = truth()
    fault: Fault | None = _w(Fault)
