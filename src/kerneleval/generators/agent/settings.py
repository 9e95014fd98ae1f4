"""What an agent's settings file may say, checked key by key."""

from __future__ import annotations

import dataclasses
import re
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kerneleval.generators.common.settings import check_bounds, check_language, typed
from kerneleval.records import UsageError

STDOUT = "stdout"
"""Value of ``usage`` for agents that print it last."""

TAKEN = ("TASK.md", "README.md", "reference.py", "device.json", "bin", "earlier", "feedback", "tmp")
"""Names of the other files and folders of a workspace."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """A command, and what it may do."""

    name: str
    command: tuple[str, ...]
    """Words of the command line; ``{task}``, ``{language}``, ``{device}`` and ``{seconds}`` in them are filled in."""
    language: str = ""
    """Language of the candidates; empty: Triton, and Numba for the CPU."""
    samples: int = 1
    rounds: int = 1
    concurrency: int = 1
    checks: int = 5
    """Drafts that the judge looks at, for each sample and round."""
    max_seconds: float = 1800.0
    """Time that a command has; waiting for the judge does not count."""
    candidate: str = ""
    """Name of the file that is taken; empty: ``candidate`` with the language's suffix."""
    reads: tuple[str, ...] = ()
    """Paths that it may read and execute besides the system's."""
    writes: tuple[str, ...] = ()
    env: tuple[str, ...] = ()
    """Names of environment variables that are handed on to it."""
    network: bool = False
    gpu: bool = False
    usage: str = ""
    """File in the workspace, or :data:`STDOUT`, to which it writes what it used; empty: it does not."""

    @property
    def asked(self) -> dict[str, Any]:
        """All that an answer depends on, besides the task, the sample and the round."""
        names = ("name", "command", "checks", "max_seconds", "candidate", "reads", "writes", "env", "network", "gpu")
        return {name: getattr(self, name) for name in names}


_AT_LEAST = {"samples": 1, "rounds": 1, "concurrency": 1, "checks": 0}
_AT_MOST = {"rounds": 100, "concurrency": 256, "checks": 1000, "max_seconds": 7 * 86400}
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_FILE = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.+-]*")


def settings_of(table: Mapping[str, Any], place: str) -> Settings:
    """Settings from a table of a TOML file; ``place`` is where it stands, for messages. Raises UsageError for an
    unknown key, a value of the wrong type or beyond its limits, a path that is not there or that would give all away,
    or no name or command.
    """
    values = typed(Settings, table, place)
    for key, what in (("name", "under which results are stored"), ("command", "the words of a command line")):
        if not values.get(key):
            raise UsageError(f"{place} {key} is missing: {what}")
    made = Settings(**values)
    check_bounds(made, place, least=_AT_LEAST, most=_AT_MOST, above_zero=("max_seconds",))
    check_language(made.language, place)
    _check_names(made, place)
    return dataclasses.replace(
        made,
        reads=tuple(_path(one, f"{place} reads") for one in made.reads),
        writes=tuple(_path(one, f"{place} writes") for one in made.writes),
    )


def _check_names(made: Settings, place: str) -> None:
    if ":" in made.name or not made.name.isprintable():
        raise UsageError(f"{place} name {made.name!r:.80} must have neither colons nor control characters")
    if not made.command[0]:
        raise UsageError(f"{place} command begins with an empty word; the first one is the program")
    for one in made.env:
        if not _VARIABLE.fullmatch(one):
            raise UsageError(f"{place} env {one!r:.80} is no variable's name; values stand in the environment alone")
    for key in ("candidate", "usage"):
        value = getattr(made, key)
        if value and (not _FILE.fullmatch(value) or value in TAKEN):
            raise UsageError(
                f"{place} {key} {value!r:.80} must be a plain file name in the workspace: letters, digits, _ . + -, "
                f"and none of {', '.join(TAKEN)}"
            )
    if made.usage and made.usage == made.candidate:
        raise UsageError(f"{place} usage and candidate are both {made.usage!r:.80}; they must be two files")


def _path(given: str, place: str) -> str:
    """The path with links followed; what holds a home or everybody's temporary files holds too much."""
    try:
        path = Path(given).expanduser()
        whole = path.resolve()
        there = path.is_absolute() and whole.exists()
    except (RuntimeError, OSError, ValueError) as error:
        raise UsageError(f"{place} {given!r:.200} can't be looked up: {error}") from error
    if not path.is_absolute():
        raise UsageError(f"{place} {given!r:.200} must be an absolute path, or begin with ~")
    if not there:
        raise UsageError(f"{place} {given!r:.200}: there is no such file or directory")
    for what, guarded in (("your home", Path.home()), ("all temporary files", Path(tempfile.gettempdir()))):
        if guarded.resolve().is_relative_to(whole):
            raise UsageError(f"{place} {given!r:.200} would give {what} to the agent; name what it needs of it")
    return str(whole)
