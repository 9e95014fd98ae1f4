"""Uncertainty of scores: Wilson's interval for shares, Student's t for means over tasks, Hall's transformed t for
ratios, a sign test turned round for medians, a hierarchical bootstrap for the rest.

The units are the tasks: the cells of one are alike, and their number tells little of how tasks differ. The hierarchical
bootstrap draws tasks with replacement, each with all of its cells: to draw these anew on top would count their scatter
twice. Only of fewer than :data:`FEW` tasks, which are too few by themselves, the timed cells are drawn too (within
every sample, direction and dtype). Its percentiles are those of Hesterberg's expanded interval (The American
Statistician 69:371, 2015). ``benchmarks/interval_coverage.py`` measures how often the intervals hold the truth.

Whether an operator is correct is not drawn anew: "right in every case" is a statement about the worst case, of which a
resample that happens to miss the wrong cell says nothing.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kerneleval.records import Score

Floats = NDArray[np.float64]

RESAMPLES = 2000
"""Bootstrap resamples; the ends of a 95 % interval then scatter by about 2 % of its width."""

FEW = 5
"""With fewer tasks than these, cells are drawn too, and scores note that there are few."""

SEED = 20240607
"""Fixed, so that the same results always give the same interval, p-value and report."""

_CHUNK = 2**22  # numbers at once: bounds memory to some 100 MB whatever the size of the suite

Z = 1.959963984540054
"""97.5 % quantile of the standard normal distribution."""


def NOTHING(note: str, n: int = 0) -> Score:  # noqa: N802 - a constant but for its note
    """The score where there is too little data: NaN, and why."""
    return Score(value=math.nan, low=math.nan, high=math.nan, n=n, note=note)


def scored(found: Sequence[float], n: int, *said: str) -> Score:
    """A value and the ends of its interval as a score of n units, with remarks that make its note."""
    value, low, high = found
    return Score(value=value, low=low, high=high, n=n, note=notes(*said))


def notes(*said: str) -> str:
    """The remarks as one note."""
    return "; ".join(filter(None, said))


def in_order(found: Collection[str], order: Sequence[str]) -> list[str]:
    """The known names in their order, then the others by the alphabet."""
    return [name for name in order if name in found] + sorted(set(found) - set(order))


def share(value: float, n: int, *, independent: int, note: str = "") -> Score:
    """A share (in [0, 1], of n units; a mean of shares counts as one) with Wilson's score interval (Wilson 1927, JASA
    22:209), which is honest at 0 and 1 too. ``independent``: number of independent units (operators, not directions).
    """
    if n == 0:
        return NOTHING(note or "nothing planned")
    m, z = independent, Z
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


def geometric_mean_of(logs: Sequence[float], *said: str) -> Score:
    """Geometric mean of values given by their logarithms, with the interval of :func:`mean_over_tasks`."""
    few = "fewer than 3 tasks: no interval" if len(logs) < 3 else ""
    return scored([math.exp(v) for v in mean_over_tasks(logs)], len(logs), *said, few)


def log_error(low: float, high: float, *, unknown: float) -> float:
    """Standard error of the logarithm of a ratio, from its 95 % interval; ``unknown``: the result where that is no
    interval.
    """
    return math.log(high / low) / (2 * Z) if 0 < low <= high < math.inf else unknown


def ratio_over_tasks(above: Floats, below: Floats) -> tuple[float, float, float]:
    """Sum of ``above`` over sum of ``below``, each (tasks,), with the t interval of a ratio that is corrected for
    skewness by Hall's cubic transformation (Hall 1992, JRSS B 54:221), for at least :data:`FEW` tasks.

    A few wild tasks make a mean over tasks skewed: Student's interval then held the truth in 90 % of suites of ten
    tasks, this one in 95 %; without them both do. Skewness is that of the standard deviation which the interval uses
    (n - 1), and the transformation is cut where it would turn back.
    """
    n, centre = len(above), float(above.sum() / below.sum())
    errors = (above - centre * below) / below.mean()
    spread = math.sqrt(float((errors**2).sum()) / (n - 1))
    if spread <= 1e-12 * abs(centre):  # equal but for rounding
        return centre, centre, centre
    from scipy import stats

    skew = float((errors**3).mean()) / spread**3
    ends = np.array([1.0, -1.0]) * float(stats.t.ppf(0.975, n - 1)) / math.sqrt(n)
    if abs(skew) > 1e-6:
        ends = 3 * (np.cbrt(np.maximum(1 + skew * (ends - skew / (6 * n)), 0.0)) - 1) / skew
    low, high = centre - ends * spread
    return centre, min(float(low), centre), max(float(high), centre)


# -- Hierarchical bootstrap -------------------------------------------------------------------------------------------


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
    """Resamples of the tasks, from which resamples of any nested values follow.

    Where tasks are drawn whole, a resample is the number of times that each of them comes: sums are then products of
    matrices, and medians searches in values that are sorted once, so that a million cells take seconds.
    """

    tasks: NDArray[np.intp]
    """(resamples, tasks): indices of the tasks drawn."""
    generator: np.random.Generator | None
    """Draws cells; None: the tasks drawn have their cells as they are."""
    counted: Floats | None = None
    """What :attr:`times` would count, where it is known."""

    @property
    def whole(self) -> bool:
        """Whether the tasks drawn have their cells as they are."""
        return self.generator is None

    @functools.cached_property
    def times(self) -> Floats:
        """(resamples, tasks): how often each task was drawn."""
        if self.counted is not None:
            return self.counted
        resamples, n = self.tasks.shape
        flat = (self.tasks + n * np.arange(resamples)[:, None]).ravel()
        return np.bincount(flat, minlength=resamples * n).reshape(resamples, n).astype(np.float64)

    def sums(self, of: Floats) -> Floats:
        """(tasks, columns) -> (resamples, columns): sums over the tasks drawn."""
        out: Floats = self.times @ of
        return out

    def ratio(self, of: Floats) -> Floats:
        """(tasks, 2) -> (resamples,): sum of the first column over that of the second; NaN where that is 0."""
        return quotient(*self.sums(of).T)

    def median(self, of: Nested) -> Floats:
        """(resamples,): median over all cells drawn; NaN where there is none."""
        if not self.whole:
            cells = self.cells(of)
            return median(cells.reshape(len(cells), -1))
        return _Ordered.of(of).medians(self.times)

    def cells(self, of: Nested) -> Floats:
        """(resamples, tasks, groups, cells): the values drawn, NaN where a group has fewer. Large where there are many
        tasks: :meth:`sums` and :meth:`median` are for these.
        """
        drawn = of.values[self.tasks]
        if self.generator is None:
            return drawn
        counts = of.counts[self.tasks][..., None]
        picked = np.floor(self.generator.random(drawn.shape) * counts).astype(np.intp)
        out = np.take_along_axis(drawn, picked, axis=-1)
        out[np.arange(drawn.shape[-1]) >= counts] = math.nan
        return out


@dataclass(frozen=True)
class _Ordered:
    """All values in ascending order, in blocks, to find medians of many weightings of their tasks."""

    values: Floats
    """(values,): ascending."""
    tasks: NDArray[np.intp]
    """(blocks, width): task of each value, in the same order; padded with the number of tasks."""
    in_block: Floats
    """(tasks, blocks): number of the task's values in each block."""

    @staticmethod
    def of(table: Nested) -> _Ordered:
        """Sort once."""
        there = ~np.isnan(table.values)
        values, tasks = table.values[there], np.nonzero(there)[0]
        order = np.argsort(values, kind="stable")
        n_tasks, width = len(table.values), max(1, math.isqrt(len(values)))
        blocks = -(-len(values) // width)
        padded = np.full(blocks * width, n_tasks, dtype=np.intp)
        padded[: len(values)] = tasks[order]
        in_block = np.zeros((n_tasks + 1, blocks))
        np.add.at(in_block, (padded, np.arange(len(padded)) // width), 1.0)
        return _Ordered(values[order], padded.reshape(blocks, width), in_block[:n_tasks])

    def medians(self, times: Floats) -> Floats:
        """(resamples, tasks) -> (resamples,): median where each value counts as often as its task; exact."""
        if not len(self.values):
            return np.full(len(times), math.nan)
        padded = np.hstack([times, np.zeros((len(times), 1))])
        ends = np.cumsum(times @ self.in_block, axis=1)  # values up to the end of each block
        total = ends[:, -1]
        middle = (self._at(ends, padded, np.floor((total - 1) / 2)) + self._at(ends, padded, np.floor(total / 2))) / 2
        return np.where(total > 0, middle, math.nan)

    def _at(self, ends: Floats, padded: Floats, place: Floats) -> Floats:
        """The value at that place of each resample, counted from 0."""
        block = np.minimum((ends <= place[:, None]).sum(axis=1), ends.shape[1] - 1)
        rows = np.arange(len(ends))
        before = np.where(block > 0, ends[rows, block - 1], 0.0)
        counted = before[:, None] + np.cumsum(padded[rows[:, None], self.tasks[block]], axis=1)
        inside = np.minimum((counted <= place[:, None]).sum(axis=1), self.tasks.shape[1] - 1)
        out: Floats = self.values[np.minimum(block * self.tasks.shape[1] + inside, len(self.values) - 1)]
        return out


def median_over_cells(table: Nested, *, never_outside: tuple[float, float]) -> tuple[float, float, float]:
    """(value, low, high) of the median over all cells; NaN where there is none.

    The interval holds every value that a sign test with the tasks as clusters does not reject as the median (Larocque,
    Nevalainen and Oja 2007, Biometrika 94:267; turned round as in Woodruff 1952, JASA 47:635): a value is too low where
    the cells up to it are significantly fewer than half, too high where those below it are significantly more. Each
    task votes by its cells below less half of its cells, and the variance is that of the votes around 0. Ties count on
    either side, so that the interval holds the median of what was rounded too. Of fewer than :data:`FEW` tasks with a
    cell, the hierarchical bootstrap.
    """
    value = float(median(table.values.reshape(1, -1))[0])
    if int((table.counts.sum(axis=1) > 0).sum()) < FEW:
        found = interval(
            lambda draw: draw.median(table), len(table.values), table.values.size, never_outside=never_outside
        )
        return found[:3]
    values, sums, squares = _votes(table)
    reach = Z * np.sqrt(np.maximum(squares, 0.0)) + 1e-9
    too_low, too_high = np.flatnonzero(sums < -reach), np.flatnonzero(sums > reach)
    low = float(values[too_low[-1] + 1] if len(too_low) else values[0])
    high = float(values[too_high[0]] if len(too_high) else values[-1])
    return value, max(min(low, value), never_outside[0]), min(max(high, value), never_outside[1])


def _votes(table: Nested) -> tuple[Floats, Floats, Floats]:
    """(values,) every value once, ascending; and over the tasks the sum, and the sum of squares, of their cells up to
    that value less half of their cells.
    """
    there = ~np.isnan(table.values)
    cells, tasks = table.values[there], np.nonzero(there)[0]
    order = np.argsort(cells, kind="stable")
    cells, tasks = cells[order], tasks[order]
    counts = table.counts.sum(axis=1)
    by_task = np.argsort(tasks, kind="stable")
    vote = np.empty(len(cells))
    vote[by_task] = np.arange(len(cells)) - np.repeat(np.cumsum(counts) - counts, counts)  # its cells before this one
    vote -= counts[tasks] / 2
    sums = np.arange(1.0, len(cells) + 1) - len(cells) / 2
    squares = float((counts**2).sum()) / 4 + np.cumsum(2 * vote + 1)
    last = np.r_[cells[1:] != cells[:-1], True]
    found: tuple[Floats, Floats, Floats] = cells[last], np.asarray(sums[last], dtype=np.float64), squares[last]
    return found


@functools.lru_cache(maxsize=2)
def _resamples(n_tasks: int, resamples: int) -> Draw:
    """The resamples of whole tasks: for every score of a suite the same ones."""
    tasks = np.random.default_rng(SEED).integers(0, n_tasks, (resamples, n_tasks))
    return Draw(tasks, None, Draw(tasks, None).times)


def interval(
    statistic: Callable[[Draw], Floats], n_tasks: int, size: int, *, never_outside: tuple[float, float]
) -> tuple[float, float, float, float]:
    """(value, low, high, share of undefined resamples) of a statistic by the hierarchical bootstrap, expanded
    percentiles. The interval is widened to hold the value, where the percentiles of a skewed statistic miss it.

    Args:
        statistic: draw -> (resamples,) values, NaN where undefined.
        n_tasks, size: number of tasks, and of cells (for chunking).
        never_outside: the bounds of the statistic.
    """
    value = float(statistic(Draw(np.arange(n_tasks)[None, :], None))[0])
    if math.isnan(value):
        return value, math.nan, math.nan, 1.0
    drawn = np.concatenate([statistic(draw) for draw in _draws(n_tasks, size)])
    defined = drawn[~np.isnan(drawn)]
    if not len(defined):
        return value, math.nan, math.nan, 1.0
    tail = _tail(n_tasks)
    low, high = np.quantile(defined, [tail, 1 - tail])
    bottom, top = never_outside
    low, high = max(bottom, min(float(low), value)), min(top, max(float(high), value))
    return value, low, high, 1 - len(defined) / len(drawn)


def _draws(n_tasks: int, size: int) -> Iterator[Draw]:
    """All resamples, so many at once that memory stays bounded."""
    whole = n_tasks >= FEW
    chunk = max(1, min(RESAMPLES, _CHUNK // (max(n_tasks, math.isqrt(size), 1) if whole else max(size, 1))))
    generator = np.random.default_rng(SEED)
    for start in range(0, RESAMPLES, chunk):
        end = min(start + chunk, RESAMPLES)
        if whole:
            of = _resamples(n_tasks, RESAMPLES)
            yield Draw(of.tasks[start:end], None, of.times[start:end])
        else:
            yield Draw(generator.integers(0, n_tasks, (end - start, n_tasks)), generator)


@functools.cache
def _tail(n: int) -> float:
    """Share of the resamples on each side of a 95 % interval over n tasks: 0.025 for ever so many, less for few, as
    resamples of n scatter by (n - 1) / n of the variance, and their quantiles are normal ones where t has fewer degrees
    of freedom. A single task says nothing about others.
    """
    if n < 2:
        return 0.025
    from scipy import stats

    return float(stats.norm.sf(math.sqrt(n / (n - 1)) * stats.t.ppf(0.975, n - 1)))


def quotient(above: Floats, below: Floats) -> Floats:
    """The one over the other, elementwise; NaN where that is not above 0."""
    out: Floats = np.divide(above, below, out=np.full(np.shape(above), math.nan), where=below > 0)
    return out


def median(values: Floats) -> Floats:
    """Median over the last axis, NaN left out; NaN where nothing is left (``numpy.nanmedian``, without its loop)."""
    ordered = np.sort(values, axis=-1)  # NaN comes last
    count = np.sum(~np.isnan(ordered), axis=-1, keepdims=True)
    lower = np.take_along_axis(ordered, np.maximum((count - 1) // 2, 0), axis=-1)
    upper = np.take_along_axis(ordered, np.minimum(count // 2, ordered.shape[-1] - 1), axis=-1)
    out: Floats = np.where(count > 0, (lower + upper) / 2, math.nan)[..., 0]
    return out
