"""Reading records back: plain data that came from outside, checked field by field; ``plain.py`` is the way out."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Mapping
from typing import Any, TypeVar

from kerneleval.records.errors import UsageError


def _float(value: Any) -> float:
    if isinstance(value, str) and value in ("nan", "inf", "-inf"):
        return float(value)
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise UsageError(f"expected a number, got {value!r:.80}")
    return float(value)


def _fields(cls: type, plain: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(plain, Mapping):
        raise UsageError(f"{cls.__name__}: expected an object, got {plain!r:.80}")
    known, required = _names(cls)
    unknown = [str(k) for k in plain if k not in known]
    if unknown:
        raise UsageError(f"{cls.__name__}: unknown field {unknown[0]!r:.80}; known are {', '.join(known)}")
    missing = [name for name in required if name not in plain]
    if missing:
        raise UsageError(f"{cls.__name__}: field {missing[0]!r} is missing")
    return {k: tuple(v) if isinstance(v, list) else v for k, v in plain.items()}


@functools.cache
def _names(cls: type) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The fields of a record by name, and the names of those that it must have."""
    known: dict[str, Any] = {f.name: f for f in dataclasses.fields(cls)}
    missing = dataclasses.MISSING
    return known, tuple(n for n, f in known.items() if f.default is missing and f.default_factory is missing)


_R = TypeVar("_R")

_SIMPLE: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (float, int), "bool": (bool,)}


def _checked(cls: type[_R], plain: Mapping[str, Any]) -> _R:
    values = _fields(cls, plain)
    for f in dataclasses.fields(cls):  # type: ignore[arg-type]
        allowed = _SIMPLE.get(str(f.type))
        if allowed and f.name in values:
            value = values[f.name]
            if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
                raise UsageError(f"{cls.__name__}: field {f.name!r} must be {f.type}, got {value!r:.80}")
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{cls.__name__}: field {f.name!r} must be finite, got {value!r}")
    return cls(**values)
