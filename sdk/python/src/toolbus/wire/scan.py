"""The structural scan of MessagePack: no bytes from outside reach the decoder before it."""

from __future__ import annotations

import math
import struct
from typing import Final

from .errors import WireError
from .limits import MAX_DEPTH, MAX_INT

DEPTH: Final = 32
VALUES: Final = 10_000

_SCALAR, _NUMBER, _BIN, _STR, _ARRAY, _MAP, _EXT, _UNUSED = range(8)


def _codes() -> list[tuple[int, int, int]]:
    """For each first byte: what it means, how many bytes of length follow, and where none do, the length itself."""
    table = [(_UNUSED, 0, 0)] * 256

    def put(first: int, last: int, kind: int, length: int, n: int) -> None:
        for c in range(first, last + 1):
            table[c] = (kind, length, n)

    put(0x00, 0x7F, _SCALAR, 0, 0)
    for n in range(32):
        put(0xA0 + n, 0xA0 + n, _STR, 0, n)
    for n in range(16):
        put(0x80 + n, 0x80 + n, _MAP, 0, n)
        put(0x90 + n, 0x90 + n, _ARRAY, 0, n)
    put(0xC0, 0xC0, _SCALAR, 0, 0)
    put(0xC2, 0xC3, _SCALAR, 0, 0)
    for j, length in enumerate((1, 2, 4)):
        put(0xC4 + j, 0xC4 + j, _BIN, length, 0)
        put(0xD9 + j, 0xD9 + j, _STR, length, 0)
    put(0xC7, 0xC9, _EXT, 0, 0)
    put(0xCA, 0xCA, _NUMBER, 0, 4)
    put(0xCB, 0xCB, _NUMBER, 0, 8)
    for j, n in enumerate((1, 2, 4)):
        put(0xCC + j, 0xCC + j, _SCALAR, 0, n)
        put(0xD0 + j, 0xD0 + j, _SCALAR, 0, n)
    put(0xCF, 0xCF, _NUMBER, 0, 8)
    put(0xD3, 0xD3, _NUMBER, 0, 8)
    put(0xD4, 0xD8, _EXT, 0, 0)
    put(0xDC, 0xDC, _ARRAY, 2, 0)
    put(0xDD, 0xDD, _ARRAY, 4, 0)
    put(0xDE, 0xDE, _MAP, 2, 0)
    put(0xDF, 0xDF, _MAP, 4, 0)
    put(0xE0, 0xFF, _SCALAR, 0, 0)
    return table


_CODES: Final = _codes()


def scan(b: bytes, *, values: int = VALUES, items: int = 0, depth: int = DEPTH, any_number: bool = False) -> None:
    """Refuse what could exhaust or mislead whoever decodes ``b``: too deep, too many values, a length that is more than
    what is left, keys that are not strings, text that is not UTF-8, extension types, the reserved code, numbers that not
    every language holds, nothing at all, or something after the end.

    ``items`` bounds one array; 0 means as many as ``values``. ``any_number`` takes also NaN and integers beyond ±2^53.
    """
    if not b:
        raise WireError("empty", "expected a MessagePack value, got nothing")
    depth = min(depth, MAX_DEPTH)
    items = items or values
    open_: list[list[int]] = []  # how many values each container still lacks, and whether it is a map
    size, i = len(b), 0
    while True:
        values -= 1
        if values < 0:
            raise WireError("too_many", "too many values in one MessagePack record", i)
        if i >= size:
            raise WireError("truncated", "the value ends too early", i)
        code = b[i]
        kind, length, n = _CODES[code]
        body = i + 1 + length
        if body > size:
            raise WireError("truncated", "the value ends within a length", i)
        if length:
            n = int.from_bytes(b[i + 1 : body], "big")
        if kind == _UNUSED:
            raise WireError("reserved", "0xc1 is not MessagePack", i)
        if kind == _EXT:
            raise WireError("extension", "extension types are not taken; send times as RFC 3339 strings", i)
        if kind == _MAP:
            n *= 2
        if n > size - body:
            raise WireError("truncated", "a length is more than what is left", i)
        if open_:
            top = open_[-1]
            if top[1] and top[0] % 2 == 0 and kind != _STR:
                raise WireError("key", "a map key is not a string", i)
            top[0] -= 1
        if kind == _ARRAY and n > items:
            raise WireError("too_many", "too many values in one MessagePack array", i)
        if kind in (_ARRAY, _MAP):
            if len(open_) == depth:
                raise WireError("too_deep", "containers are nested too deep", i)
            open_.append([n, kind == _MAP])
            i = body
        else:
            if kind == _STR:
                try:
                    b[body : body + n].decode()
                except UnicodeDecodeError:
                    raise WireError("utf8", "a string is not UTF-8", i) from None
            elif kind == _NUMBER and not any_number and not _common(code, b, body):
                raise WireError("number", "a number is beyond ±2^53, not a number or infinite", i)
            i = body + n
        while open_ and open_[-1][0] == 0:
            open_.pop()
        if not open_:
            if i < size:
                raise WireError("trailing", "there are more bytes after the end of the value", i)
            return


def _common(code: int, b: bytes, at: int) -> bool:
    """Whether every language can hold a number exactly."""
    if code == 0xCF:
        return int.from_bytes(b[at : at + 8], "big") <= MAX_INT
    if code == 0xD3:
        return -MAX_INT <= int.from_bytes(b[at : at + 8], "big", signed=True) <= MAX_INT
    number: float = struct.unpack_from(">f" if code == 0xCA else ">d", b, at)[0]
    return math.isfinite(number)
