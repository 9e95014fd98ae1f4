"""Records as plain data, and back: ``str``, ``int``, ``float``, ``bool``, ``None``, lists and dicts of them; hashes.

:func:`to_plain` writes any record. :func:`from_plain` reads it by the annotations of its fields, and checks every
value. A record says the rest in its annotations (:class:`OneOf`, :class:`Open`, :class:`Within`,
:data:`FiniteFloat`) and in the metadata of its fields (:data:`OPTIONAL`, :data:`INLINE`). What is stored in which
column is said in ``store/``, not here.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
import secrets
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypeVar, overload

from kerneleval.records.errors import UsageError, near

__all__ = [
    "INLINE",
    "OPTIONAL",
    "FiniteFloat",
    "OneOf",
    "Open",
    "Within",
    "digest",
    "from_plain",
    "new_secret",
    "to_plain",
]

OPTIONAL: Mapping[str, str] = types.MappingProxyType({"plain": "optional"})
"""Metadata of a field that is written only where it differs from its default."""

INLINE: Mapping[str, str] = types.MappingProxyType({"plain": "inline"})
"""Metadata of a field whose own entries are written among those of the record; when it is read, it takes all entries
that are no fields."""

_FORM = "plain"


@dataclass(frozen=True)
class OneOf:
    """Annotation of a text that must be one of these."""

    values: tuple[str, ...]


@dataclass(frozen=True)
class Open:
    """Annotation of a text whose words may be those of another version: any text is read."""


@dataclass(frozen=True)
class Within:
    """Annotation of a number that must be in this range, both ends included; no NaN does."""

    low: float
    high: float


FiniteFloat = Annotated[float, Within(-1.7976931348623157e308, 1.7976931348623157e308)]
"""A float that is neither NaN nor infinite."""

_PLAIN = frozenset({str, int, bool, type(None)})

_R = TypeVar("_R")
_Reader = Callable[[Any], Any]


class _MismatchError(Exception):
    """A value is not what its annotation says; the text says what it must be."""


# -- Writing -----------------------------------------------------------------------------------------------------------


def to_plain(value: Any) -> Any:
    """A record as JSON-ready plain data; NaN and infinities become the strings ``nan``, ``inf``, ``-inf``. Raises
    TypeError: for a value that is no record and no plain data (a callable, a tensor).
    """
    if type(value) in _PLAIN or (type(value) is float and math.isfinite(value)):  # most are
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return _record(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "nan" if math.isnan(value) else ("inf" if value > 0 else "-inf")
    if value is None or isinstance(value, (str, int, float, bool)):
        return value
    if isinstance(value, Mapping):
        return {str(k): to_plain(v) for k, v in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, (bytes, bytearray)):
        return [to_plain(v) for v in value]
    raise TypeError(f"no plain form for {type(value).__name__}: {value!r:.80}")


def _record(value: Any) -> dict[str, Any]:
    plain: dict[str, Any] = {}
    fields = dataclasses.fields(value)
    for f in fields:
        held, form = getattr(value, f.name), f.metadata.get(_FORM)
        if form == "inline":
            names = {one.name for one in fields}
            plain |= {k: v for k, v in to_plain(held).items() if k not in names}
        elif form != "optional" or held != f.default:
            plain[f.name] = to_plain(held)
    tag = getattr(type(value), "TAG", ())  # (name, value) by which a record is distinguished from the others of a union
    return plain | dict([tag] if tag else [])


# -- Reading -----------------------------------------------------------------------------------------------------------


@overload
def from_plain(kind: type[_R], plain: Any) -> _R: ...


@overload
def from_plain(kind: types.UnionType, plain: Any) -> Any: ...


def from_plain(kind: Any, plain: Any) -> Any:
    """A record of this type, or of one of a union's types; the inverse of :func:`to_plain`. Raises UsageError: a field
    is missing, unknown, or of another type than its annotation; the message names it.
    """
    try:
        return _reader(kind)(plain)
    except _MismatchError as error:
        raise UsageError(f"{getattr(kind, '__name__', 'record')}: expected {error}, got {plain!r:.80}") from None


@functools.cache
def _reader(kind: Any) -> _Reader:
    """What reads a value of an annotation."""
    if kind is Any:
        return lambda value: value
    if kind is float:
        return _float
    if kind in (str, int, bool, type(None)):
        return functools.partial(_simple, kind)
    if dataclasses.is_dataclass(kind):
        return _record_reader(typing.cast("type", kind))
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is Annotated and isinstance(arguments[1], Open):
        return _reader(str)
    if origin is Annotated:
        return _limited(_reader(arguments[0]), arguments[1:])
    if origin is Literal:
        return functools.partial(_one_of, arguments)
    if origin in (typing.Union, types.UnionType):
        return _union_reader(arguments)
    if origin is tuple:
        return _tuple_reader(arguments)
    if origin in (dict, Mapping):
        return functools.partial(_mapping, _reader(arguments[1]))
    raise TypeError(f"no plain form for a field of type {kind}")


def _simple(kind: type, value: Any) -> Any:
    if type(value) is not kind:
        raise _MismatchError("null" if kind is type(None) else kind.__name__)
    return value


def _float(value: Any) -> float:
    if type(value) is float:
        return value
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise _MismatchError("float")
    return float(value)


def _one_of(known: Sequence[Any], value: Any) -> Any:
    if not isinstance(value, str) or value not in known:
        hint = f"; {near(value, known)}" if isinstance(value, str) else ""
        raise _MismatchError(f"one of {', '.join(repr(one) for one in known)}{hint}")
    return value


def _limited(read: _Reader, limits: Sequence[Any]) -> _Reader:
    def limited(value: Any) -> Any:
        found = read(value)
        for limit in limits:
            if isinstance(limit, OneOf):
                _one_of(limit.values, found)
            elif isinstance(limit, Within) and not limit.low <= found <= limit.high:
                finite = limit.high > 1e300
                raise _MismatchError("finite" if finite else f"from {limit.low:g} to {limit.high:g}")
        return found

    return limited


def _mapping(read: _Reader, value: Any) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        raise _MismatchError("an object")
    return {str(name): read(held) for name, held in value.items()}


def _tuple_reader(arguments: Sequence[Any]) -> _Reader:
    any_number = len(arguments) == 2 and arguments[1] is Ellipsis
    readers = [_reader(one) for one in (arguments[:1] if any_number else arguments)]

    def read(value: Any) -> tuple[Any, ...]:
        if not isinstance(value, (list, tuple)):
            raise _MismatchError("a list")
        if any_number:
            return tuple(map(readers[0], value))
        if len(value) != len(readers):
            raise _MismatchError(f"a list of {len(readers)}")
        return tuple(one(held) for one, held in zip(readers, value, strict=True))

    return read


def _union_reader(arguments: Sequence[Any]) -> _Reader:
    """Reads the member that the value's tag names; without tags the first member that the value fits."""
    tags: list[Any] = [getattr(one, "TAG", ()) for one in arguments]
    if all(tags):
        known = {tag: _reader(one) for tag, one in zip(tags, arguments, strict=True)}
        name = tags[0][0]
        values = ", ".join(str(tag[1]).lower() for tag in tags)

        def tagged(value: Any) -> Any:
            if not isinstance(value, Mapping):
                raise _MismatchError("an object")
            rest = dict(value)
            tag = rest.pop(name, None)
            if not isinstance(tag, bool) or (name, tag) not in known:
                raise UsageError(f"field {name!r} must be one of {values}, got {tag!r:.80}")
            return known[name, tag](rest)

        return tagged
    readers = [_reader(one) for one in sorted(arguments, key=lambda one: one is not type(None))]

    def first(value: Any) -> Any:
        for read in readers[:-1]:
            try:
                return read(value)
            except (_MismatchError, UsageError):
                continue
        return readers[-1](value)

    return first


def _record_reader(cls: type) -> _Reader:
    hints = typing.get_type_hints(cls, include_extras=True)
    fields: dict[str, Any] = {f.name: f for f in dataclasses.fields(cls)}
    inline = next((name for name, f in fields.items() if f.metadata.get(_FORM) == "inline"), None)
    readers: dict[str, _Reader] = {}  # filled when first used: a record may hold others of its own type
    missing = dataclasses.MISSING
    required = [n for n, f in fields.items() if f.default is missing and f.default_factory is missing]

    def read(plain: Any) -> Any:
        if not isinstance(plain, Mapping):
            raise _MismatchError("an object")
        if not readers:
            readers.update({name: _reader(hints[name]) for name in fields})
        values = dict(plain)
        unknown = [name for name in values if name not in fields or name == inline]
        if inline is not None:
            values[inline] = {str(name): values.pop(name) for name in unknown}
        elif unknown:
            raise UsageError(f"{cls.__name__}: unknown field {unknown[0]!r:.80}; known are {', '.join(fields)}")
        for name in required:
            if name not in values:
                raise UsageError(f"{cls.__name__}: field {name!r} is missing")
        for name, value in values.items():
            try:
                values[name] = readers[name](value)
            except _MismatchError as error:
                raise UsageError(f"{cls.__name__}: field {name!r} must be {error}, got {value!r:.80}") from None
            except UsageError as error:
                raise UsageError(f"{cls.__name__}: field {name!r}: {error}") from None
        return cls(**values)

    return read


def digest(*parts: str | bytes) -> str:
    """SHA-256 (hex, 64 characters) over length-prefixed parts, so that no two lists of parts collide by joining."""
    state = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        state.update(len(data).to_bytes(8, "little"))
        state.update(data)
    return state.hexdigest()


def new_secret() -> int:
    """A fresh 63-bit secret (torch generators take 64-bit signed seeds); never stored before its use, never sent."""
    return secrets.randbits(63)
