"""Scores of what is known of attempts beyond their outcomes: sources, and the Standard Kernel Rubric."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence

from kerneleval.records import Result, Score
from kerneleval.scores.common.cells import checked, primary
from kerneleval.scores.common.intervals import FEW, NOTHING, median_over_cells, nested, notes, scored, share
from kerneleval.scores.common.registry import DEFAULT, Setting, Table, register
from kerneleval.scores.common.speeds import where

AXES = ("K", "R", "H", "P", "A")
"""Axes of the Standard Kernel Rubric."""


def median_over_attempts(
    figures: Iterable[tuple[str, float]], never_outside: tuple[float, float], note: str = ""
) -> Score:
    """Median of (task, value) pairs, one an attempt; the interval is of a sign test over the tasks, turned round, of
    fewer than five of them a bootstrap.
    """
    rows = [(task, 0, value) for task, value in figures]
    if not rows:
        return NOTHING(note or "no attempt")
    tasks = tuple(dict.fromkeys(task for task, _, _ in rows))
    few = "few tasks: the interval is too narrow" if len(tasks) < FEW else ""
    return scored(median_over_cells(nested(tasks, rows), never_outside=never_outside), len(rows), note, few)


def _figures(results: Sequence[Result], setting: Setting, name: str) -> tuple[list[tuple[str, float]], str]:
    """(task, value) of the attempts on the primary device that have a value, and a note on the others."""
    cells = primary(checked(results), setting)
    attempts = list(dict.fromkeys((r.generator, r.task, r.sample) for r in cells))
    known = setting.measured.get(name, {})
    figures = [(key[1], known[key]) for key in attempts if not math.isnan(known.get(key, math.nan))]
    left = len(attempts) - len(figures)
    why = setting.unmeasured.get(name, "not known for any attempt") if not figures else ""
    why = why or (f"{left} attempts not known" if left else "")
    return figures, notes(where(results, setting), why)


@register
def maintainability(results: Sequence[Result], setting: Setting = DEFAULT) -> Score:
    """Median maintainability index of the generator's sources, 0 to 100, higher is easier (Coleman et al. 1994, IEEE
    Computer 27(8):44, rescaled as Radon does), over its attempts on the primary device, right or wrong.

    Figures of different languages are not comparable. The interval is of a sign test over the tasks, turned round; n is
    the number of attempts that have a value.
    """
    figures, note = _figures(results, setting, "maintainability")
    return median_over_attempts(figures, (0.0, 100.0), note)


@register
def complexity(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """McCabe's cyclomatic complexity (1976, IEEE TSE 2:308) of the generator's sources, Python and C-like: ``sum`` over
    the functions of a source, their ``mean``, and the ``max`` of them; median over the attempts on the primary device,
    right or wrong.

    Figures of different languages are not comparable. Interval and n as of ``maintainability``.
    """
    figures = {name: _figures(results, setting, f"complexity_{name}") for name in ("sum", "mean", "max")}
    return {name: median_over_attempts(of, (0.0, math.inf), note) for name, (of, note) in figures.items()}


@register
def rubric(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """The Standard Kernel Rubric: median level, 1 to 4, of the attempts on the primary device on each axis (``K``
    complexity of the task, ``R`` representation, ``H`` hardware features, ``P`` performance, ``A`` automation), and the
    share of them on each level (``K/1`` ... ``A/4``).

    Levels come from evidence (``docs/analysis.md``); an attempt without evidence on an axis is left out of it. The
    interval of the median is of a sign test over the tasks, turned round, that of a share is Wilson's; n is the number
    of attempts that have a level.
    """
    found: Table = {}
    for axis in AXES:
        figures, note = _figures(results, setting, axis)
        found[axis] = median_over_attempts(figures, (1.0, 4.0), note)
        counts = Counter(int(level) for _, level in figures)
        tasks = len({task for task, _ in figures})
        for level in range(1, 5) if figures else ():
            found[f"{axis}/{level}"] = share(counts[level] / len(figures), len(figures), independent=tasks)
    return found
