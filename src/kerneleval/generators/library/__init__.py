"""Kernel libraries as generators: a Python package's functions by operator.

``liger`` (Liger-Kernel) and ``flaggems`` (FlagGems) are built in; any other package by a settings file
(``docs/generators.md``). Nothing of a library is imported here: its candidates are files that import it where they run.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import keyword
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kerneleval.generators.common.base import Cache
from kerneleval.generators.common.registry import KINDS, register
from kerneleval.generators.common.settings import known_keys
from kerneleval.generators.library.kernels import KERNELS, MODULES
from kerneleval.records import Candidate, Origin, Task, UsageError, near

_DISTRIBUTIONS = {"liger": "liger-kernel", "flaggems": "flag-gems"}
_LICENCES = {"liger": "BSD-2-Clause", "flaggems": "Apache-2.0"}
_DEVICES = ("cuda", "rocm")


@dataclass(frozen=True, kw_only=True)
class Operator:
    """How a library solves one task."""

    task: str
    entry: str
    source: str
    """The candidate's file; empty: made of ``call`` when the task's arguments are known."""
    call: str = ""
    """``module:function``."""
    arguments: tuple[Any, ...] | None = None
    """Names of the task's arguments, and values; None: all arguments in their order."""
    options: Mapping[str, Any] | None = None


class Library:
    """The generator of a library's functions: a module that is imported, the distribution that has it (for its
    version, and for the message where it is missing), and which task each entry solves; of several for one task each is
    a sample.
    """

    def __init__(
        self,
        name: str,
        package: str,
        distribution: str,
        operators: Sequence[Operator],
        devices: Sequence[str] = _DEVICES,
        licence: str = "",
    ) -> None:
        self.name = name
        self._package, self._distribution = package, distribution
        self._operators, self._devices, self._licence = tuple(operators), tuple(devices), licence

    @property
    def summary(self) -> str:
        """Which package, and for how many tasks."""
        return f"functions of the package {self._package} for {len({o.task for o in self._operators})} tasks"

    @property
    def tasks(self) -> tuple[str, ...]:
        """Tasks that it solves."""
        return tuple(dict.fromkeys(o.task for o in self._operators))

    def candidates(self, task: Task, device: str) -> Iterator[Candidate]:
        """A sample for each entry that solves the task; none on devices that the library does not know. Raises
        UsageError where the library is not installed, or its settings do not fit the task's arguments.
        """
        mine = [o for o in self._operators if o.task == task.name]
        if not mine or device not in self._devices:
            return
        version = self._version()
        for sample, operator in enumerate(mine):
            origin = Origin(
                generator=self.name,
                model=f"{self._distribution} {version}".strip(),
                sample=sample,
                human_edits=0,
                licence=self._licence,
            )
            source = operator.source or _wrapper(operator, task)
            header = f"# {operator.entry} of {self._distribution} {version}\n"
            language = "triton" if "import triton" in source else "torch"
            yield Candidate(files=(("candidate.py", header + source),), language=language, origin=origin)

    def _version(self) -> str:
        if importlib.util.find_spec(self._package) is None:
            raise UsageError(
                f"{self.name}: there is no module {self._package} to import; install it with: pip install "
                f"{self._distribution}"
            )
        try:
            return importlib.metadata.version(self._distribution)
        except importlib.metadata.PackageNotFoundError:  # a folder on PYTHONPATH
            return ""


def _wrapper(operator: Operator, task: Task) -> str:
    """A file that calls the function with the task's arguments, and does nothing else."""
    names = [argument.name for argument in task.arguments(task.least_dims, task.dtypes[0])]
    handed = names if operator.arguments is None else list(operator.arguments)
    for one in handed:
        if isinstance(one, str) and one not in names:
            raise UsageError(f"{operator.entry}: task {task.name} has no argument {one!r:.80}; {near(one, names)}")
    module, _, function = operator.call.partition(":")
    passed = [one if isinstance(one, str) else repr(one) for one in handed]
    passed += [f"{key}={value!r}" for key, value in (operator.options or {}).items()]
    first, _, rest = function.partition(".")
    called = "_library" + (f".{rest}" if rest else "")
    return (
        f"from {module} import {first} as _library\n\n\ndef run({', '.join(names)}):\n"
        f"    return {called}({', '.join(passed)})\n"
    )


_KEYS = ("name", "package", "distribution", "licence", "devices", "operators")
_OPERATOR_KEYS = ("call", "arguments", "options")


@KINDS.register(name="library")
def from_settings(table: Mapping[str, Any], place: str, cache: Cache | None = None) -> Library:
    """The library of a settings file: ``package``, ``distribution``, ``devices`` and a table ``operators`` by task.
    Raises UsageError, which names the key, where one is missing, unknown, or of the wrong kind.
    """
    known_keys(table, _KEYS, place)
    package = table.get("package")
    if not isinstance(package, str) or not package:
        raise UsageError(f"{place} package is missing, or no string")
    if not all(part.isidentifier() and not keyword.iskeyword(part) for part in package.split(".")):
        raise UsageError(f"{place} package {package!r:.80} is no name of a module")
    operators = table.get("operators")
    if not isinstance(operators, Mapping) or not operators:
        raise UsageError(f'{place} operators is missing: a table for each task, with call = "module:function"')
    devices = table.get("devices", ["cuda"])
    if not isinstance(devices, list) or not devices or not all(isinstance(d, str) for d in devices):
        raise UsageError(f"{place} devices must be a list of device kinds, not {devices!r:.80}")
    found = []
    for task, given in operators.items():
        for one in given if isinstance(given, list) else [given]:
            found.append(_operator(str(task), one, f"{place} operators.{task}"))
    return Library(
        str(table.get("name") or package),
        package,
        str(table.get("distribution") or package.replace("_", "-")),
        found,
        devices,
        str(table.get("licence", "")),
    )


def _operator(task: str, given: Any, place: str) -> Operator:
    if isinstance(given, str):
        given = {"call": given}
    if not isinstance(given, Mapping):
        raise UsageError(f'{place} must be a table with call, or a string "module:function", not {given!r:.80}')
    known_keys(given, _OPERATOR_KEYS, place)
    call = given.get("call")
    parts = str(call).replace(":", ".").split(".")
    if not isinstance(call, str) or call.count(":") != 1 or not all(p.isidentifier() for p in parts):
        raise UsageError(f'{place} call must be "module:function", not {call!r:.80}')
    arguments, options = given.get("arguments"), given.get("options", {})
    if arguments is not None and (not isinstance(arguments, list) or not all(_plain(a) for a in arguments)):
        raise UsageError(f"{place} arguments must be a list of the task's argument names, numbers and flags")
    if not isinstance(options, Mapping) or not all(str(k).isidentifier() and _plain(v) for k, v in options.items()):
        raise UsageError(f"{place} options must be a table of keyword arguments with plain values")
    return Operator(
        task=task,
        entry=call,
        source="",
        call=call,
        arguments=None if arguments is None else tuple(arguments),
        options=dict(options),
    )


def _plain(value: Any) -> bool:
    return isinstance(value, (str, int, float, bool))


for _name, _module in MODULES.items():
    _operators = [Operator(task=k.task, entry=k.name, source=k.source) for k in KERNELS if k.library == _name]
    register(Library(_name, _module, _DISTRIBUTIONS[_name], _operators, licence=_LICENCES[_name]))
