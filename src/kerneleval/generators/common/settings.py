"""A generator with settings of its own, from a TOML file: ``kerneleval run -g model.toml``.

The table ``[generator]`` names the kind, one of ``KINDS``, and holds its settings; what all kinds check of it is here.
Every error names file, key and value.
"""

from __future__ import annotations

import dataclasses
import math
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from kerneleval.generators.common.base import Asked, Cache, Generator
from kerneleval.generators.common.prompts import TEMPLATES
from kerneleval.generators.common.registry import KINDS
from kerneleval.records import UsageError, near

_TYPES: dict[str, tuple[type, ...]] = {"str": (str,), "int": (int,), "float": (float, int), "bool": (bool,)}
_WORDS = {"str": "a string", "int": "a whole number", "float": "a number", "bool": "true or false"}
_LIST = "tuple[str, ...]"


def read_settings(path: Path, cache: Cache | None) -> Generator | Asked:
    """The generator that a TOML file describes. Raises UsageError, which names file and key, where the file cannot
    be read, is no TOML, or names what there is not.
    """
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path} can't be read: {error.strerror or error}") from error
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from error
    table = document.pop("generator", None)
    if not isinstance(table, dict):
        raise UsageError(f"{path}: there is no table [generator]; it names the kind of generator and its settings")
    if document:
        raise UsageError(f"{path}: unknown table or key {next(iter(document))!r}; all settings stand in [generator]")
    kind = table.pop("kind", None)
    known = KINDS.all()
    if kind not in known:
        said = "is missing" if kind is None else f"{kind!r} is unknown"
        raise UsageError(f"{path}: [generator] kind {said}; {near(str(kind), known)}")
    return known[kind](table, f"{path}: [generator]", cache)


def known_keys(table: Mapping[str, Any], known: Iterable[str], place: str) -> None:
    """Raises UsageError for a key that is unknown, with near ones."""
    for key in table:
        if key not in known:
            raise UsageError(f"{place} {key} is unknown; {near(key, known)}")


def typed(record: type, table: Mapping[str, Any], place: str) -> dict[str, Any]:
    """The table's values as fields of a dataclass. Fields of types other than plain values and texts are not checked.
    Raises UsageError for an unknown key, a value of the wrong type, or a number that is not finite.
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
    settings: Any, place: str, *, least: Mapping[str, float], most: Mapping[str, float], above_zero: Iterable[str]
) -> None:
    """Raises UsageError for a field beyond its bounds."""
    wrong = [(key, f"{bound} or more") for key, bound in least.items() if getattr(settings, key) < bound]
    wrong += [(key, f"{bound} or less") for key, bound in most.items() if getattr(settings, key) > bound]
    wrong += [(key, "above 0") for key in above_zero if getattr(settings, key) <= 0]
    for key, right in wrong:
        raise UsageError(f"{place} {key} must be {right}, not {getattr(settings, key)}")


def check_language(language: str, place: str) -> None:
    """Raises UsageError for a language without a prompt; an empty text is the device's usual one."""
    languages = sorted({one.language for one in TEMPLATES.values() if one.language})
    if language and language not in languages:
        raise UsageError(f"{place} language {language!r:.80} has no prompt; {near(language, languages)}")
