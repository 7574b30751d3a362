"""A message that asks for a run, read and checked. What it says in its arguments is not looked at here."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from .errors import InvalidArguments, TruncatedCall, Unsupported
from .wire import headers, jsontext
from .wire.errors import WireError, quote
from .wire.limits import MAX_ARGS, MAX_MS
from .wire.refs import BlobRef, CallRef, split_call

_MAX_KEY: Final = 1 << 10
_MS: Final = re.compile(r"\+?[0-9]{1,12}")
_NO_HEADER: Final[dict[str, str]] = {}
_BLOB: Final = headers.BLOB.lower()
_CALL: Final = headers.CALL.lower()
_CONTENT_TYPE: Final = headers.CONTENT_TYPE.lower()
_FRAME: Final = headers.FRAME.lower()
_KEY: Final = headers.KEY.lower()
_PROGRESS: Final = headers.PROGRESS.lower()
_SESSION: Final = headers.SESSION.lower()
_TIMEOUT: Final = headers.TIMEOUT.lower()
_TOOL: Final = headers.TOOL.lower()
_ADVICE: Final = ("send one JSON object",)


class Request:
    """What a message asks for. ``fault`` says why it is refused, as soon as it is known that it may be answered."""

    reference = ""
    """<turn>/<call>/<attempt>; empty for a bare request."""
    call = ""
    """<turn>/<call>; empty for a bare request."""
    attempt = 0
    """From 1; 0 for a bare request."""
    timeout_ms = 0
    key = ""
    session = ""
    progress = ""
    blob: BlobRef | None = None
    header: Mapping[str, str] = _NO_HEADER
    fault: InvalidArguments | Unsupported | None = None

    def __init__(self, tool: str, header: Mapping[str, str] | None, data: bytes) -> None:
        self.tool = tool
        self.args = data
        if header:
            try:
                self._read(header)
            except (InvalidArguments, Unsupported) as e:
                self.fault = e
            except WireError as e:
                self.fault = InvalidArguments(str(e))

    @property
    def ref(self) -> CallRef | None:
        """The attempt; None for a bare request."""
        return CallRef.parse(self.reference) if self.reference else None

    def _read(self, h: Mapping[str, str]) -> None:
        self.header, get = headers.read(h)
        if v := get(_FRAME):
            raise _bad(headers.FRAME, f"expected none on a call, got {quote(v)}")
        if v := get(_CALL):
            try:
                self.call, self.attempt = split_call(v)
            except WireError as e:
                raise _bad(headers.CALL, str(e)) from None
            self.reference = v
            self.key = self.call
        if v := get(_TOOL):
            if self.tool and v != self.tool:
                raise _bad(headers.TOOL, f"it names {quote(v)} and the subject {quote(self.tool)}")
            self.tool = v
        if v := get(_CONTENT_TYPE):
            try:
                known = headers.media_type(v) == headers.JSON
            except WireError:
                known = False
            if not known:
                raise Unsupported(f"arguments of content type {quote(v)}: send {headers.JSON}", execution="not_started")
        if v := get(_TIMEOUT):
            ms = int(v) if _MS.fullmatch(v) else 0
            if not 0 < ms <= MAX_MS:
                raise _bad(headers.TIMEOUT, f"expected milliseconds from 1 to {MAX_MS}, got {quote(v)}")
            self.timeout_ms = ms
        if v := get(_KEY):
            self.key = _short(headers.KEY, v)
        if v := get(_SESSION):
            self.session = _short(headers.SESSION, v)
        if v := get(_BLOB):
            try:
                self.blob = BlobRef.parse(v)
            except WireError as e:
                raise _bad(headers.BLOB, str(e)) from None
            if self.args:
                raise _bad(
                    headers.BLOB,
                    f"the arguments are elsewhere, and yet the body has {len(self.args)} bytes: send one of them",
                )
        if v := get(_PROGRESS):
            self.progress = v


def _short(name: str, value: str) -> str:
    if len(value) > _MAX_KEY // 4 and len(value.encode()) > _MAX_KEY:
        raise _bad(name, f"expected at most {_MAX_KEY} bytes, got {len(value.encode())}")
    return value


def _bad(header: str, problem: str) -> InvalidArguments:
    return InvalidArguments(f"header {header}: {problem}")


def parse_args(raw: bytes) -> dict[str, object]:
    """The arguments of a call, strictly: one JSON object. Nothing, blanks and null are ``{}``."""
    if len(raw) > MAX_ARGS:
        raise InvalidArguments(f"the arguments are {len(raw)} bytes long, at most {MAX_ARGS} are allowed")
    if len(raw) < 64 and raw.strip(b" \t\r\n") in (b"{}", b"", b"null"):
        return {}
    try:
        args = jsontext.loads(raw)
    except jsontext.JSONFlaw as e:
        if e.cut:
            raise TruncatedCall(f"{e}; the call may have been cut off", suggestions=_ADVICE) from None
        raise InvalidArguments(f"the arguments are not one JSON object: {e}", suggestions=_ADVICE) from None
    if isinstance(args, dict):
        return args
    if args is None:
        return {}
    raise InvalidArguments(
        f"the arguments are not one JSON object: expected object, got {type(args).__name__}", suggestions=_ADVICE
    )
