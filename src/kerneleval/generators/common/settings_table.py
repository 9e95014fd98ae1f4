"""Checks of a table of settings (TOML), shared by all kinds of generators. Every error names file, key and value."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any

from kerneleval.generators.common.prompts import TEMPLATES
from kerneleval.records import UsageError, near

_TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (float, int), "bool": (bool,)}
_WORDS = {"str": "a string", "int": "a whole number", "float": "a number", "bool": "true or false"}
_LIST = "tuple[str, ...]"


def known_keys(table: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    """Raises UsageError for a key that is unknown, with near ones."""
    for key in table:
        if key not in known:
            raise UsageError(f"{place} {key} is unknown; {near(key, known)}")


def typed(record: type, table: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The table's values as fields of a dataclass. Fields of types other than plain values and texts are not checked.

    Raises:
        UsageError: an unknown key, a value of the wrong type, or a number that is not finite.
    """
    known = {f.name: str(f.type).removesuffix(" | None") for f in dataclasses.fields(record)}
    known_keys(table, known, place)
    values: dict[str, Any] = {}
    for key, value in table.items():
        values[key] = value
        if known[key] == _LIST:
            if not isinstance(value, list) or not all(isinstance(one, str) and "\0" not in one for one in value):
                raise UsageError(f"{place} {key} must be a list of strings, not {value!r:.80}")
            values[key] = tuple(value)
        elif allowed := _TYPES.get(known[key]):
            if not isinstance(value, allowed) or (isinstance(value, bool) and bool not in allowed):
                raise UsageError(f"{place} {key} must be {_WORDS[known[key]]}, not {value!r:.80}")
            if isinstance(value, float) and not math.isfinite(value):
                raise UsageError(f"{place} {key} must be finite, not {value!r}")
    return values


def check_bounds(
    settings: Any,
    place: str,
    *,
    least: Mapping[str, float],
    most: Mapping[str, float],
    above_zero: Iterable[str],
) -> None:
    """Raises UsageError for a field beyond its bounds."""
    for key, bound in least.items():
        if getattr(settings, key) < bound:
            raise UsageError(f"{place} {key} must be {bound} or more, not {getattr(settings, key)}")
    for key, bound in most.items():
        if getattr(settings, key) > bound:
            raise UsageError(f"{place} {key} must be {bound} or less, not {getattr(settings, key)}")
    for key in above_zero:
        if getattr(settings, key) <= 0:
            raise UsageError(f"{place} {key} must be above 0, not {getattr(settings, key)}")


def check_language(language: str, place: str) -> None:
    """Raises UsageError for a language in which no prompt asks; an empty text is the device's usual one."""
    languages = sorted({one.language for one in TEMPLATES.values() if one.language})
    if language and language not in languages:
        raise UsageError(f"{place} language {language!r:.80} has no prompt; {near(language, languages)}")
