"""A generator with settings of its own, from a TOML file: ``kerneleval run -g model.toml``.

The table ``[generator]`` names the kind, a module of this package with ``from_settings``, and holds what that reads.
"""

from __future__ import annotations

import importlib
import pkgutil
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from kerneleval import generators
from kerneleval.generators.common.base import Asked, Generator, Services
from kerneleval.records import UsageError, near

__all__ = ["kinds", "read_settings"]

FromSettings = Callable[[Mapping[str, Any], str, Services], Generator | Asked]
"""(the table without ``kind``, its place for messages, what it may use) -> generator."""


def kinds() -> dict[str, FromSettings]:
    """Kinds of generators that a file may ask for."""
    found: dict[str, FromSettings] = {}
    for info in pkgutil.iter_modules(generators.__path__):
        if info.name in generators.HELPERS:
            continue
        made = getattr(importlib.import_module(f"{generators.__name__}.{info.name}"), "from_settings", None)
        if callable(made):
            found[info.name] = made
    return found


def read_settings(path: Path, services: Services) -> Generator | Asked:
    """The generator that a TOML file describes.

    Args:
        path: the file.
        services: what it may use of later stages.

    Raises:
        UsageError: it cannot be read, is no TOML, or asks for what there is not; the message names file and key.
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
    known = kinds()
    if kind not in known:
        said = "is missing" if kind is None else f"{kind!r} is unknown"
        raise UsageError(f"{path}: [generator] kind {said}; {near(str(kind), known)}")
    return known[kind](table, f"{path}: [generator]", services)
