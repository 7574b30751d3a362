"""The rules of records beyond their types: what is wrong with one, all of it at once."""

from __future__ import annotations

from collections.abc import Iterable

from .errors import WireError, quote
from .limits import MAX_ATTEMPT, MAX_CALLS, MAX_EVENTS, MAX_MS, MAX_TOOLS, VERSION
from .names import RESERVED, is_id, is_name
from .records import (
    Call,
    Describe,
    Event,
    Heartbeat,
    LateQuery,
    LateRecord,
    Page,
    Record,
    TraceQuery,
    TurnControl,
    TurnReply,
    TurnRequest,
)


class Problems:
    """What is wrong with a record, each with its field. The first twenty are told."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def add(self, problem: str) -> None:
        """One more."""
        self.found.append(problem)

    def id(self, field: str, text: str, *, needed: bool = True) -> None:
        """An id, which may be empty unless it is needed."""
        if (text or needed) and not is_id(text):
            self.add(f"{field}: expected 1 to 128 of A-Z a-z 0-9 _ -, got {quote(text)}")

    def tool(self, field: str, text: str) -> None:
        """A tool's name."""
        if not is_name(text) or text == RESERVED:
            self.add(f"{field}: expected 1 to 64 of A-Z a-z 0-9 _ -, and not {RESERVED}, got {quote(text)}")

    def between(self, field: str, n: float, low: int, high: int) -> None:
        """A number within bounds."""
        if not low <= n <= high:
            self.add(f"{field}: expected {low} to {high}, got {n}")

    def one_of(self, field: str, text: str, *words: str) -> None:
        """One of some words, or nothing."""
        if text and text not in words:
            self.add(f"{field}: expected {' or '.join(words)}, got {quote(text)}")

    def line(self, field: str, text: str, most: int, *, least: int = 0) -> None:
        """One line of text."""
        if not least <= len(text.encode("utf-8", "replace")) <= most or any(c < " " or "\x7f" <= c < "\xa0" for c in text):
            self.add(f"{field}: expected one line of {least} to {most} bytes, got {quote(text)}")

    def count(self, field: str, n: int, most: int) -> None:
        """How many there may be."""
        if n > most:
            self.add(f"{field}: at most {most} are allowed, got {n}")

    def unique(self, field: str, ids: Iterable[str]) -> None:
        """No id twice."""
        seen: set[str] = set()
        for i, text in enumerate(ids):
            if text in seen:
                self.add(f"{field}[{i}]: {quote(text)} is there twice")
            seen.add(text)

    def raise_(self) -> None:
        """Refuse the record if anything was found."""
        if self.found:
            more = f"; and {len(self.found) - 20} problems more" if len(self.found) > 20 else ""
            raise WireError("record", "; ".join(self.found[:20]) + more)


def check(record: Record) -> None:
    """Refuse a record that breaks its rules. Executors check the same, and more: what calls have to do with one another."""
    p = Problems()
    if isinstance(record, TurnRequest):
        p.id("id", record.id, needed=False)
        p.line("session", record.session, 256)
        p.between("deadline_ms", record.deadline_ms, 0, MAX_MS)
        p.one_of("deadline_mode", record.deadline_mode, "soft", "hard")
        p.between("parallel", record.parallel, 0, MAX_CALLS)
        p.between("tool_parallel", record.tool_parallel, 0, MAX_CALLS)
        p.one_of("on_failure", record.on_failure, "continue", "stop")
        p.one_of("on_client_loss", record.on_client_loss, "continue", "cancel")
        if not record.calls and not record.open:
            p.add("calls: expected at least one, got none; only a turn with open may begin without calls")
        _calls(p, record.calls)
    elif isinstance(record, TurnControl):
        p.id("call", record.call, needed=False)
        _calls(p, record.calls)
    elif isinstance(record, TurnReply):
        if record.ok == (record.fault is not None):
            p.add("fault: expected one where it is not ok, and none where it is")
    elif isinstance(record, LateQuery):
        p.id("turn", record.turn, needed=False)
        p.id("call", record.call)
    elif isinstance(record, TraceQuery):
        p.id("turn", record.turn)
    elif isinstance(record, LateRecord):
        _version("late result", record.v)
        p.id("turn", record.turn, needed=record.fault is None)
        if (record.result is None) == (record.fault is None):
            p.add("result: expected one, or a fault, and not both")
        if record.result is not None:
            p.id("result.call", record.result.call)
            p.tool("result.tool", record.result.tool)
            p.line("result.status", record.result.status, 64, least=1)
    elif isinstance(record, Event):
        _version("event", record.v)
        _event(p, record)
    elif isinstance(record, Page):
        _version("page", record.v)
        p.id("turn", record.turn)
        p.count("events", len(record.events), MAX_EVENTS)
        for i, e in enumerate(record.events[:MAX_EVENTS]):
            _version(f"events[{i}]: event", e.v)
            _event(p, e)
            if e.turn != record.turn:
                p.add(f"events[{i}].turn: expected {quote(record.turn)}, as the page says, got {quote(e.turn)}")
    elif isinstance(record, Heartbeat):
        p.id("worker", record.worker)
        p.line("state", record.state, 32)
        p.line("sdk", record.sdk, 128)
        p.between("every_ms", record.every_ms, 10, 600_000)
        p.count("tools", len(record.tools), MAX_TOOLS)
        p.unique("tools", (t.id for t in record.tools[:MAX_TOOLS]))
        for i, t in enumerate(record.tools[:MAX_TOOLS]):
            p.tool(f"tools[{i}].id", t.id)
    elif isinstance(record, Describe):
        p.id("worker", record.worker)
        p.count("manifests", len(record.manifests), MAX_TOOLS)
        p.unique("manifests", (m.id for m in record.manifests[:MAX_TOOLS]))
    p.raise_()


def _version(what: str, v: int) -> None:
    if v != VERSION:
        raise WireError("version", f"{what} of version {v}: expected {VERSION}")


def _event(p: Problems, e: Event) -> None:
    p.line("type", e.type, 64, least=1)
    p.id("turn", e.turn)
    p.id("call", e.call, needed=False)
    p.between("seq", e.seq, 0, 1 << 53)
    p.between("attempt", e.attempt, 0, MAX_ATTEMPT)


def _calls(p: Problems, calls: list[Call]) -> None:
    p.count("calls", len(calls), MAX_CALLS)
    p.unique("calls", (c.id for c in calls[:MAX_CALLS] if c.id))
    for i, c in enumerate(calls[:MAX_CALLS]):
        at = f"calls[{i}]."
        p.id(at + "id", c.id, needed=False)
        p.tool(at + "tool", c.tool)
        p.between(at + "timeout_ms", c.timeout_ms, 0, MAX_MS)
        p.line(at + "key", c.key, 512)
        p.line(at + "breaker_key", c.breaker_key, 512)
        p.one_of(at + "effect", c.effect, "read", "idempotent", "write")
        p.count(at + "after", len(c.after), MAX_CALLS)
        p.count(at + "alternatives", len(c.alternatives), 3)
        for j, a in enumerate(c.alternatives[:3]):
            p.tool(f"{at}alternatives[{j}].tool", a.tool)
