"""Header names, frames, and what may come in and go out."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final

from .errors import WireError, quote
from .limits import MAX_METADATA, MAX_VALUE

Header = dict[str, str]
"""Headers of one message, as nats-py gives and takes them: one value for each name."""

CALL: Final = "Tb-Call"
TIMEOUT: Final = "Tb-Timeout-Ms"
KEY: Final = "Tb-Key"
SESSION: Final = "Tb-Session"
TOOL: Final = "Tb-Tool"
PROGRESS: Final = "Tb-Progress"
FRAME: Final = "Tb-Frame"
WORKER: Final = "Tb-Worker"
SEQ: Final = "Tb-Seq"
RETRY_AFTER: Final = "Tb-Retry-After-Ms"
BLOB: Final = "Tb-Blob"
RUNNING: Final = "Tb-Running"
CONTENT_TYPE: Final = "Content-Type"
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
BAGGAGE: Final = "baggage"
SERVICE_ERROR: Final = "Nats-Service-Error"
SERVICE_ERROR_CODE: Final = "Nats-Service-Error-Code"

JSON: Final = "application/json"
MSGPACK: Final = "application/msgpack"

_NAME: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
_MAX_NAME: Final = 128  # longer ones are no names, and must not fill the caches
_ALLOWED: Final = frozenset(
    h.lower() for h in (CONTENT_TYPE, TRACEPARENT, TRACESTATE, BAGGAGE, SERVICE_ERROR, SERVICE_ERROR_CODE)
)
_ENDS: Final = frozenset(("", "result", "error", "nack", "stopped"))


@lru_cache(1024)  # they are few and the same in every message
def _is_name(name: str) -> bool:
    return _NAME.fullmatch(name) is not None


@lru_cache(1024)
def _folded(name: str) -> tuple[str, bool]:
    """A name in lower case, and whether it needs no second look: it is one, and may be passed on."""
    low = name.lower()
    return low, _is_name(name) and low[:5] != "nats-"


def get(header: Mapping[str, str] | None, name: str) -> str:
    """The value of a header, its name in any case, or "". A name that stands there exactly as asked for wins; of
    several that differ in case only, the first in byte order does, so that everybody reads the same one.
    """
    if not header:
        return ""
    value = header.get(name)
    if value is not None:
        return value
    folded = name.lower()
    same = [k for k in header if k.lower() == folded]
    return header[min(same)] if same else ""


def check_pair(name: str, value: str) -> None:
    """Refuse a name that is no HTTP token, and a value with CR, LF or NUL or of more than 8 KiB."""
    if len(name) > _MAX_NAME or not _is_name(name):
        raise WireError("header", f"header name {quote(name)}: use 1 to 128 letters, digits and !#$%&'*+-.^_`|~")
    if len(value) > MAX_VALUE // 4 and len(value.encode("utf-8", "replace")) > MAX_VALUE:
        raise WireError("too_large", f"header {name} is longer than the {MAX_VALUE} bytes that are allowed")
    if not value.isprintable() and ("\r" in value or "\n" in value or "\0" in value):
        raise WireError("header", f"header {name} has a line break or NUL in it; take it out or encode the value")


def check(header: Mapping[str, str]) -> None:
    """Refuse what ``check_pair`` refuses, and more than 16 KiB in all."""
    size = 12
    for name, value in header.items():
        check_pair(name, value)
        size += len(name) + len(value if value.isascii() else value.encode("utf-8", "replace")) + 4
    if size > MAX_METADATA:
        raise WireError("too_large", f"the headers are {size} bytes long, at most {MAX_METADATA} are allowed")


def inbound(header: Mapping[str, str]) -> Header:
    """What may be passed on of a message's headers: all but Nats-*, in any case, which speak to the server."""
    return {k: v for k, v in header.items() if k[:5].lower() != "nats-"}


def read(header: Mapping[str, str]) -> tuple[Mapping[str, str], Callable[[str], str | None]]:
    """``inbound`` and ``check`` in one, and what gets a value by its name in lower case, as ``get`` does."""
    folded: dict[str, str] = {}
    size = 0
    usual = True
    for name, value in header.items():
        low, well = _folded(name) if len(name) <= _MAX_NAME else (name.lower(), False)
        folded[low] = value
        size += len(name) + len(value)
        if not (well and value.isascii() and value.isprintable()):
            usual = False
    passed = header
    if not usual or size > MAX_VALUE // 2:
        passed = inbound(header)
        check(passed)
    if len(folded) < len(header):  # names that differ in case only: everybody reads the same one
        folded = {name: get(header, name) for name in folded}
    return passed, folded.get


def allowed(name: str) -> bool:
    """Whether a header of this name may go out: ours, W3C trace context, Content-Type, and two of NATS services."""
    name = name.lower()
    return name.startswith("tb-") or name in _ALLOWED


def outbound(header: Mapping[str, str]) -> Header:
    """What is ``allowed`` of the headers."""
    return {k: v for k, v in header.items() if allowed(k)}


def frame_of(header: Mapping[str, str] | None) -> str:
    """What a message is: Tb-Frame, else ``error`` where a plain NATS service says so, else "" (a call or a result)."""
    if not header:
        return ""
    frame = get(header, FRAME)
    if frame:
        return frame
    return "error" if get(header, SERVICE_ERROR_CODE) or get(header, SERVICE_ERROR) else ""


def ends(frame: str) -> bool:
    """Whether a frame from a worker ends its attempt."""
    return frame in _ENDS


def content_type(header: Mapping[str, str] | None) -> str:
    """JSON or MSGPACK; none is JSON. Any other is refused."""
    return media_type(get(header, CONTENT_TYPE))


def media_type(text: str) -> str:
    """``content_type`` of a value."""
    if text in ("", JSON):
        return JSON
    base = text.partition(";")[0].strip().lower()
    if base == JSON:
        return JSON
    if base in (MSGPACK, "application/x-msgpack", "application/vnd.msgpack"):
        return MSGPACK
    raise WireError("content_type", f"content type {quote(text)}: expected {JSON} or {MSGPACK}")


def is_json(text: str) -> bool:
    """Whether a content type is some JSON, ``+json`` included; none is JSON."""
    base = text.partition(";")[0].strip().lower()
    return base in ("", JSON) or base.endswith("+json")
