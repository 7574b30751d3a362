"""What ``@tool`` makes of functions."""

from __future__ import annotations

import datetime
from typing import Annotated, Any, cast

import pytest
from pydantic import BaseModel, Field

from toolbus import Bytes, Context, InvalidArguments, InvalidResult, current, manifest, tool
from toolbus.wire import jsontext
from toolbus.wire.records import BreakerPolicy, Classification, Manifest, Override, RetryPolicy


def schema(t: Any) -> Any:
    return jsontext.loads(t.manifest.input_schema)


def test_a_function_says_what_it_is() -> None:
    @tool(effect="read", timeout=2.5)
    def add(a: int, b: Annotated[int, Field(ge=0)] = 1, *, note: str | None = None) -> dict[str, int]:
        """Adds.

        Two numbers.

        Args:
            a: one
        """
        return {"sum": a + b}

    assert add.name == "add"
    assert add.manifest.description == "Adds.\n\nTwo numbers."
    assert add.manifest.timeout_ms == 2500
    assert schema(add) == {
        "type": "object",
        "properties": {
            "a": {"type": "integer"},
            "b": {"type": "integer", "minimum": 0, "default": 1},
            "note": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None},
        },
        "required": ["a"],
        "additionalProperties": False,
    }
    assert jsontext.loads(add.manifest.output_schema) == {"type": "object", "additionalProperties": {"type": "integer"}}
    assert add(1, 2) == {"sum": 3}
    assert add.bind({"a": 1}, Context()) == {"a": 1}


def test_all_violations_at_once() -> None:
    @tool
    def add(a: int, b: int) -> int:
        return a + b

    with pytest.raises(InvalidArguments) as e:
        add.bind({"a": "1", "c": True}, Context())
    assert [(v.pointer, v.expected, v.got) for v in e.value.violations] == [
        ("/a", "integer", 'string "1"'),
        ("/b", "a value", "missing"),
        ("/c", "a known property", "unknown property"),
    ]


class Query(BaseModel):
    words: str
    day: datetime.date | None = None


def test_a_model_is_the_arguments_as_a_whole() -> None:
    @tool
    def find(query: Query, ctx: Context) -> list[Query]:
        return [query]

    bound = find.bind({"words": "x", "day": "2026-11-21"}, Context())
    assert bound["query"] == Query(words="x", day=datetime.date(2026, 11, 21))
    assert find.encode([bound["query"]]) == ("application/json", b'[{"words":"x","day":"2026-11-21"}]')
    with pytest.raises(InvalidArguments):
        find.bind({"words": "x", "day": "soon"}, Context())


def test_rest_takes_anything() -> None:
    @tool
    def echo(**rest: Any) -> Any:
        return rest

    assert schema(echo) == {"type": "object"}
    assert echo.bind({"a": {"b": [1]}}, Context()) == {"a": {"b": [1]}}


@pytest.mark.parametrize("name", ["schema", "copy", "model_x", "json", "class_", "_x"])
def test_any_name_of_a_parameter(name: str) -> None:
    made: dict[str, Any] = {}
    exec(f"def f({name}: int) -> int:\n    return {name}", made)
    t = tool(made["f"])
    assert t.bind({name: 1}, Context()) == {name: 1}


@pytest.mark.parametrize(
    ("value", "why"),
    [(float("nan"), "cannot be sent"), ({1, 2}, "does not fit"), ("\ud800", "cannot be sent"), (3, "does not fit")],
)
def test_results_that_do_not_fit(value: Any, why: str) -> None:
    @tool(output_schema={"type": "string"})
    def f() -> Any:
        return value

    with pytest.raises(InvalidResult, match=why):
        f.encode(value)


def test_bytes() -> None:
    @tool
    def f() -> bytes:
        return b"\x00"

    assert f.encode(b"\x00") == ("application/octet-stream", b"\x00")
    assert f.encode(Bytes(b"x", "text/plain")) == ("text/plain", b"x")
    assert f.encode(Bytes(b"[1]", "application/json")) == ("application/json", b"[1]")


def test_mistakes_are_told_at_once() -> None:
    with pytest.raises(ValueError, match=r"id: .*effect: .*timeout_ms") as e:
        tool(name="a b", effect=cast(Any, "wrte"), timeout=1e6)(lambda: None)
    assert "alternatives" not in str(e.value)
    with pytest.raises(ValueError, match=r"retry.attempts: unknown; known are strategy"):
        tool(retry={"attempts": 3})(lambda: None)
    with pytest.raises(ValueError, match="not loaded from elsewhere"):
        tool(name="x", input_schema={"$ref": "https://example.com/s.json"})(lambda: None)


def test_current_outside_of_a_call() -> None:
    with pytest.raises(LookupError, match="no call runs here"):
        current()
    Context().progress(1, 2)
    Context().partial({})


def test_digest() -> None:
    """As tool.Manifest.Digest of Go computes it."""
    full = Manifest(
        id="search", version="1.2.0", description="Finds <things> & \u2028 more \x7f\x01.",
        input_schema={"type": "object", "properties": {"q": {"type": "string"}, "a": {"maximum": 1.5}}}, output_schema=True,
        effect="read", timeout_ms=5000, idle_timeout_ms=500,
        retry_policy=RetryPolicy(strategy="exponential_backoff", max_delay_ms=800, multiplier=2.0, jitter_percent=12.5),
        circuit_breaker=BreakerPolicy(failure_threshold=5, rate=0.05, ramp_up=True),
        classification=Classification(
            kinds={"upstream": Override(retry=False), "timeout": Override("permanent")}, codes={"503": Override("permanent")}
        ),
        idempotency_keys=True, alternatives=["find", "scan"], fallback_on=["not_found"], optional=True, default=[],
        tags=["web"], annotations={"title": "Search", "owner": "ann"},
    )  # fmt: skip
    assert manifest.digest(full) == "d1a6210b52c63af9475550c087abfcd4"
    assert manifest.digest(Manifest(id="echo")) == "e8bbe6ab6ed854c5084e184a795fac97"
