"""How a score is declared and found: one decorated function in one file of this package."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from kerneleval.records import Case, Limits, Result, Score
from kerneleval.records.registry import Registry

Table = dict[str, Score]
"""Several scores of one kind by what they are of: a category, a threshold, a cell."""


@dataclass(frozen=True, kw_only=True)
class Setting:
    """What a score needs to know beyond the results."""

    primary: str = ""
    """Device kind or machine fingerprint on which speed and coverage are judged; empty: that of the first result."""
    not_evaluated: Mapping[str, str] = field(default_factory=dict)
    """Requested devices that were not available: kind -> why."""
    suite: tuple[tuple[str, str, str], ...] = ()
    """(task, category, direction) of the whole suite, where the results hold only a part of it; empty: they hold all
    (a stored run's results do: they have a row for everything planned)."""
    thresholds: tuple[float, ...] = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
    ks: tuple[int, ...] = (1, 5, 10)
    fast_at: float = 1.0
    devices: Mapping[str, str] = field(default_factory=dict)
    """Machine fingerprint -> device, as :func:`kerneleval.scores.common.cells.devices_of` names it: machines of one
    model are one device. A machine that is not in it is a device of its own."""
    limits: Mapping[str, Limits] = field(default_factory=dict)
    """Machine fingerprint -> measured limits; a machine that is not in it was not measured."""
    work: Work | None = None
    """What a case must do at least; None: not known of any."""
    measured: Mapping[str, Mapping[AttemptKey, float]] = field(default_factory=dict)
    """What is known of attempts beyond their outcomes: name of a measure -> attempt -> value. ``maintainability``,
    ``complexity_sum`` ... of sources, ``K``, ``R``, ``H``, ``P``, ``A`` of the rubric."""
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    """Name of a measure -> why it was not taken."""


AttemptKey = tuple[str, str, int]
"""Generator, task, sample."""

Work = Callable[[Case], tuple[float, float] | None]
"""Forward case -> (floating-point operations, fewest bytes to move); None: its task is not at hand."""

DEFAULT = Setting()

ScoreFunction = Callable[[Sequence[Result], Setting], Score | Table]
"""Results of one generator in, a number (or a table of them) with its uncertainty out."""


def _problem(plugin: Any) -> str:
    if not callable(plugin):
        return "it must be a function"
    return "" if plugin.__doc__ else "it has no docstring, which is its definition"


SCORES: Registry[ScoreFunction] = Registry("score", "kerneleval.scores", problem=_problem)

register, find, all_scores = SCORES.register, SCORES.find, SCORES.all


def definition(name: str) -> str:
    """What a score means: the first paragraph of its docstring, on one line."""
    return explanation(name)["definition"]


def explanation(name: str) -> dict[str, str]:
    """The explanation of a score: ``name``, ``definition``, ``details`` (the rest of the docstring, paragraphs
    with empty lines between), ``file`` (its module). Raises UsageError with near names for an unknown one.
    """
    function = find(name)
    paragraphs = [" ".join(part.split()) for part in (inspect.getdoc(function) or "").split("\n\n")]
    return {
        "name": name,
        "definition": paragraphs[0],
        "details": "\n\n".join(paragraphs[1:]),
        "file": f"{function.__module__.replace('.', '/')}.py",
    }
