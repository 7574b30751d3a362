"""JSON, strictly: one value, UTF-8, no key twice, bounded in depth, count and numbers. What comes in is never mended."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from .errors import quote, truncate
from .limits import MAX_DEPTH

MAX_VALUES: Final = 1_000_000
_MAX_DIGITS: Final = 400
_LONG_NUMBER: Final = re.compile(rb"[0-9]{401}")
_LONE: Final = re.compile(r"[\ud800-\udfff]")
_CUT: Final = re.compile(r"[-+.eE0-9]*|t(r(u(e)?)?)?|f(a(l(s(e)?)?)?)?|n(u(l(l)?)?)?")
_CUT_ESCAPE: Final = re.compile(r"\\?u?[0-9a-fA-F]{0,4}")


class JSONFlaw(ValueError):
    """Where and why a text is not the JSON that we take. ``cut`` says that it just ends too early."""

    def __init__(self, message: str, *, cut: bool = False) -> None:
        super().__init__(message)
        self.cut = cut


def loads(raw: bytes, depth: int = MAX_DEPTH) -> Any:
    """Read exactly one JSON value. Numbers keep their kind: ``3`` is an int, ``3.0`` a float."""
    try:
        text = raw.decode()
    except UnicodeDecodeError as e:
        if e.end == len(raw) and "unexpected end" in e.reason:
            raise JSONFlaw(f"the JSON ends at byte {len(raw)} inside a string", cut=True) from None
        raise JSONFlaw(f"at byte {e.start}: the bytes are not UTF-8") from None
    # No text nests deeper, or holds more values, than it has brackets and commas: most need no second look.
    brackets = raw.count(b"{") + raw.count(b"[")
    if brackets > depth:
        _check_depth(text, depth)
    if brackets + raw.count(b",") >= MAX_VALUES:
        raise JSONFlaw(f"there are more than {MAX_VALUES} values")
    long = len(raw) > _MAX_DIGITS and _LONG_NUMBER.search(raw) is not None
    decoder = _long if long else _strict
    try:
        value, end = decoder.raw_decode(text, _blank(text, 0))
    except json.JSONDecodeError as e:
        raise _flaw(text, e) from None
    except RecursionError:
        raise JSONFlaw(f"objects and arrays nest more than {depth} deep") from None
    if end < len(text) and (end := _blank(text, end)) < len(text):
        if isinstance(value, int | float) and _CUT.fullmatch(text[end:]):
            raise JSONFlaw(f"the JSON ends at byte {len(raw)} inside a number", cut=True)
        raise JSONFlaw(f"at character {end}: there is more after the end of the value, near {_near(text, end)}")
    if "\\" in text and ("\\u" in text or "\\U" in text):
        value = _mend(value)
    return value


def dumps(value: Any, *, sort: bool = False, default: Any = None) -> bytes:
    """``value`` as JSON without blanks, as UTF-8. It refuses NaN and infinities, and text that is no Unicode."""
    return _encoder(sort, default)(value).encode()


@cache
def _encoder(sort: bool, default: Any) -> Callable[[Any], str]:
    """JSONEncoder.encode, without what it finds out anew for each text."""
    e = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=sort, default=default)
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return e.encode
    escape = json.encoder.encode_basestring
    # The first is where it notes what it is in, to find what contains itself.
    return lambda value: "".join(make({}, e.default, escape, None, ":", ",", sort, False, False)(value, 0))


def float_text(number: float) -> str:
    """A number as Go writes it into JSON, for bytes that must agree."""
    if number == math.trunc(number) and abs(number) < 1e21:
        return str(int(number))
    text = repr(number)
    if "e" not in text:
        return text
    mantissa, _, exponent = text.partition("e")
    power = int(exponent)
    if -7 < power < 0:  # Go writes these without an exponent
        return f"{number:.{len(mantissa.replace('.', '').lstrip('-')) - 1 - power}f}"
    return f"{mantissa}e{'+' if power > 0 else '-'}{abs(power):d}" if abs(power) >= 10 else f"{mantissa}e{power:+d}"


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        seen: set[str] = set()
        for key, _ in pairs:
            if key in seen:
                raise JSONFlaw(f"the key {quote(key)} occurs twice")
            seen.add(key)
    return found


def _float(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise JSONFlaw(f"the number {quote(text, 40)} is larger than a number may be")
    return number


def _int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise JSONFlaw(f"a number has {len(text)} digits, at most {_MAX_DIGITS} are allowed")
    return int(text)


def _constant(word: str) -> Any:
    raise JSONFlaw(f"expected a value, got {word}")


_strict = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_constant=_constant)
_long = json.JSONDecoder(object_pairs_hook=_object, parse_float=_float, parse_int=_int, parse_constant=_constant)


def _blank(text: str, at: int) -> int:
    while at < len(text) and text[at] in " \t\r\n":
        at += 1
    return at


def _check_depth(text: str, most: int) -> None:
    depth = 0
    for m in re.finditer(r'"(?:[^"\\]|\\.)*"?|[][{}]', text, re.DOTALL):
        c = m[0][0]
        if c in "[{":
            depth += 1
            if depth > most:
                raise JSONFlaw(f"at character {m.start()}: objects and arrays nest more than {most} deep")
        elif c in "]}":
            depth -= 1


def _flaw(text: str, e: json.JSONDecodeError) -> JSONFlaw:
    rest = text[e.pos :].rstrip()
    ended = not rest or e.msg.startswith("Unterminated string") or _CUT.fullmatch(rest) is not None
    if e.msg.startswith("Invalid \\uXXXX") and _CUT_ESCAPE.fullmatch(rest):
        ended = True
    if e.msg.startswith(("Invalid control", "Illegal trailing")):
        ended = False
    if ended:
        return JSONFlaw(f"the JSON ends at character {len(text)} before it is complete", cut=True)
    return JSONFlaw(f"at character {e.pos}: {e.msg[0].lower()}{e.msg[1:]}, near {_near(text, e.pos)}")


def _near(text: str, at: int) -> str:
    return ascii(truncate(text[max(0, at - 20) : at + 20], 80))


def _mend(value: Any) -> Any:
    """Half a pair of surrogates alone becomes U+FFFD, as everywhere else."""
    if isinstance(value, str):
        return _LONE.sub("\ufffd", value)
    if isinstance(value, list):
        return [_mend(v) for v in value]
    if isinstance(value, dict):
        return {_mend(k): _mend(v) for k, v in value.items()}
    return value
