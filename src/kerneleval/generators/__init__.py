"""Stage 8, where candidates come from: one module or package a generator, found on the first look-up.

A generator declares itself with ``@register``. A directory of files, a settings file, a file of samples and a module of
the user's own are generators too, named by their path. Importing this package imports neither torch nor what a
generator needs to run.
"""

from __future__ import annotations

from pathlib import Path

from kerneleval.generators.archetypes import SUITE
from kerneleval.generators.common.base import Asked, Cache, Generator, Stoppable
from kerneleval.generators.common.registry import GENERATORS, register
from kerneleval.records import UsageError, near

__all__ = ["SUITE", "Asked", "Cache", "Generator", "Stoppable", "find", "names", "register"]

names = GENERATORS.names


def find(name: str, cache: Cache | None = None) -> Generator | Asked:
    """The generator of that name: a built-in one or, by its path, a directory of candidate files
    (:mod:`kerneleval.generators.common.directory`), a Python module that declares a generator with ``@register``, a
    TOML file with a table ``[generator]`` (:mod:`kerneleval.generators.common.settings`), or a file of samples from
    ``kerneleval export``. The answers of a model or agent are kept in ``cache``; None: nowhere. Raises UsageError:
    there is no such generator, or the module at that path cannot be loaded or declares none.
    """
    known = GENERATORS.all()
    if name in known:
        return known[name]
    path = Path(name)
    if path.is_dir():
        from kerneleval.generators.common.directory import Directory

        return Directory(path)
    if path.suffix == ".py" and path.is_file():
        return _own(path)
    if path.name.endswith((".jsonl", ".jsonl.gz")) and path.is_file():
        from kerneleval.generators.replay import of_file

        return of_file(path)
    if path.suffix == ".toml" and path.is_file():
        from kerneleval.generators.common.settings import read_settings

        return read_settings(path, cache)
    if "/" in name or path.suffix in (".py", ".toml", ".jsonl", ".gz"):
        raise UsageError(f"no generator at {name}: there is no such directory or file")
    raise UsageError(f"no generator is called {name!r}, nor is there such a directory; {near(name, known)}")


def _own(path: Path) -> Generator | Asked:
    """The generator of a user's own module, which is executed."""
    found = list(GENERATORS.of_file(path).values())
    if len(found) != 1:
        raise UsageError(
            f"{path} declares {len(found)} generators, and must declare one: put @register of kerneleval.generators on "
            "its class"
        )
    return found[0]
