"""Stage 2, where candidates come from: one module a generator, found on the first look-up.

A module has ``GENERATOR``, or ``GENERATORS``, a tuple of them. A directory of files and a user's own module are
generators too, named by their path. Importing this package imports neither torch nor what a generator needs to run.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import pkgutil
import sys
from pathlib import Path

from kerneleval.generators.archetypes import SUITE
from kerneleval.generators.common.base import Asked, Cache, Generator, Reader, Services, Stoppable
from kerneleval.records import UsageError, digest, near

__all__ = ["HELPERS", "SUITE", "Asked", "Cache", "Generator", "Reader", "Services", "Stoppable", "find", "names"]

HELPERS = frozenset({"common", "directory"})
"""Modules of this package that hold no generator; any other has ``GENERATOR``, ``GENERATORS`` or ``from_settings``."""


def names() -> tuple[str, ...]:
    """Names of the built-in generators."""
    return tuple(sorted(_registry()))


def find(name: str, services: Services | None = None) -> Generator | Asked:
    """The generator of that name.

    Args:
        name: a built-in generator's name; the path of a directory of candidate files (see
            :mod:`kerneleval.generators.directory`); of a Python module that assigns ``GENERATOR``; or of a TOML file
            with a table ``[generator]`` (see :mod:`kerneleval.generators.common.settings_file`); or of a
            file of samples that ``kerneleval export`` wrote.
        services: what it may use; a directory of files needs ``read``.

    Raises:
        UsageError: there is no such generator, or the module at that path cannot be loaded or defines none.
        TypeError: the name is a directory and ``services.read`` is missing.
    """
    if name in _registry():
        return _registry()[name]
    services = services or Services()
    path = Path(name)
    if path.is_dir():
        from kerneleval.generators.directory import Directory

        if services.read is None:
            raise TypeError(f"the generator {name!r} is a directory: reading its files needs services.read")
        return Directory(path, services.read)
    if path.suffix == ".py" and path.is_file():
        return _own(path)
    if path.name.endswith((".jsonl", ".jsonl.gz")) and path.is_file():
        from kerneleval.generators.replay import of_file

        return of_file(path)
    if path.suffix == ".toml" and path.is_file():
        from kerneleval.generators.common.settings_file import read_settings

        return read_settings(path, services)
    if "/" in name or path.suffix in (".py", ".toml", ".jsonl", ".gz"):
        raise UsageError(f"no generator at {name}: there is no such directory or file")
    raise UsageError(f"no generator is called {name!r}, nor is there such a directory; {near(name, _registry())}")


@functools.cache
def _registry() -> dict[str, Generator | Asked]:
    found: dict[str, Generator | Asked] = {}
    for info in pkgutil.iter_modules(__path__):
        if info.name in HELPERS:
            continue
        module = importlib.import_module(f"{__name__}.{info.name}")
        if hasattr(module, "from_settings") and not {"GENERATOR", "GENERATORS"} & vars(module).keys():
            continue
        for generator in _defined(vars(module), str(module.__file__)):
            if generator.name in found:
                raise TypeError(f"two generators are called {generator.name!r}; the second is in {module.__file__}")
            found[generator.name] = generator
    return found


def _defined(namespace: dict[str, object], where: str) -> tuple[Generator | Asked, ...]:
    several = namespace.get("GENERATORS")
    made = several if isinstance(several, tuple) else (namespace.get("GENERATOR"),)
    for generator in made:
        if not isinstance(generator, (Generator, Asked)):
            raise TypeError(
                f"{where} must assign GENERATOR or a tuple GENERATORS: objects with name, summary and candidates(); or "
                "with name, summary, samples, rounds, concurrency and ask()"
            )
    return made


def _own(path: Path) -> Generator | Asked:
    """The generator of a user's own module, which is executed."""
    module_name = f"kerneleval_generator_{digest(str(path.resolve()))[:16]}"
    spec = importlib.util.spec_from_file_location(module_name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"cannot load {path} as a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module  # dataclasses look their module up by name while it is being executed
    try:
        spec.loader.exec_module(module)
        found = _defined(vars(module), str(path))
    except Exception as error:
        del sys.modules[module_name]
        raise UsageError(f"the generator {path} cannot be used: {type(error).__name__}: {error}") from error
    if len(found) > 1:
        raise UsageError(f"{path} defines {len(found)} generators; a file given by its path must define one, GENERATOR")
    return found[0]
