"""What names an attempt (Tb-Call) and a claim check (Tb-Blob)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, NamedTuple

from .errors import WireError, quote
from .limits import MAX_ATTEMPT, MAX_BLOB, MAX_CHUNKS

_CALL: Final = re.compile(r"([A-Za-z0-9_-]{1,128}/[A-Za-z0-9_-]{1,128})/([1-9][0-9]{0,6})")
_BLOB: Final = re.compile(r"v1;([A-Za-z0-9_-]{1,128});(0|[1-9][0-9]{0,8});([1-9][0-9]{0,4});([0-9a-f]{64})")


class CallRef(NamedTuple):
    """One attempt, everywhere: ``<turn>/<call>/<attempt>``."""

    turn: str
    call: str
    attempt: int
    """From 1."""

    def __str__(self) -> str:
        return f"{self.turn}/{self.call}/{self.attempt}"

    @property
    def key(self) -> str:
        """``<turn>/<call>``: the idempotency key of all attempts at a call, unless its caller gave one."""
        return f"{self.turn}/{self.call}"

    @classmethod
    def parse(cls, text: str) -> CallRef:
        """The way back from ``str``. It takes nothing else."""
        key, attempt = split_call(text)
        turn, call = key.split("/")
        return cls(turn, call, attempt)


def split_call(text: str) -> tuple[str, int]:
    """The ``key`` and the attempt of a ``CallRef``."""
    m = _CALL.fullmatch(text)
    if m is None or (attempt := int(m[2])) > MAX_ATTEMPT:
        raise WireError(
            "call_ref",
            f"call reference {quote(text)}: expected <turn>/<call>/<attempt>, "
            f"two ids of letters, digits, _ and -, and a number from 1 to {MAX_ATTEMPT}",
        )
    return m[1], attempt


@dataclass(frozen=True, slots=True)
class BlobRef:
    """A claim check: it stands in Tb-Blob of a message whose payload is kept elsewhere, in pieces."""

    id: str
    size: int
    chunks: int
    sha256: str

    def __str__(self) -> str:
        return f"v1;{self.id};{self.size};{self.chunks};{self.sha256}"

    @classmethod
    def parse(cls, text: str) -> BlobRef:
        """The way back from ``str``. It takes nothing else, so what it gives may size a buffer and make subjects."""
        m = _BLOB.fullmatch(text)
        if m is None or int(m[2]) > MAX_BLOB or int(m[3]) > MAX_CHUNKS:
            raise WireError(
                "blob_ref",
                f"claim check {quote(text)}: expected v1;<id>;<size>;<chunks>;<sha256>, "
                f"a size up to {MAX_BLOB} and 1 to {MAX_CHUNKS} chunks",
            )
        return cls(m[1], int(m[2]), int(m[3]), m[4])
