"""Records to bytes and back, as MessagePack or JSON. The same record gives the same bytes in every language."""

from __future__ import annotations

import base64
import math
from collections.abc import Hashable
from dataclasses import fields
from functools import cache
from typing import Any, Final, TypeVar, cast

import msgpack

from . import jsontext
from .errors import WireError
from .headers import JSON, is_json, media_type
from .limits import MAX_INT
from .records import Override, Record, Result
from .scan import scan

R = TypeVar("R", bound=Record)

_MAX_ITEMS: Final = 10_000
_Field = tuple[str, str, Any, bool]  # attribute, name on the wire, kind, whether it is there when empty


@cache
def _spec(cls: Hashable) -> tuple[_Field, ...]:
    all_: list[_Field] = []
    for f in fields(cast(Any, cls)):
        all_.append((f.name, f.metadata["name"] or f.name, f.metadata["kind"], f.metadata["always"]))
    return tuple(all_)


def _spec_of(cls: type[Record]) -> tuple[_Field, ...]:
    return _spec(cast(Hashable, cls))


def marshal(content_type: str, record: Record) -> bytes:
    """The bytes of a record. What ``unmarshal`` would refuse because of a number is refused here too."""
    if media_type(content_type) == JSON:
        return _json(record).encode()
    packed: bytes = msgpack.packb(_plain(record), use_bin_type=True, unicode_errors="replace")
    scan(packed, values=record.MAX_VALUES, items=_MAX_ITEMS)
    return packed


def unmarshal(content_type: str, data: bytes, into: type[R]) -> R:
    """One record of a class. Unknown keys are ignored, None is as good as absent, the last of two equal keys holds."""
    if media_type(content_type) == JSON:
        return _read_json(data, into)
    scan(data, values=into.MAX_VALUES, items=_MAX_ITEMS)
    tree = msgpack.unpackb(
        data,
        raw=False,
        strict_map_key=True,
        max_str_len=len(data),
        max_bin_len=len(data),
        max_array_len=len(data),
        max_map_len=len(data),
        max_ext_len=0,
    )
    if not isinstance(tree, dict):
        raise WireError("type", f"expected a map, got {type(tree).__name__}")
    return _record(into, tree, packed=True)


def decode(data: bytes, into: type[R]) -> R:
    """``unmarshal`` for when nobody said the content type: what begins with ``{`` is JSON."""
    return unmarshal(JSON if data.lstrip(b" \t\r\n")[:1] == b"{" else "application/msgpack", data, into)


def raw_bytes(value: Any) -> bytes:
    """A raw field's JSON as bytes."""
    return value if isinstance(value, bytes) else jsontext.dumps(value)


# ── out ──────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _plain(record: Record) -> dict[str, Any]:
    """A record as what the packer takes."""
    out: dict[str, Any] = {}
    for attr, name, kind, always in _spec_of(type(record)):
        value = getattr(record, attr)
        if value is None or (not always and not value and not _is_pointer(kind)):
            continue
        out[name] = _pack(kind, value)
    return out


def _is_pointer(kind: Any) -> bool:
    return kind == "raw" or isinstance(kind, type) or (isinstance(kind, str) and kind.endswith("?"))


def _pack(kind: Any, value: Any) -> Any:
    if kind == "raw":
        return raw_bytes(value)
    if kind in ("float", "float?"):
        return _number(value)
    if isinstance(kind, tuple):
        return [_plain(v) for v in value]
    if isinstance(kind, type):
        return _plain(value)
    if kind == "map":
        return {k: value[k] for k in sorted(value)}
    if kind == "overrides":
        return {k: _plain(value[k]) for k in sorted(value)}
    return value


def _number(value: float) -> float:
    if isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    return value


def _json(record: Record) -> str:
    """A record as JSON text. By hand, because raw JSON stands in it as it is."""
    parts: list[str] = []
    for attr, name, kind, always in _spec_of(type(record)):
        value = getattr(record, attr)
        if value is None or (not always and not value and not _is_pointer(kind)):
            continue
        parts.append(f'"{name}":{_json_value(kind, value, record)}')
    if isinstance(record, Result) and _foreign(record):
        parts.append('"encoding":"base64"')
    return "{" + ",".join(parts) + "}"


def _json_value(kind: Any, value: Any, within: Record) -> str:
    if kind == "raw":
        if isinstance(within, Result) and _foreign(within):
            return f'"{base64.b64encode(value).decode()}"'
        return compact(value) if isinstance(value, bytes) else jsontext.dumps(value).decode()
    if kind in ("float", "float?"):
        if not math.isfinite(value):
            raise WireError("number", f"{value} is no number that JSON can hold")
        return jsontext.float_text(value)
    if kind in ("int", "int?"):
        if not -MAX_INT <= value <= MAX_INT:
            raise WireError("number", f"{value} is beyond ±2^53")
        return str(int(value))
    if isinstance(kind, tuple):
        return "[" + ",".join(_json(v) for v in value) + "]"
    if isinstance(kind, type):
        return _json(value)
    if kind == "overrides":
        return "{" + ",".join(f"{json_text(k)}:{_json(value[k])}" for k in sorted(value)) + "}"
    if kind == "map":
        return "{" + ",".join(f"{json_text(k)}:{json_text(value[k])}" for k in sorted(value)) + "}"
    if kind == "strs":
        return "[" + ",".join(json_text(v) for v in value) + "]"
    if kind in ("bool", "bool?"):
        return "true" if value else "false"
    return json_text(value)


def json_text(text: str) -> str:
    """A JSON string as Go writes it."""
    out = jsontext.dumps(text.encode("utf-8", "replace").decode()).decode()
    return out.replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def compact(raw: bytes) -> str:
    """JSON without the blanks between its tokens; all else stands as it is."""
    jsontext.loads(raw)
    out: list[str] = []
    quoted = escaped = False
    for c in raw.decode():
        if quoted:
            quoted = escaped or c != '"'
            escaped = c == "\\" and not escaped
        elif c in " \t\r\n":
            continue
        elif c == '"':
            quoted = True
        out.append(c)
    return "".join(out).replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")


def _foreign(r: Result) -> bool:
    """Whether a result's value is not JSON, so that JSON must carry it as base64."""
    if not r.raw:
        return False
    if not is_json(r.content_type):
        return True
    try:
        jsontext.loads(r.raw)
    except ValueError:
        return True
    return False


# ── in ───────────────────────────────────────────────────────────────────────────────────────────────────────────────


def _read_json(data: bytes, into: type[R]) -> R:
    if not data.strip(b" \t\r\n"):
        raise WireError("empty", "expected a JSON object, got nothing")
    try:
        tree = jsontext.loads(data)
    except jsontext.JSONFlaw as e:
        raise WireError("json", f"decode {into.__name__}: {e}") from None
    if not isinstance(tree, dict):
        raise WireError("json", f"expected a JSON object, got {type(tree).__name__}")
    return _record(into, tree, packed=False)


def _record(into: type[R], tree: dict[str, Any], *, packed: bool) -> R:
    given: dict[str, Any] = {}
    for attr, name, kind, _ in _spec_of(into):
        value = tree.get(name)
        if value is None and (packed or kind != "raw" or name not in tree):
            continue
        given[attr] = _value(kind, value, name, packed=packed)
    record = into(**given)
    if not packed and isinstance(record, Result) and tree.get("encoding") == "base64" and record.raw is not None:
        try:
            record.raw = base64.b64decode(jsontext.loads(record.raw), validate=True)
        except ValueError as e:
            raise WireError("json", f"value: expected a string of base64, as encoding says: {e}") from None
    return record


def _value(kind: Any, value: Any, name: str, *, packed: bool) -> Any:
    if kind == "raw":
        if not packed:
            return jsontext.dumps(value)
        return value.encode() if isinstance(value, str) else _typed(value, bytes, name)
    if isinstance(kind, tuple):
        return [_record(kind[1], {} if v is None else _typed(v, dict, name), packed=packed) for v in _list(value, name)]
    if isinstance(kind, type):
        return _record(kind, _typed(value, dict, name), packed=packed)
    if kind == "strs":
        return [_typed(v, str, name) for v in _list(value, name)]
    if kind == "map":
        return {k: _typed(v, str, name) for k, v in _typed(value, dict, name).items()}
    if kind == "overrides":
        return {k: _record(Override, _typed(v, dict, name), packed=packed) for k, v in _typed(value, dict, name).items()}
    base = kind.removesuffix("?")
    if base == "bool":
        return _typed(value, bool, name)
    if base == "str":
        return _typed(value, str, name)
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise WireError("type", f"{name}: expected a number, got {type(value).__name__}")
    if base == "float":
        return value
    if isinstance(value, float):
        if not packed or value != math.trunc(value) or abs(value) > MAX_INT:
            raise WireError("type", f"{name}: expected an integer, got {value}")
        return int(value)
    if not -MAX_INT <= value <= MAX_INT:
        raise WireError("number", f"{name}: {value} is beyond ±2^53")
    return value


def _typed(value: Any, kind: type, name: str) -> Any:
    if not isinstance(value, kind):
        raise WireError("type", f"{name}: expected {kind.__name__}, got {type(value).__name__}")
    return value


def _list(value: Any, name: str) -> list[Any]:
    items: list[Any] = _typed(value, list, name)
    if len(items) > _MAX_ITEMS:
        raise WireError("too_many", f"{name}: more than {_MAX_ITEMS} items in one list")
    return items
