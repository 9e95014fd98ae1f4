"""What a user asks for: one candidate, a run over generators, an audit. How it is judged says :class:`Protocol`.

The command line and the Python API build these records from their options, and everything below takes the records. An
option is one field: of ``Protocol`` where it changes the meaning of a result, else of one of these.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from kerneleval.records.errors import UsageError, near
from kerneleval.records.machines import Protocol
from kerneleval.records.tasks import Task

__all__ = ["AuditSpec", "CandidateSpec", "ReplaySource", "RunSpec", "asked", "filled"]


@dataclass(frozen=True, kw_only=True)
class CandidateSpec:
    """Which candidate is judged, on which task and where."""

    source: str
    """Path of the candidate's file; or ``store:HASH``, the beginning of its hash in the store."""
    task: str | Task
    """Name of a built-in task, path of a problem file, or a task."""
    device: str | None = None
    """Device kind; None: the GPU where there is one, else the CPU."""
    language: str = ""
    """Language of the file; empty: found from its content."""
    entry: str = ""
    """Name of the entry point; empty: by convention (``docs/candidates.md``)."""
    backward_entry: str = ""
    """Name of the explicit backward entry point; empty: by convention."""
    case: str = ""
    """Key of the only case to judge; empty: every case of the plan."""
    store_url: str | None = None
    """Path or URL of the store of a stored candidate; None: ``./kerneleval.db``."""

    @property
    def task_source(self) -> str:
        """What to give as ``--task`` to get the same task."""
        return self.task.name if isinstance(self.task, Task) else self.task


@dataclass(frozen=True, kw_only=True)
class RunSpec:
    """Which generators are asked, for which tasks and where, and what that may cost."""

    generators: tuple[str, ...] = ()
    """Names, or paths: of directories with candidates, of files with settings; empty: the archetypes."""
    tasks: tuple[str, ...] = ()
    """Names or paths; empty: the archetypes' suite."""
    device: str | None = None
    """Device kind; None: the GPU where there is one, else the CPU."""
    store_url: str | None = None
    """Path or URL of the store; None: ``./kerneleval.db``."""
    name: str = ""
    """Name of the run, for people; empty: the names of its generators."""
    resume: bool = True
    """Whether an interrupted run of the same plan goes on."""
    target: float | None = None
    """Speedup from which on a correct draft is not refined any more; None: all rounds are used."""
    max_usd: float | None = None
    """Most money that asking may cost, in US dollars, over all calls of this run; None: no limit."""
    max_tokens: int | None = None
    """Most tokens, of prompts and completions together; None: no limit."""
    max_hours: float | None = None
    """Longest time of this call, in hours, asking and judging; None: no limit."""


@dataclass(frozen=True, kw_only=True)
class AuditSpec:
    """Which verdicts of a stored run are judged again, and how."""

    run: str = "latest"
    """Identifier, its beginning, name or ``latest``: the latest run that is no audit."""
    store_url: str | None = None
    """Path or URL of the store; None: ``./kerneleval.db``."""
    device: str | None = None
    """Device kind, one of the run's; None: that of its first machine."""
    only: tuple[str, ...] = ()
    """Names of tasks; empty: all tasks of the run."""
    sample: int = 0
    """Judge this many verdicts, chosen in secret; 0: all."""
    tier: str = ""
    """``quick``, ``standard`` or ``precise``; empty: the run's own."""
    same_shapes: bool = False
    """Judge at the cases of the run; otherwise at those of another, secretly chosen seed, except for tasks that have
    sizes of their own."""
    resume: bool = True
    """Whether an interrupted audit of the same run with the same settings goes on."""


_R = TypeVar("_R")


def filled(kind: type[_R], options: Mapping[str, Any]) -> _R:
    """A record from options by name: field -> value; lists become tuples.

    Raises:
        UsageError: an option is no field of the record.
    """
    _refuse_unknown(options, _names(kind))
    return kind(**{name: tuple(value) if isinstance(value, list) else value for name, value in options.items()})


def asked(kind: type[_R], options: Mapping[str, Any]) -> tuple[_R, Protocol]:
    """A record of that kind and a protocol from options by name: each is a field of one of the two.

    Raises:
        UsageError: an option is a field of neither record.
    """
    names = _names(kind)
    _refuse_unknown(options, names | _names(Protocol))
    mine = {name: value for name, value in options.items() if name in names}
    return filled(kind, mine), filled(Protocol, {name: v for name, v in options.items() if name not in names})


def _names(kind: type) -> set[str]:
    return {field.name for field in dataclasses.fields(kind)}


def _refuse_unknown(options: Mapping[str, Any], known: set[str]) -> None:
    for name in options:
        if name not in known:
            raise UsageError(f"there is no option {name!r}; {near(name, known)}")


@dataclass(frozen=True, kw_only=True)
class ReplaySource:
    """Where a replay line finds candidate and task again."""

    source: str = ""
    """Path of the candidate's file, or its name in the store; empty: the name of its first file."""
    task: str = ""
    """What to give as ``--task``; empty: the task's name."""
    store: str = ""
    """What to give as ``--store`` for a candidate from the store; empty: nothing."""
