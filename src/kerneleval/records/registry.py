"""Finds the plugins of a package: languages, devices, checks, scores, generators.

A plugin declares itself with ``@register`` of its package's registry. The modules of the package are imported once, at
the first look-up. This module knows nothing of what the plugins do: the ``common`` folder of each package does.
"""

from __future__ import annotations

import importlib
import importlib.util
import pkgutil
import sys
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar, overload

from kerneleval.records.errors import KernelEvalError, UsageError, near
from kerneleval.records.plain import digest

T = TypeVar("T")
P = TypeVar("P")


@dataclass(frozen=True, kw_only=True)
class _Entry(Generic[T]):
    plugin: T
    module: str
    place: str
    """``file:line`` of the declaration."""
    options: Mapping[str, Any]


class Registry(Generic[T]):
    """The plugins of one package by name. Each of its direct modules must declare a plugin.

    ``noun`` is what a plugin is, for messages (``language``); ``problem`` gives why an object is no such plugin, an
    empty text where it is one. ``module_is_name``: a plugin has the name of its module. ``packages``: sub-packages hold
    plugins too, all but ``common``; otherwise they hold helpers. A module may declare a plugin of the registry
    ``beside`` instead. ``options``: what a declaration may say of its plugin beyond the name, with the defaults.
    """

    def __init__(
        self,
        noun: str,
        package: str,
        *,
        problem: Callable[[Any], str],
        module_is_name: bool = False,
        packages: bool = False,
        beside: Registry[Any] | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.noun, self.package = noun, package
        self._problem, self._module_is_name, self._packages = problem, module_is_name, packages
        self._beside, self._options = beside, dict(options or {})
        self._entries: dict[str, _Entry[T]] = {}
        self._lock = threading.RLock()
        self._loaded = False
        if beside is not None:
            beside._beside = self

    # -- Declaring -----------------------------------------------------------------------------------------------------

    @overload
    def register(self, plugin: P, /) -> P: ...
    @overload
    def register(self, *, name: str = ..., **options: Any) -> Callable[[P], P]: ...

    def register(self, plugin: Any = None, *, name: str = "", **options: Any) -> Any:
        """Declare a plugin: a class (an instance of it is made), a function or an object. Returns it unchanged. Raises
        KernelEvalError: it is no such plugin, an option is unknown, or the name is taken.

        Its name is ``name``, else its own ``name``; a function without one has its own, or that of its module.
        """
        frame = sys._getframe(1)
        module, place = frame.f_globals["__name__"], f"{frame.f_code.co_filename}:{frame.f_lineno}"

        def declare(given: P) -> P:
            self._add(given, name, _Entry(plugin=given, module=module, place=place, options=self._options | options))
            return given

        if unknown := options.keys() - self._options.keys():
            raise KernelEvalError(f"{place}: option {min(unknown)!r} is unknown; {near(min(unknown), self._options)}")
        return declare if plugin is None else declare(plugin)

    def _add(self, given: Any, name: str, entry: _Entry[Any]) -> None:
        plugin = given() if isinstance(given, type) else given
        if wrong := self._problem(plugin):
            raise KernelEvalError(f"{entry.place}: this is no {self.noun}: {wrong}")
        last = entry.module.rpartition(".")[2]
        name = name or getattr(plugin, "name", "") or (last if self._module_is_name else plugin.__name__)
        if self._module_is_name and name != last:
            raise KernelEvalError(f"{entry.place}: the {self.noun} {name!r} must have the name of its module, {last!r}")
        with self._lock:
            known = self._entries.get(name)
            if known is not None and known.place != entry.place and entry.module != "__main__":
                raise KernelEvalError(f"two {self.noun}s are called {name!r}: at {known.place} and at {entry.place}")
            self._entries[name] = _Entry(plugin=plugin, module=entry.module, place=entry.place, options=entry.options)

    # -- Looking up ----------------------------------------------------------------------------------------------------

    def all(self) -> dict[str, T]:
        """Every plugin by name, in alphabetical order. Raises KernelEvalError: a module of the package declares no
        plugin, or two plugins have one name. Whatever the import of a module raises is shown as it is.
        """
        self._load()
        return {name: entry.plugin for name, entry in sorted(self._entries.items())}

    def names(self) -> tuple[str, ...]:
        """The names of all plugins, in alphabetical order."""
        return tuple(self.all())

    def find(self, name: str) -> T:
        """The plugin of that name; raises UsageError with near names for an unknown one."""
        self._load()
        if name not in self._entries:
            raise UsageError(f"no {self.noun} is called {name!r}; {near(name, self._entries)}")
        return self._entries[name].plugin

    def option(self, name: str, option: str) -> Any:
        """What the declaration of a plugin says for an option."""
        self.find(name)
        return self._entries[name].options[option]

    def _load(self) -> None:
        with self._lock:
            if self._loaded:
                return
            package = importlib.import_module(self.package)
            for info in pkgutil.iter_modules(package.__path__, f"{self.package}."):
                if info.ispkg and (not self._packages or info.name == f"{self.package}.common"):
                    continue
                module = importlib.import_module(info.name)
                if not any(r is not None and r._declares(info.name) for r in (self, self._beside)):
                    raise KernelEvalError(
                        f"{module.__file__} declares no {self.noun}: put @register on it, or move the file to a folder "
                        "of helpers"
                    )
            self._loaded = True

    def _declares(self, module: str) -> bool:
        return any(f"{entry.module}.".startswith(f"{module}.") for entry in self._entries.values())

    def of_file(self, path: Path) -> dict[str, T]:
        """The plugins that a Python file of the user declares, by name. The file is executed each time.

        They do not join the registry, and may have the names of plugins there. Raises UsageError: the file cannot be
        executed; the message has the error.
        """
        self._load()  # so that nothing but the file's own plugins is declared below
        with self._lock:
            kept, self._entries = self._entries, {}
            try:
                name = f"kerneleval_{self.noun}_{digest(str(path.resolve()))[:16]}"
                execute(path, name, f"the {self.noun} {path} cannot be used:")
                return {name: entry.plugin for name, entry in self._entries.items()}
            finally:
                self._entries = kept


def execute(path: Path, name: str, failed: str) -> ModuleType:
    """The module that a Python file of the user becomes under that name. Raises UsageError: it cannot be loaded, or
    raises; the message begins with ``failed``, and has the error.
    """
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"cannot load {path} as a Python module")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and inspect look a module up by its name while it is executed
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise UsageError(f"{failed} {type(error).__name__}: {error}") from error
    return module
