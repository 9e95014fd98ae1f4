"""A generator with settings of its own, from a TOML file: ``kerneleval run -g model.toml``.

The table ``[generator]`` names the kind, one of ``KINDS``, and holds its settings.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from kerneleval.generators.common.base import Asked, Cache, Generator
from kerneleval.generators.common.registry import KINDS
from kerneleval.records import UsageError, near


def read_settings(path: Path, cache: Cache | None) -> Generator | Asked:
    """The generator that a TOML file describes.

    Args:
        path: the file.
        cache: where answers are kept; None: nowhere.

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
    known = KINDS.all()
    if kind not in known:
        said = "is missing" if kind is None else f"{kind!r} is unknown"
        raise UsageError(f"{path}: [generator] kind {said}; {near(str(kind), known)}")
    return known[kind](table, f"{path}: [generator]", cache)
