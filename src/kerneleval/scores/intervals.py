"""Uncertainty of scores: Wilson's interval for shares, Student's t for means over tasks, a hierarchical bootstrap for
the rest.

The hierarchical bootstrap draws tasks with replacement, each with all of its cells. How cells scatter within a task is
part of how tasks differ, so that drawing them anew on top counts it twice: the intervals of Shape CV then held the
truth in 99 % of all suites. Only of fewer than :data:`FEW` tasks, which say too little by themselves, the timed cells
are drawn too (within every sample, direction and dtype). The percentiles are those of Hesterberg's expanded interval
(The American Statistician 69:371, 2015), without which suites of five tasks had the truth in 86 % instead of 94 %.
``benchmarks/interval_coverage.py`` measures all this.

Whether an operator is correct is not drawn anew: "right in every case" is a statement about the worst case, of which a
resample that happens to miss the wrong cell says nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kerneleval.records import Score

__all__ = ["FEW", "NOTHING", "RESAMPLES", "Draw", "Nested", "interval", "mean_over_tasks", "median", "nested", "share"]

Floats = NDArray[np.float64]

RESAMPLES = 2000
"""Bootstrap resamples; the ends of a 95 % interval then scatter by about 2 % of its width."""

FEW = 5
"""With fewer tasks than these, cells are drawn too, and scores note that there are few."""

SEED = 20240607
"""Fixed, so that the same results always give the same interval."""

_CHUNK = 2**21  # numbers drawn at once: bounds memory to some 50 MB whatever the size of the suite

_Z = 1.959963984540054  # 97.5 % quantile of the standard normal distribution


def NOTHING(note: str, n: int = 0) -> Score:  # noqa: N802 - a constant but for its note
    """The score where there is too little data: NaN, and why."""
    return Score(value=math.nan, low=math.nan, high=math.nan, n=n, note=note)


def share(value: float, n: int, *, independent: int, note: str = "") -> Score:
    """A share with Wilson's score interval (Wilson 1927, JASA 22:209), which is honest at 0 and 1 too.

    Args:
        value: the share, in [0, 1]; a mean of shares over units counts as one.
        n: number of units that it is a share of.
        independent: number of independent units among them (operators, not their directions).
        note: what the reader must know.
    """
    if n == 0:
        return NOTHING(note or "nothing planned")
    m, z = independent, _Z
    centre = (value + z**2 / (2 * m)) / (1 + z**2 / m)
    half = z / (1 + z**2 / m) * math.sqrt(value * (1 - value) / m + z**2 / (4 * m**2))
    low, high = min(max(0.0, centre - half), value), max(min(1.0, centre + half), value)
    return Score(value=value, low=low, high=high, n=n, note=note)


def mean_over_tasks(values: Sequence[float]) -> tuple[float, float, float]:
    """Mean with Student's t interval (a BCa bootstrap of five values held the truth in 84 % of all suites, this one in
    95 %); the interval is NaN for fewer than 3 values.
    """
    data = np.asarray(values, dtype=np.float64)
    value = float(data.mean()) if len(data) else math.nan
    if len(data) < 3:
        return value, math.nan, math.nan
    if np.ptp(data) <= 1e-12 * abs(value):  # equal but for rounding
        return value, value, value
    from scipy import stats

    found = stats.ttest_1samp(data, 0.0).confidence_interval()
    return value, float(found.low), float(found.high)


# --------------------------------------------------------------------------------------------------------------------
# Hierarchical bootstrap
# --------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Nested:
    """Values of cells in groups in tasks, padded with NaN."""

    values: Floats
    """(tasks, groups, cells); the cells of a group come first, then NaN."""
    counts: NDArray[np.intp]
    """(tasks, groups): number of cells."""


def nested(tasks: Sequence[str], rows: Iterable[tuple[str, Any, float]]) -> Nested:
    """Arrange (task, group, value) rows; ``tasks`` gives the order, and may hold tasks without rows."""
    groups: dict[str, dict[Any, list[float]]] = {task: {} for task in tasks}
    for task, group, value in rows:
        groups[task].setdefault(group, []).append(value)
    n_groups = max((len(of) for of in groups.values()), default=0)
    n_cells = max((len(cells) for of in groups.values() for cells in of.values()), default=0)
    values = np.full((len(tasks), max(n_groups, 1), max(n_cells, 1)), math.nan)
    counts = np.zeros(values.shape[:2], dtype=np.intp)
    for t, task in enumerate(tasks):
        for g, cells in enumerate(groups[task].values()):
            values[t, g, : len(cells)] = cells
            counts[t, g] = len(cells)
    return Nested(values, counts)


@dataclass(frozen=True)
class Draw:
    """Resamples of the tasks, from which resamples of any nested values follow."""

    tasks: NDArray[np.intp]
    """(resamples, tasks): indices of the tasks drawn."""
    generator: np.random.Generator | None
    """Draws cells; None: the tasks drawn have their cells as they are."""

    def cells(self, of: Nested) -> Floats:
        """(resamples, tasks, groups, cells): the values drawn, NaN where a group has fewer."""
        drawn = of.values[self.tasks]
        if self.generator is None:
            return drawn
        counts = of.counts[self.tasks][..., None]
        picked = np.floor(self.generator.random(drawn.shape) * counts).astype(np.intp)
        out = np.take_along_axis(drawn, picked, axis=-1)
        out[np.arange(drawn.shape[-1]) >= counts] = math.nan
        return out


def interval(
    statistic: Callable[[Draw], Floats], n_tasks: int, size: int, *, never_outside: tuple[float, float]
) -> tuple[float, float, float, float]:
    """(value, low, high, share of undefined resamples) of a statistic by the hierarchical bootstrap, expanded
    percentiles.

    Args:
        statistic: draw -> (resamples,) values, NaN where undefined.
        n_tasks: number of tasks.
        size: numbers that one resample draws, for chunking.
        never_outside: the bounds of the statistic.

    The interval is widened to hold the value, where the percentiles of a skewed statistic miss it.
    """
    value = float(statistic(Draw(np.arange(n_tasks)[None, :], None))[0])
    if math.isnan(value):
        return value, math.nan, math.nan, 1.0
    generator = np.random.default_rng(SEED)
    chunk = max(1, min(RESAMPLES, _CHUNK // max(size, 1)))
    parts = []
    for start in range(0, RESAMPLES, chunk):
        shape = (min(chunk, RESAMPLES - start), n_tasks)
        drawn_tasks = generator.integers(0, n_tasks, shape)
        parts.append(statistic(Draw(drawn_tasks, generator if n_tasks < FEW else None)))
    drawn = np.concatenate(parts)
    defined = drawn[~np.isnan(drawn)]
    if not len(defined):
        return value, math.nan, math.nan, 1.0
    tail = _tail(n_tasks)
    low, high = np.quantile(defined, [tail, 1 - tail])
    bottom, top = never_outside
    low, high = max(bottom, min(float(low), value)), min(top, max(float(high), value))
    return value, low, high, 1 - len(defined) / len(drawn)


def _tail(n: int) -> float:
    """Share of the resamples on each side of a 95 % interval over n tasks: 0.025 for ever so many, less for few, as
    resamples of n scatter by (n - 1) / n of the variance, and their quantiles are normal ones where t has fewer degrees
    of freedom. A single task tells nothing of others.
    """
    if n < 2:
        return 0.025
    from scipy import stats

    return float(stats.norm.sf(math.sqrt(n / (n - 1)) * stats.t.ppf(0.975, n - 1)))


def median(values: Floats) -> Floats:
    """Median over the last axis, NaN left out; NaN where nothing is left (``numpy.nanmedian``, without its loop)."""
    ordered = np.sort(values, axis=-1)  # NaN comes last
    count = np.sum(~np.isnan(ordered), axis=-1, keepdims=True)
    lower = np.take_along_axis(ordered, np.maximum((count - 1) // 2, 0), axis=-1)
    upper = np.take_along_axis(ordered, np.minimum(count // 2, ordered.shape[-1] - 1), axis=-1)
    out: Floats = np.where(count > 0, (lower + upper) / 2, math.nan)[..., 0]
    return out
