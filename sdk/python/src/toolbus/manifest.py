"""What a tool declares about itself: its canonical JSON, its digest, its mistakes."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from typing import Any, Final

from .errors import KINDS
from .schema import Schema
from .wire import codec, jsontext
from .wire.names import check_name
from .wire.records import Manifest

DEFAULT_TIMEOUT: Final = 30.0
_DAY: Final = 24 * 3600 * 1000
_OWN: Final = ("circuit_open", "cancelled", "deadline", "loop_blocked")


def canonical(m: Manifest) -> bytes:
    """The JSON of a manifest: no blanks, fields in order, keys within schemas and the default sorted."""
    settled = replace(
        m,
        input_schema=_settle(m.input_schema),
        output_schema=_settle(m.output_schema),
        default=_settle(m.default),
    )
    return codec.marshal("application/json", settled)


def digest(m: Manifest) -> str:
    """Names the content of a manifest: the first 16 bytes of the SHA-256 of its JSON, in hex."""
    return hashlib.sha256(canonical(m)).hexdigest()[:32]


def _settle(raw: Any) -> Any:
    if raw is None:
        return None
    value = jsontext.loads(raw) if isinstance(raw, bytes) else raw
    return jsontext.dumps(value, sort=True)


def timeout(m: Manifest) -> float:
    """How long one attempt may take, in seconds."""
    return m.timeout_ms / 1000 if m.timeout_ms else DEFAULT_TIMEOUT


def check(m: Manifest) -> tuple[Schema | None, Schema | None]:
    """The schemas of a manifest without mistakes. ValueError says all that is wrong. The executors check the same."""
    found: list[str] = []

    def say(field: str, problem: object) -> None:
        found.append(f"{field}: {problem}")

    def named(field: str, name: str) -> None:
        try:
            check_name(name)
        except ValueError as e:
            say(field, e)

    def span(field: str, n: float | None, low: float, high: float = (1 << 31) - 1) -> None:
        if n is not None and not low <= n <= high:
            say(field, f"expected a number from {low} to {high}, got {n}")

    named("id", m.id)
    for i, name in enumerate(m.alternatives):
        named(f"alternatives[{i}]", name)
        if name == m.id or name in m.alternatives[:i]:
            say(f"alternatives[{i}]", f"{name} is the tool itself, or there twice; name another")
    if len(m.alternatives) > 3:
        say("alternatives", f"expected at most 3, got {len(m.alternatives)}")
    if m.effect not in ("", "read", "idempotent", "write"):
        say("effect", f"expected read, idempotent or write, got {m.effect!r}")
    if len(m.description) > 4096:
        say("description", f"expected at most 4096 characters, got {len(m.description)}")
    if len(m.version) > 64:
        say("version", f"expected at most 64 characters, got {len(m.version)}")
    if len(m.tags) > 32:
        say("tags", f"expected at most 32, got {len(m.tags)}")
    for i, tag in enumerate(m.tags):
        named(f"tags[{i}]", tag)
    span("timeout_ms", m.timeout_ms, 0, _DAY)
    span("idle_timeout_ms", m.idle_timeout_ms, 0, timeout(m) * 1000)
    if r := m.retry_policy:
        for field in ("initial_delay_ms", "max_delay_ms", "max_total_time_ms"):
            span(f"retry.{field}", getattr(r, field), 0, _DAY)
        span("retry.multiplier", r.multiplier, 1)
        span("retry.jitter_percent", r.jitter_percent, 0, 100)
        span("retry.max_attempts", r.max_attempts, 1)
        if r.strategy not in ("", "exponential_backoff", "exponential", "linear", "constant", "none"):
            say("retry.strategy", f"expected exponential_backoff, linear, constant or none, got {r.strategy!r}")
    if b := m.circuit_breaker:
        for field, low, high in (
            ("failure_threshold", 1, 1 << 31), ("success_threshold", 1, 1 << 31), ("timeout_ms", 1, _DAY),
            ("max_timeout_ms", 1, _DAY), ("window_ms", 1000, _DAY), ("slow_ms", 1, _DAY), ("min_calls", 1, 1 << 31),
            ("rate", 0.01, 1), ("timeout_growth", 1, 100), ("probes", 1, 64), ("min_reporters", 1, 16),
        ):  # fmt: skip
            span(f"breaker.{field}", getattr(b, field), low, high)
        if b.mode not in ("", "consecutive", "failure_rate", "slow_calls"):
            say("breaker.mode", f"expected consecutive, failure_rate or slow_calls, got {b.mode!r}")
    if c := m.classification:
        for kind in c.kinds:
            if kind not in KINDS or kind in _OWN:
                say(f"classification.kinds.{kind}", "expected a kind of docs/errors.md that tools may change")
        for where, o in [*c.kinds.items(), *c.codes.items()]:
            if o.class_ not in ("", "transient", "permanent"):
                say(f"classification.{where}", f"expected transient or permanent, got {o.class_!r}")
    for i, kind in enumerate(m.fallback_on):
        if kind != "permanent" and (kind not in KINDS or KINDS[kind].transient is not False):
            say(f"fallback_on[{i}]", f"expected a kind of permanent fault, or permanent, got {kind!r}")
    into, out = _schema(say, "input_schema", m.input_schema), _schema(say, "output_schema", m.output_schema)
    if m.default is not None:
        value = jsontext.loads(codec.raw_bytes(m.default))
        if out is not None and (bad := out.violations(value)):
            say("default", f"does not fit output_schema: expected {bad[0].expected} at {bad[0].pointer or 'the top'}")
        if len(codec.raw_bytes(m.default)) > 64 << 10:
            say("default", "expected at most 65536 bytes")
    if found:
        raise ValueError(f"tool {m.id!r}: " + "; ".join(found))
    return into, out


def _schema(say: Any, field: str, raw: Any) -> Schema | None:
    if raw is None:
        return None
    try:
        value = jsontext.loads(raw) if isinstance(raw, bytes) else raw
        if field == "input_schema" and isinstance(value, dict) and value.get("type", "object") != "object":
            say(field, "/type: expected object, as arguments are always one JSON object")
        return Schema(value)
    except (ValueError, TypeError, RecursionError) as e:
        say(field, e)
        return None
