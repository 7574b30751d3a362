"""Parts that need no server: strict JSON, faults, memory, numbers, reply rules under random input."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from typing import Any

import pytest

from toolbus import InvalidArguments, NotFound, RateLimited, ToolError, TruncatedCall, Violation, classify, error
from toolbus.errors import KINDS, from_fault
from toolbus.memory import Memory
from toolbus.request import Request, parse_args
from toolbus.wire import jsontext
from toolbus.wire.errors import WireError, truncate
from toolbus.wire.scan import scan


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        (b"", {}), (b" \n", {}), (b"null", {}), (b'{"a":1}', {"a": 1}), (b' {"a":1.0} ', {"a": 1.0}),
        (b'{"a":"\\ud83e\\udd8a"}', {"a": "🦊"}), (b'{"a":"\\ud83e"}', {"a": "\ufffd"}), (b"[" * 0 + b"{}", {}),
    ],
)  # fmt: skip
def test_arguments(raw: bytes, value: Any) -> None:
    assert parse_args(raw) == value


@pytest.mark.parametrize(
    "raw",
    [b"[1]", b"3", b"{}x", b'{"a":1,"a":2}', b'{"a":NaN}', b'{"a":Infinity}', b'{"a":1e999}', b"\xff", b"\xef\xbb\xbf{}",
     b'{"a":' + b"1" * 500 + b"}", b'{"a":' + b"[" * 100 + b"]" * 100 + b"}", b"{'a':1}", b'{"a":\x01}', b'{"a":"\x01"}',
     b"[" * 100_000, b'{"a":[' + b"1," * 1_000_001 + b"1]}"],
    ids=lambda raw: repr(raw[:20]),
)  # fmt: skip
def test_arguments_that_are_refused(raw: bytes) -> None:
    with pytest.raises(InvalidArguments):
        parse_args(raw)


@pytest.mark.parametrize("whole", ['{"abc":"d\\u00e9f","n":-12.5e3,"t":true,"x":[null,{"é":1}]}'])
def test_arguments_that_end_too_early(whole: str) -> None:
    data = whole.encode()
    for cut in range(1, len(data)):
        with pytest.raises(TruncatedCall):
            parse_args(data[:cut])


class Response:
    def __init__(self, status: int, **headers: str) -> None:
        self.status_code = status
        self.headers = {k.replace("_", "-"): v for k, v in headers.items()}


class HTTPError(Exception):
    def __init__(self, response: Response) -> None:
        super().__init__(f"status {response.status_code}")
        self.response = response


class ReadTimeout(Exception):
    pass


class TimeoutException(ReadTimeout):
    pass


def caused(by: Exception) -> Exception:
    e = ValueError("outer")
    e.__cause__ = by
    return e


@pytest.mark.parametrize(
    ("err", "kind", "code"),
    [
        (HTTPError(Response(404)), "not_found", "404"),
        (HTTPError(Response(429)), "rate_limited", "429"),
        (HTTPError(Response(503)), "unavailable", "503"),
        (HTTPError(Response(418)), "failed", "418"),
        (HTTPError(Response(599)), "upstream", "599"),
        (asyncio.TimeoutError(), "timeout", ""),
        (TimeoutError("late"), "timeout", ""),
        (TimeoutException("late"), "timeout", ""),
        (ConnectionRefusedError("no"), "unavailable", ""),
        (ConnectionResetError("reset"), "upstream", ""),
        (OSError("[Errno 111] Connection refused"), "unavailable", ""),
        (ValueError("Too Many Requests, go away"), "rate_limited", ""),
        (ZeroDivisionError("x"), "upstream", ""),
        (asyncio.CancelledError(), "cancelled", ""),
        (caused(RateLimited("r")), "rate_limited", ""),
        (caused(HTTPError(Response(401))), "denied", "401"),
    ],
)
def test_classify(err: BaseException, kind: str, code: str) -> None:
    f = classify(err)
    assert (f.kind, f.code) == (kind, code)


def test_retry_after() -> None:
    assert classify(HTTPError(Response(429, retry_after="2"))).retry_after == 2
    assert classify(HTTPError(Response(429, retry_after_ms="1500"))).retry_after == 1.5
    assert classify(HTTPError(Response(429, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"))).retry_after == 0
    assert classify(HTTPError(Response(429, retry_after="soon"))).retry_after == 0
    assert RateLimited(retry_after=0.0001).fault().retry_after_ms == 1


@pytest.mark.parametrize("kind", [*KINDS, "moon_phase"])
def test_faults_there_and_back(kind: str) -> None:
    e = error(kind, "m", detail="d", code=3, retry_after=1.5, suggestions=["s"])
    again = from_fault(e.fault())
    assert again.fault() == e.fault()
    assert (again.kind, type(again)) == (kind, type(e))


def test_faults_are_cut() -> None:
    f = error("failed", "é" * 10_000, detail="x" * 100_000, suggestions=["s" * 5000] * 20).fault()
    assert len(f.message.encode()) <= 8 << 10
    assert len(f.detail) <= 16 << 10
    assert len(f.suggestions) == 10


def test_truncate() -> None:
    for n in range(3, 20):
        assert len(truncate("aé世🦊" * 5, n).encode()) <= n
    assert truncate("aé", 3) == "aé"


def test_what_json_cannot_hold() -> None:
    itself: list[Any] = []
    itself.append(itself)
    for value, why in ((itself, "Circular"), (float("nan"), "not JSON compliant"), ("\ud800", "surrogates")):
        with pytest.raises(ValueError, match=why):
            jsontext.dumps(value)
    with pytest.raises(TypeError):
        jsontext.dumps({"a": object()})
    met: list[object] = []
    holds_itself: list[Any] = [object()]
    holds_itself.append(holds_itself)
    with pytest.raises(ValueError, match="Circular"):
        jsontext.dumps(holds_itself, default=met.append)
    assert len(met) == 1  # what comes before the circle is not encoded a thousand times
    assert jsontext.dumps({"b": ["é", 1.5, None], "a": object()}, sort=True, default=str)[:12] == b'{"a":"<objec'
    assert jsontext.dumps("é\n") == '"é\\n"'.encode()


def test_memory_forgets() -> None:
    m: Memory[str, int] = Memory(10, 2, 100)
    for i, key in enumerate("abc"):
        m.keep(m.hold(key, i, 0), 10, 0)
    assert [m.get(k, 0) is None for k in "abc"] == [True, False, False]
    m.hold("b", 0, 1)  # held: neither time nor number takes it
    m.keep(m.hold("d", 0, 2), 10, 2)
    m.keep(m.hold("e", 0, 2), 99, 2)
    assert m.get("b", 99) is not None
    assert m.get("e", 2) is not None
    assert m.get("e", 13) is None
    m.forget(13)
    assert len(m) == 1


@pytest.mark.parametrize(
    ("number", "text"),
    [(2.0, "2"), (0.5, "0.5"), (1e21, "1e+21"), (1e20, "100000000000000000000"), (1e-7, "1e-7"), (1.5e-7, "1.5e-7"),
     (0.000001, "0.000001"), (0.0000015, "0.0000015"), (1e-10, "1e-10"), (1.5e300, "1.5e+300"), (-0.25, "-0.25")],
)  # fmt: skip
def test_numbers_as_go_writes_them(number: float, text: str) -> None:
    assert jsontext.float_text(number) == text


def test_random_input_is_refused_in_words() -> None:
    """TOOLBUS_SEED plays a seed again."""
    seed = int(os.environ.get("TOOLBUS_SEED", random.randrange(1 << 32)))
    print(f"TOOLBUS_SEED={seed}")
    dice = random.Random(seed)
    codes: set[str] = set()
    names = ["Tb-Call", "tb-key", "TB-TIMEOUT-MS", "Tb-Blob", "Tb-Tool", "Content-Type", "Tb-Frame", "Nats-Rollup", "x"]
    for _ in range(3000):
        data = dice.randbytes(dice.randrange(40))
        try:
            scan(data)
        except WireError as refused:
            codes.add(refused.code)
        for parse in (jsontext.loads, parse_args):
            with contextlib.suppress(ValueError, InvalidArguments, TruncatedCall):
                parse(data)
        values = ["", "t/c/1", "9" * 20, "-1", "a\0b", "é" * 9000, data.decode("latin1")]
        header = {dice.choice(names): dice.choice(values) for _ in "abc"}
        q = Request("echo", header, data)
        assert all(not k.lower().startswith("nats-") for k in q.header)
    assert "" not in codes


class Bare(NotFound):
    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        raise ValueError(self.name)


@pytest.mark.parametrize(
    ("err", "wait", "suggestions"),
    [
        (RateLimited("m", retry_after=0.0015), 2, list(RateLimited.advice)),
        (RateLimited("m", retry_after=float("inf")), 86_400_000, list(RateLimited.advice)),
        (RateLimited("m", retry_after=float("nan")), 0, list(RateLimited.advice)),
        (RateLimited("m", retry_after=-1), 0, list(RateLimited.advice)),
        (classify(HTTPError(Response(429, retry_after_ms="inf"))), 86_400_000, list(RateLimited.advice)),
        (classify(HTTPError(Response(429, retry_after="9" * 400))), 86_400_000, list(RateLimited.advice)),
        (NotFound("m", detail={"a": 1}), 0, list(NotFound.advice)),  # type: ignore[arg-type]
        (NotFound("m", suggestions=[1]), 0, ["1"]),  # type: ignore[list-item]
        (NotFound("m", suggestions="look"), 0, ["look"]),
        (NotFound("m", violations=[None, Violation("/a", 1, 2)]), 0, list(NotFound.advice)),  # type: ignore[arg-type,list-item]
        (Bare("m"), 0, list(NotFound.advice)),
    ],
)
def test_a_fault_arrives_whatever_was_put_into_it(err: ToolError, wait: int, suggestions: list[str]) -> None:
    f = err.fault()
    assert (f.retry_after_ms, f.suggestions, f.execution) == (wait, suggestions, err.run)
