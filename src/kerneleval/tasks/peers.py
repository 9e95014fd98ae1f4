"""The map of peers: every name of three other benchmarks, and the built-in tasks that cover it.

The map is ``peers.csv`` beside this file, a row a name. Its note says where ours differs; where there are no tasks, why
not. ``scripts/peers_page.py`` prints ``docs/peers.md``.
"""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from importlib import resources

from kerneleval.records import KernelEvalError, UsageError, near

_FIELDS = ("system", "group", "name", "tasks", "note")
_FILE = "peers.csv"

UNLISTED = frozenset(
    f"{operator}_{dtype}" for operator in ("mul", "relu", "sigmoid", "tanh") for dtype in ("bf16", "fp16")
)
"""Files of KernelBench-X that its own list of 176 does not have: eight of its 184 are one operator in a half type."""


@dataclass(frozen=True, kw_only=True)
class PeerName:
    """One name of a peer."""

    system: str
    group: str
    """The peer's own category, part or level."""
    name: str
    """The name, as the peer has it."""
    tasks: tuple[str, ...]
    """Built-in tasks that cover it; empty: none."""
    note: str
    """Where ours differs, or why there is none."""

    @property
    def listed(self) -> bool:
        """Whether it is in the peer's own list, beside being a file of it."""
        return not (self.system == "KernelBench-X" and self.name in UNLISTED)


@dataclass(frozen=True, kw_only=True)
class Counts:
    """How much of a peer is covered."""

    names: int
    mapped: int
    listed: int
    """Its names, as its own list has them."""
    listed_mapped: int
    """Those of them that have tasks."""
    tasks: int

    def __str__(self) -> str:
        both = f"{self.mapped} of {self.names} mapped"
        if self.listed < self.names:
            both += f" ({self.listed_mapped} of {self.listed} in the peer's own list)"
        return f"{both}, to {self.tasks} tasks"


def names(system: str = "", group: str = "") -> tuple[PeerName, ...]:
    """Names of a peer, of one of its groups, or of all peers, in the order of the map. Raises UsageError: no such peer
    or group; KernelEvalError: the map does not hold together.
    """
    found = _all()
    if system:
        system = _known(system, [row.system for row in found], "peer")
        found = tuple(row for row in found if row.system == system)
    if group:
        group = _known(group, [row.group for row in found], f"group of {system or 'a peer'}")
        found = tuple(row for row in found if row.group == group)
    return found


def systems() -> tuple[str, ...]:
    """The peers, in the order of the map."""
    return tuple(dict.fromkeys(row.system for row in _all()))


def covered(system: str, group: str = "") -> Counts:
    """How much of a peer, or of one of its groups, is covered; raises as :func:`names`."""
    found = names(system, group)
    listed = [row for row in found if row.listed]
    return Counts(
        names=len(found),
        mapped=sum(bool(row.tasks) for row in found),
        listed=len(listed),
        listed_mapped=sum(bool(row.tasks) for row in listed),
        tasks=len({task for row in found for task in row.tasks}),
    )


def covering(task: str) -> tuple[PeerName, ...]:
    """The peers' names that a task covers; none for a task that no peer has."""
    return tuple(row for row in _all() if task in row.tasks)


def origins() -> str:
    """What the number of built-in tasks means: how many cover a peer's names, and how many no peer has."""
    from kerneleval.tasks import ALIASES, all_tasks

    known = all_tasks()
    theirs = {task for row in _all() for task in row.tasks}
    mapped = sum(bool(row.tasks) for row in _all())
    return (
        f"Of the {len(known):,} built-in tasks, {len(theirs)} cover {mapped} of the {len(_all())} names of three peer "
        f"benchmarks, and {len(known) - len(theirs)} are operators that no peer has. {len(ALIASES)} further names are "
        "aliases of tasks."
    )


def same_tasks(given: Iterable[str]) -> dict[str, str]:
    """Name -> the common name of all tasks that are one under several names: a built-in task, the peers' problems that
    it covers as results of theirs have them (``KernelBench/level1/19_ReLU``, ``KernelBench-X/Activation/relu``), and a
    problem file (``kernelbench:19_ReLU@...``). A peer's problem gets a built-in task's name only where that is given.
    """
    known = set(given)
    return {name: _common(name, known) for name in known}


def _common(name: str, known: Collection[str]) -> str:
    if problem := re.fullmatch(r"kernelbench:(.+)@[0-9a-f]+", name):
        system, own = "KernelBench", problem[1]
    elif (parts := name.split("/", 2)) and len(parts) == 3 and parts[0] in systems():
        system, own = parts[0], parts[2]
    else:
        return name
    rows = [row for row in names(system) if row.name == own]
    return next((task for row in rows for task in row.tasks if task in known), f"{system} {own}")


def parse(text: str, known: Collection[str]) -> tuple[PeerName, ...]:
    """The map, from the text of a CSV file with the columns system, group, name, tasks (with spaces between) and note;
    ``known`` are the names of all tasks. Raises KernelEvalError that names the row and what is wrong with it.
    """
    reader = csv.reader(io.StringIO(text))
    if tuple(next(reader, ())) != _FIELDS:
        raise KernelEvalError(f"{_FILE} must begin with the line {','.join(_FIELDS)}")
    found: dict[tuple[str, str, str], PeerName] = {}
    for cells in reader:
        where = f"{_FILE}, line {reader.line_num}"
        if len(cells) != len(_FIELDS):
            raise KernelEvalError(f"{where}: {len(cells)} cells, not {len(_FIELDS)}: {','.join(cells)!r}")
        system, group, name, tasks, note = (cell.strip() for cell in cells)
        row = PeerName(system=system, group=group, name=name, tasks=tuple(tasks.split()), note=note)
        key = (system, group, name)
        where += f", {' '.join(key)}"
        if not all(key):
            raise KernelEvalError(f"{where}: system, group and name must be given")
        if key in found:
            raise KernelEvalError(f"{where}: the name is there twice")
        if not row.tasks and not row.note:
            raise KernelEvalError(f"{where}: neither a task nor the reason why there is none")
        if len(set(row.tasks)) < len(row.tasks):
            raise KernelEvalError(f"{where}: a task is there twice")
        for task in row.tasks:
            if task not in known:
                raise KernelEvalError(f"{where}: no task is called {task!r}; {near(task, known)}")
        found[key] = row
    return tuple(found.values())


@functools.cache
def _all() -> tuple[PeerName, ...]:
    from kerneleval.tasks import all_tasks

    return parse(resources.files(__package__).joinpath(_FILE).read_text(encoding="utf-8"), all_tasks())


def _known(wanted: str, known: Collection[str], what: str) -> str:
    """The name as it is spelled, whatever its case."""
    spelled = {name.casefold(): name for name in known}
    if wanted.casefold() not in spelled:
        raise UsageError(f"no {what} is called {wanted!r}; {near(wanted, spelled.values())}")
    return spelled[wanted.casefold()]
