"""How much the speedup depends on the shape: CV_shape, the second factor of S; the same by shape category; and the gap
between shapes that kernels are tuned for and all others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence

import numpy as np
from numpy.typing import NDArray

from kerneleval.records import CATEGORIES, SHAPE_CATEGORIES, Result, Score
from kerneleval.scores.common.cells import by_key, checked, primary, timing_of
from kerneleval.scores.common.intervals import (
    FEW,
    NOTHING,
    Draw,
    Floats,
    in_order,
    interval,
    nested,
    quotient,
    ratio_over_tasks,
    scored,
)
from kerneleval.scores.common.registry import DEFAULT, Setting, Table, register
from kerneleval.scores.common.speeds import MIN_SHAPES, Speeds, few_tasks, speeds, where


def over_groups(table: Speeds, draw: Draw) -> Floats:
    """(resamples,): mean over the eligible groups of standard deviation / mean.

    A resample of n cells has on average only (n - 1) / n of the data's variance, because cells repeat; with three
    shapes a group that is 18 % of the standard deviation. Resamples are scaled up by that, so that the interval is
    around the value and not below it.
    """
    if draw.whole:
        found = _of_groups(table.nested.values, table.eligible)
        return draw.ratio(np.stack([found.sum(axis=1), table.eligible.sum(axis=1)], axis=1))
    eligible = table.eligible[draw.tasks]
    found = _of_groups(draw.cells(table.nested), eligible, drawn=True)
    return quotient(found.sum(axis=(1, 2)), eligible.sum(axis=(1, 2)))


def _of_groups(cells: Floats, eligible: NDArray[np.bool_], *, drawn: bool = False) -> Floats:
    """(..., cells) -> (...): standard deviation / mean of each group; 0 of those that are not eligible."""
    n = np.sum(~np.isnan(cells), axis=-1)
    n_safe = np.maximum(n, 2)
    filled = np.nan_to_num(cells)
    mean = filled.sum(axis=-1) / n_safe
    squares = np.where(np.isnan(cells), 0.0, (filled - mean[..., None]) ** 2).sum(axis=-1)
    variance = squares / (n_safe - 1)
    if drawn:
        variance *= n_safe / (n_safe - 1)
    cv = np.divide(np.sqrt(variance), mean, out=np.zeros_like(mean), where=eligible & (mean > 0))
    return np.where(eligible, cv, 0.0)


@register
def cv_shape(results: Sequence[Result], setting: Setting = DEFAULT) -> Score:
    """Coefficient of variation of speedup over shapes: per (task, direction, dtype) with at least 3 shapes, standard
    deviation over mean of the speedups of its timed cells on the primary device; then the mean over these groups.

    The standard deviation is the sample one (n - 1). Clipped to [0, 1] in S only. The interval is Hall's transformed t
    over tasks, of fewer than five of them a hierarchical bootstrap; n is the number of groups.
    """
    table = speeds(checked(results), setting)
    groups = int(table.eligible.sum())
    if not groups:
        return NOTHING(f"no (task, direction, dtype) has {MIN_SHAPES} timed shapes")
    too_few = int((table.nested.counts > 0).sum()) - groups
    left_out = f"{too_few} groups with fewer than {MIN_SHAPES} timed shapes left out" if too_few else ""
    tasks = int(table.eligible.any(axis=1).sum())
    return scored(with_interval(table), groups, where(results, setting), left_out, few_tasks(tasks))


def with_interval(table: Speeds) -> tuple[float, float, float]:
    """(value, low, high)."""
    there = table.eligible.any(axis=1)
    if there.sum() >= FEW:
        total = _of_groups(table.nested.values, table.eligible).sum(axis=1)[there]
        value, low, high = ratio_over_tasks(total, table.eligible.sum(axis=1)[there].astype(np.float64))
        return value, max(low, 0.0), high
    found = interval(
        lambda draw: over_groups(table, draw),
        len(table.tasks),
        table.nested.values.size,
        never_outside=(0.0, math.inf),
    )
    return found[:3]


@register
def cv_by_category(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """CV_shape over the groups of each operator category."""
    mine = primary(checked(results), setting)
    known = in_order({r.category for r in mine}, CATEGORIES)
    return {category: cv_shape([r for r in mine if r.category == category]) for category in known}


@register
def cv_by_shape(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """How far the speedups at shapes of each category lie from the mean of their (task, direction, dtype): root mean
    square of (speedup - mean) / mean, times n / (n - 1) under the root, over the correct, timed cells of the primary
    device in groups with at least 3 shapes.

    The mean of the squares over all cells of a group is the square of its coefficient of variation, so that a category
    above the others is where CV_shape comes from. The interval is Hall's transformed t over tasks, of fewer than five
    of them a bootstrap; n is the number of cells.
    """
    mine = primary(checked(results), setting)
    timed = (r for r in mine if timing_of(r) is not None)
    groups = by_key(((r.task, r.sample, r.case.direction, r.case.dtype), r) for r in timed)
    squares: dict[str, dict[str, list[float]]] = {}
    for cells in groups.values():
        if len({r.case.dims for r in cells}) < MIN_SHAPES:
            continue
        speedups = [timing.speedup for r in cells if (timing := timing_of(r)) is not None]
        mean, n = statistics.fmean(speedups), len(speedups)
        for r, speed in zip(cells, speedups, strict=True):
            of_tasks = squares.setdefault(r.case.shape_category, {})
            of_tasks.setdefault(r.task, []).append((speed / mean - 1) ** 2 * n / (n - 1) if mean > 0 else 0.0)
    return {
        category: _root(squares[category].values(), where(mine, setting))
        for category in in_order(squares, SHAPE_CATEGORIES)
    }


def _root(of_tasks: Collection[list[float]], note: str) -> Score:
    sums = np.array([(sum(squares), len(squares)) for squares in of_tasks])
    if len(sums) >= FEW:
        found = ratio_over_tasks(sums[:, 0], sums[:, 1])
    else:
        found = interval(lambda draw: draw.ratio(sums), len(sums), len(sums), never_outside=(0.0, math.inf))[:3]
    return scored([math.sqrt(max(end, 0.0)) for end in found], int(sums[:, 1].sum()), note, few_tasks(len(sums)))


_SIDES = ("power_of_two", "non_power_of_two")


@register
def shape_gap(results: Sequence[Result], setting: Setting = DEFAULT) -> Score:
    """How many times as fast, against the baseline, a generator is at powers of two as elsewhere: the median speedup
    over the ``power_of_two`` cells divided by that over the ``non_power_of_two`` ones, of the primary device.

    1 is even; a kernel tuned to powers of two is above. The interval is a hierarchical bootstrap (whole tasks);
    n is the number of cells of both sides.
    """
    mine = primary(checked(results), setting)
    tasks = tuple(dict.fromkeys(r.task for r in mine))
    timed = [(r, timing) for r in mine if (timing := timing_of(r)) is not None]
    sides = []
    for side in _SIDES:
        of_side = [(r, timing.speedup) for r, timing in timed if r.case.shape_category == side]
        rows = [(r.task, (r.sample, r.case.direction, r.case.dtype), speed) for r, speed in of_side]
        sides.append(nested(tasks, rows))
    for side, of in zip(_SIDES, sides, strict=True):
        if not of.counts.sum():
            return NOTHING(f"no correct cell of {side} shapes was timed")

    size, bounds = sum(of.values.size for of in sides), (0.0, math.inf)
    *found, _ = interval(lambda draw: quotient(*map(draw.median, sides)), len(tasks), size, never_outside=bounds)
    n = int(sum(of.counts.sum() for of in sides))
    return scored(found, n, where(results, setting), few_tasks(len(tasks)))
