"""JSON Schema: what breaks one, in the words that all workers use. Nothing is ever loaded over the network."""

from __future__ import annotations

import json
from typing import Any, Final

import jsonschema_rs

from .wire import jsontext
from .wire.errors import truncate
from .wire.records import Violation

MAX_SCHEMA_BYTES: Final = 64 << 10
MAX_VIOLATIONS: Final = 50


class Schema:
    """A compiled schema: draft 2020-12, or what its ``$schema`` says. Formats are asserted."""

    def __init__(self, schema: Any) -> None:
        raw = jsontext.dumps(schema)
        if len(raw) > MAX_SCHEMA_BYTES:
            raise ValueError(f"the schema is {len(raw)} bytes long, at most {MAX_SCHEMA_BYTES} are allowed")
        try:
            self._lib = jsonschema_rs.validator_for(
                schema,
                validate_formats=True,
                retriever=_refuse,
                pattern_options=jsonschema_rs.FancyRegexOptions(backtrack_limit=100_000),
            )
        except jsonschema_rs.ValidationError as e:
            raise ValueError(f"at {_pointer(e.instance_path) or 'the top'}: {e.message}") from None
        except jsonschema_rs.ReferencingError as e:
            raise ValueError(f"a reference leads nowhere: {e}") from None

    def violations(self, value: Any) -> list[Violation]:
        """Everything in which ``value`` breaks the schema, sorted; empty where it fits."""
        try:
            if self._lib.is_valid(value):
                return []
            found: list[Violation] = []
            for i, e in enumerate(self._lib.iter_errors(value)):
                if i >= 10 * MAX_VIOLATIONS:
                    break
                found += _violations(e)
        except ValueError as e:  # what the library cannot hold: a lone surrogate, for one
            return [Violation("", "a value that can be checked", truncate(str(e), 200))]
        if not found:
            return [Violation("", "a value that fits the schema", _show(value))]
        unique = {(v.pointer, v.expected, v.got): v for v in found}
        all_ = [unique[k] for k in sorted(unique)]
        if len(all_) > MAX_VIOLATIONS:
            more = len(all_) - MAX_VIOLATIONS
            all_ = [*all_[:MAX_VIOLATIONS], Violation("", f"{more} more to be corrected", "")]
        return all_


def _refuse(uri: str) -> Any:
    raise ValueError(f"schemas are not loaded from elsewhere: write {uri} into the schema")


def sentences(all_: list[Violation], whole: str, most: int = 2000) -> str:
    """Violations in words for a model or a person; ``whole`` names the value itself."""
    said: list[str] = []
    size = 0
    for i, v in enumerate(all_):
        where = truncate(v.pointer, 120) or whole
        if v.got in ("missing", "unknown property"):
            text = f"{where}: {v.got}"
        elif not v.got:
            text = f"{where}: {v.expected}"
        else:
            text = f"{where}: expected {v.expected}, got {v.got}"
        if said and size + len(text) > most:
            said.append(f"and {len(all_) - i} more")
            break
        said.append(text)
        size += len(text)
    return "; ".join(said)


def _violations(e: Any) -> list[Violation]:
    kind, at, got = e.kind, list(e.instance_path), _show(e.instance)
    name = kind.name
    if name == "required":
        return [Violation(_pointer([*at, kind.property]), "a value", "missing")]
    if name in ("additionalProperties", "unevaluatedProperties"):
        return [Violation(_pointer([*at, p]), "a known property", "unknown property") for p in kind.unexpected]
    if name in ("anyOf", "oneOf") and getattr(kind, "context", None):
        return _forms(kind.context, at, got)
    return [Violation(_pointer(at), truncate(_expected(name, kind, e), 200), got)]


def _forms(context: list[list[Any]], at: list[str | int], got: str) -> list[Violation]:
    """What would have been right: exactly, where only one form is of the right type; else in one line."""
    typed = [f for f in context if not any(e.kind.name == "type" and list(e.instance_path) == [] for e in f)]
    typed = typed or context
    if len(typed) == 1:
        return [Violation(_pointer(at) + v.pointer, v.expected, v.got) for e in typed[0] for v in _violations(e)]
    wants = [v.expected for f in typed for e in f[:1] for v in _violations(e)[:1]]
    return [Violation(_pointer(at), truncate(" or ".join(dict.fromkeys(wants)) or "one of the forms", 200), got)]


def _expected(name: str, kind: Any, e: Any) -> str:
    value = getattr(kind, "value", None)
    simple = {
        "minimum": "at least {}",
        "maximum": "at most {}",
        "exclusiveMinimum": "more than {}",
        "exclusiveMaximum": "less than {}",
        "multipleOf": "a multiple of {}",
        "minLength": "at least {} characters",
        "maxLength": "at most {} characters",
        "minItems": "at least {} items",
        "maxItems": "at most {} items",
        "minProperties": "at least {} properties",
        "maxProperties": "at most {} properties",
        "format": "format {}",
        "pattern": "text matching {}",
    }
    if name in simple:
        return simple[name].format(value)
    if name == "type":
        return " or ".join(kind.types)
    if name == "enum":
        return " or ".join(_show(o) for o in kind.options)
    if name == "const":
        return _show(value)
    if name == "uniqueItems":
        return "items that differ"
    if name == "not":
        return "something that the schema does not exclude"
    return f"a value that fits {name}: {e.message}"


def _pointer(path: list[str | int]) -> str:
    return "".join("/" + str(p).replace("~", "~0").replace("/", "~1") for p in path)


def _show(value: Any) -> str:
    """A value in a few words: its type, and itself where it is short."""
    if value is None:
        return "null"
    if isinstance(value, dict):
        return f"object of {len(value)} properties"
    if isinstance(value, list):
        return f"array of {len(value)} items"
    if isinstance(value, str):
        return "string " + truncate(json.dumps(value[:80], ensure_ascii=False), 80)
    return f"{'boolean' if isinstance(value, bool) else 'number'} {truncate(json.dumps(value), 80)}"
