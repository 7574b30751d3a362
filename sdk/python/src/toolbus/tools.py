"""``@tool``: a function becomes a tool. Its manifest comes from its name, its docstring and its type hints."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from datetime import timedelta
from typing import Any, Generic, Literal, ParamSpec, TypeVar, cast, get_type_hints, overload

import pydantic
from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import PydanticSerializationError, to_jsonable_python
from typing_extensions import NotRequired, TypedDict

from . import manifest as manifests
from .context import Context
from .errors import Bytes, InvalidArguments, InvalidResult
from .schema import sentences
from .wire import codec, jsontext
from .wire.errors import truncate
from .wire.headers import JSON, is_json
from .wire.records import BreakerPolicy, Classification, Manifest, Record, RetryPolicy, Violation

P = ParamSpec("P")
R = TypeVar("R")
Effect = Literal["read", "idempotent", "write"]
"""What a second run of the same call does: nothing, nothing more, or all of it again."""
Seconds = float | timedelta

_SECTIONS = re.compile(
    r"^\s*(Args|Arguments|Parameters|Returns|Raises|Yields|Example|Examples|Note|Notes)\s*:?\s*$|^\s*:param "
)


class Tool(Generic[P, R]):
    """A function and its manifest. Calling it calls the function. Make it with ``tool``."""

    def __init__(self, function: Callable[P, R], m: Manifest) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.is_async = inspect.iscoroutinefunction(function)
        self._binder = _Binder(function)
        self._result = _result_adapter(function)
        self._check_encoded = m.output_schema is not None
        if m.input_schema is None:
            m.input_schema = self._binder.schema()
        if m.output_schema is None and self._result is not None:
            m.output_schema = _schema_of(self._result, "serialization")
        for field in ("input_schema", "output_schema", "default"):
            value = getattr(m, field)
            if value is not None and not isinstance(value, bytes):
                setattr(m, field, jsontext.dumps(value))
        self.manifest = m
        self._input, self._output = manifests.check(m)
        self.name = m.id
        self.digest = manifests.digest(m)
        self.timeout = manifests.timeout(m)
        self.takes_context = self._binder.context is not None
        """Whether the function has a parameter for its Context."""

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself, as if it were no tool."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.name}>"

    def may_run_twice(self) -> bool:
        """Whether another run for the same key does no harm while one that does not stop still goes on."""
        m = self.manifest
        return m.effect in ("read", "idempotent") or (not m.effect and not m.idempotency_keys)

    def bind(self, arguments: dict[str, Any], context: Context | None) -> dict[str, Any]:
        """What the function is called with. InvalidArguments has all that is wrong with the arguments. A ``context`` is
        needed only where the function takes one.
        """
        if self._input is not None:
            bad = self._input.violations(arguments)
            if bad:
                raise self.invalid(bad)
        try:
            return self._binder.bind(arguments, context)
        except pydantic.ValidationError as e:
            raise self.invalid(_pydantic_violations(e)) from None

    def invalid(self, violations: list[Violation]) -> InvalidArguments:
        """The fault of arguments that do not fit."""
        return InvalidArguments(
            f"arguments of {self.name} are invalid: {sentences(violations, 'the arguments')}",
            suggestions=[f"correct these arguments and call {self.name} again"],
            violations=violations,
            tool=self.name,
        )

    def encode(self, value: Any) -> tuple[str, bytes]:
        """A result as a content type and bytes. InvalidResult where it cannot be sent or breaks the output schema."""
        if value is None and self._result is None and self._output is None:
            return JSON, b"null"
        if isinstance(value, Bytes) and not is_json(value.content_type):
            return value.content_type, value.data
        if isinstance(value, bytes):
            return "application/octet-stream", value
        try:
            if isinstance(value, Bytes):
                plain, data, content_type = jsontext.loads(value.data), value.data, value.content_type
            else:
                plain = value
                if self._result is not None:
                    plain = self._result.dump_python(value, mode="json", warnings="error", by_alias=True)
                data, content_type = jsontext.dumps(plain, default=to_jsonable_python), JSON
                if self._output is not None and not isinstance(plain, dict | list | str | int | float | None):
                    plain = jsontext.loads(data)
        except (ValueError, TypeError, RecursionError, PydanticSerializationError) as e:
            raise InvalidResult(f"the result of {self.name} cannot be sent: {truncate(str(e), 500)}") from None
        if self._output is not None:
            bad = self._output.violations(plain)
            if bad:
                raise InvalidResult(
                    f"the result of {self.name} does not fit its output schema: {sentences(bad, 'the result')}",
                    violations=bad,
                    tool=self.name,
                )
        return content_type, data


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str = ...,
    description: str = ...,
    version: str = ...,
    effect: Effect | None = ...,
    timeout: Seconds | None = ...,
    idle_timeout: Seconds | None = ...,
    keeps_keys: bool = ...,
    retry: RetryPolicy | Mapping[str, Any] | None = ...,
    breaker: BreakerPolicy | Mapping[str, Any] | None = ...,
    classification: Classification | Mapping[str, Any] | None = ...,
    alternatives: Iterable[str] = ...,
    fallback_on: Iterable[str] = ...,
    default: Any = ...,
    optional: bool = ...,
    tags: Iterable[str] = ...,
    annotations: Mapping[str, str] | None = ...,
    input_schema: Mapping[str, Any] | None = ...,
    output_schema: Mapping[str, Any] | bool | None = ...,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(
    function: Callable[P, R] | None = None,
    /,
    *,
    name: str = "",
    description: str = "",
    version: str = "",
    effect: Effect | None = None,
    timeout: Seconds | None = None,
    idle_timeout: Seconds | None = None,
    keeps_keys: bool = False,
    retry: RetryPolicy | Mapping[str, Any] | None = None,
    breaker: BreakerPolicy | Mapping[str, Any] | None = None,
    classification: Classification | Mapping[str, Any] | None = None,
    alternatives: Iterable[str] = (),
    fallback_on: Iterable[str] = (),
    default: Any = None,
    optional: bool = False,
    tags: Iterable[str] = (),
    annotations: Mapping[str, str] | None = None,
    input_schema: Mapping[str, Any] | None = None,
    output_schema: Mapping[str, Any] | bool | None = None,
) -> Any:
    """Make a function, sync or async, a tool.

    The name is the function's, the description its docstring up to the first section such as ``Args:``. The input schema
    comes from its parameters; a single parameter that is a pydantic model is the arguments as a whole, and ``**rest``
    takes what has no parameter of its own. A parameter annotated ``Context`` gets the call. The output schema comes from
    the return annotation, where there is one that says something. All of them can be given here instead.

    ``effect`` says what a second run does and should be given: without it a call that may have run is sent again.
    ``timeout`` bounds one attempt (30 s by default), ``idle_timeout`` one without progress; both in seconds.
    ``keeps_keys`` says that the tool remembers idempotency keys beyond the worker's life. ``retry``, ``breaker`` and
    ``classification`` are the manifest's (docs/manifest.md), as records or mappings; an override of ``classification``
    may be a bare word. ``default`` is the result to go on with when the tool fails for good.

    A sync function runs in a thread. Nothing can stop a thread: see ``Context.cancelled``.

    ValueError says all that is wrong with what was given.
    """

    def make(f: Callable[P, R]) -> Tool[P, R]:
        return Tool(
            f,
            Manifest(
                id=name or f.__name__,
                version=version,
                description=description or _description(f),
                input_schema=input_schema,
                output_schema=output_schema,
                effect=effect or "",
                timeout_ms=_ms(timeout),
                idle_timeout_ms=_ms(idle_timeout),
                retry_policy=_policy(RetryPolicy, "retry", retry),
                circuit_breaker=_policy(BreakerPolicy, "breaker", breaker),
                classification=_classification(classification),
                idempotency_keys=keeps_keys,
                alternatives=list(alternatives),
                fallback_on=list(fallback_on),
                optional=optional,
                default=default,
                tags=list(tags),
                annotations=dict(annotations or {}),
            ),
        )

    return make if function is None else make(function)


def _ms(seconds: Seconds | None) -> int:
    if seconds is None:
        return 0
    s = seconds.total_seconds() if isinstance(seconds, timedelta) else seconds
    if s <= 0:
        raise ValueError(f"timeout, idle_timeout: expected seconds above 0, got {s}")
    return max(1, round(s * 1000))


Policy = TypeVar("Policy", bound=Record)


def _policy(cls: type[Policy], what: str, given: Policy | Mapping[str, Any] | None) -> Policy | None:
    if given is None or isinstance(given, cls):
        return given
    values = dict(cast("Mapping[str, Any]", given))
    known = [f.name for f in cls.__dataclass_fields__.values()]  # type: ignore[attr-defined]
    unknown = sorted(set(values) - set(known))
    if unknown:
        raise ValueError(f"{what}.{unknown[0]}: unknown; known are {', '.join(known)}")
    return codec.unmarshal(JSON, jsontext.dumps(values), cls)


def _classification(given: Classification | Mapping[str, Any] | None) -> Classification | None:
    if given is None or isinstance(given, Classification):
        return given
    spelled = {
        part: {str(k): {"class": o} if isinstance(o, str) else dict(o) for k, o in overrides.items()}
        for part, overrides in given.items()
    }
    return _policy(Classification, "classification", spelled)


def _description(f: Callable[..., Any]) -> str:
    lines: list[str] = []
    for line in (inspect.getdoc(f) or "").splitlines():
        if _SECTIONS.match(line):
            break
        lines.append(line)
    return "\n".join(lines).strip()[:4096]


class _Schema(GenerateJsonSchema):
    """Without the titles that pydantic makes of names: they say nothing to a model."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def generate(self, schema: Any, mode: Any = "validation") -> JsonSchemaValue:
        made = super().generate(schema, mode)
        made.pop("title", None)
        return made


def _schema_of(adapter: TypeAdapter[Any], mode: Literal["validation", "serialization"]) -> dict[str, Any] | None:
    schema = adapter.json_schema(schema_generator=_Schema, mode=mode)
    return schema or None


class _Binder:
    """Turns arguments into what a function is called with."""

    def __init__(self, f: Callable[..., Any]) -> None:
        hints = get_type_hints(f, include_extras=True)
        self.context: str | None = None
        self.whole: str | None = None
        self.any = False
        self.adapter: TypeAdapter[Any] | None = None
        self.model: type[BaseModel] | None = None
        fields: dict[str, Any] = {}
        defaults: dict[str, Any] = {}
        for p in inspect.signature(f).parameters.values():
            hint = hints.get(p.name, Any)
            if hint is Context:
                self.context = p.name
                continue
            if p.kind is p.VAR_KEYWORD:
                self.any = True
                continue
            if p.kind in (p.VAR_POSITIONAL, p.POSITIONAL_ONLY):
                raise ValueError(f"{f.__name__}: parameter {p.name}: arguments have names; make it a named parameter")
            if isinstance(p.default, FieldInfo):
                raise ValueError(f"{f.__name__}: parameter {p.name}: write Annotated[type, Field(...)] and a plain default")
            fields[p.name] = hint
            if p.default is not p.empty:
                defaults[p.name] = p.default
        if len(fields) == 1 and not self.any:
            name, hint = next(iter(fields.items()))
            if inspect.isclass(hint) and issubclass(hint, BaseModel):
                self.whole, self.model = name, hint
                self.adapter = TypeAdapter(hint)
                return
        if not fields and self.any:
            return
        spelled = {n: NotRequired[_with_default(h, defaults[n])] if n in defaults else h for n, h in fields.items()}
        args = cast(Any, TypedDict)(f"{f.__name__}_arguments", spelled)
        args.__pydantic_config__ = {"extra": "allow" if self.any else "forbid", "arbitrary_types_allowed": False}
        self.adapter = TypeAdapter(args)

    def schema(self) -> dict[str, Any]:
        if self.adapter is None:
            return {"type": "object"}
        schema = _schema_of(self.adapter, "validation") or {}
        schema.setdefault("type", "object")
        return schema

    def bind(self, arguments: dict[str, Any], context: Context | None) -> dict[str, Any]:
        if self.adapter is None:
            bound = dict(arguments)
        elif self.whole is not None:
            bound = {self.whole: self.adapter.validate_python(arguments)}
        else:
            bound = self.adapter.validate_python(arguments)  # a dict of its own
        if self.context is not None:
            bound[self.context] = context
        return bound


def _with_default(hint: Any, default: Any) -> Any:
    """The hint of a parameter that may be left out. Its default is in the schema where JSON can hold it."""
    from typing import Annotated

    try:
        value = jsontext.loads(jsontext.dumps(default, default=to_jsonable_python))
    except (ValueError, TypeError):
        return hint
    return Annotated[hint, pydantic.Field(json_schema_extra={"default": value})]


def _result_adapter(f: Callable[..., Any]) -> TypeAdapter[Any] | None:
    hint = get_type_hints(f, include_extras=True).get("return", Any)
    if hint in (Any, None, type(None), object, bytes, Bytes) or isinstance(hint, TypeVar):
        return None
    try:
        return TypeAdapter(hint)
    except pydantic.PydanticSchemaGenerationError:
        return None  # no type of which pydantic knows what it is in JSON


def _pydantic_violations(e: pydantic.ValidationError) -> list[Violation]:
    found = []
    for problem in e.errors(include_url=False, include_context=False)[:50]:
        pointer = "".join("/" + str(p).replace("~", "~0").replace("/", "~1") for p in problem["loc"])
        found.append(Violation(pointer, truncate(problem["msg"], 200), truncate(repr(problem["input"]), 80)))
    return sorted(found, key=lambda v: (v.pointer, v.expected, v.got))


def encode_plain(value: Any) -> tuple[str, bytes]:
    """A value of no declared type as a content type and bytes. ValueError where JSON cannot hold it."""
    if isinstance(value, Bytes):
        if is_json(value.content_type):
            jsontext.loads(value.data)
        return value.content_type, value.data
    if isinstance(value, bytes):
        return "application/octet-stream", value
    try:
        return JSON, jsontext.dumps(value, default=to_jsonable_python)
    except (TypeError, RecursionError, PydanticSerializationError) as e:
        raise ValueError(str(e)) from None


AnyTool = Tool[Any, Any]
