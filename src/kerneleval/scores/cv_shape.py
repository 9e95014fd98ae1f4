"""CV_shape: how much the speedup depends on the shape, the second factor of S."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from kerneleval.records import CATEGORIES, Result, Score
from kerneleval.scores.common.cells import checked, primary
from kerneleval.scores.common.intervals import FEW, NOTHING, Draw, Floats, interval, ratio_over_tasks
from kerneleval.scores.common.registry import DEFAULT, Setting, Table, register
from kerneleval.scores.common.speeds import MIN_SHAPES, Speeds, few_tasks, speeds, where


def over_groups(table: Speeds, draw: Draw) -> Floats:
    """(resamples,): mean over the eligible groups of standard deviation / mean.

    A resample of n cells has on average only (n - 1) / n of the data's variance, because cells repeat; with three
    shapes a group that is 18 % of the standard deviation. Resamples are scaled up by that, so that the interval lies
    around the value and not below it.
    """
    if draw.whole:
        found = _of_groups(table.nested.values, table.eligible)
        total, groups = draw.sums(np.stack([found.sum(axis=1), table.eligible.sum(axis=1)], axis=1)).T
    else:
        eligible = table.eligible[draw.tasks]
        found = _of_groups(draw.cells(table.nested), eligible, drawn=True)
        total, groups = found.sum(axis=(1, 2)), eligible.sum(axis=(1, 2))
    out: Floats = np.divide(total, groups, out=np.full(len(total), math.nan), where=groups > 0)
    return out


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
    value, low, high = with_interval(table)
    too_few = int((table.nested.counts > 0).sum()) - groups
    left_out = f"{too_few} groups with fewer than {MIN_SHAPES} timed shapes left out" if too_few else ""
    tasks = int(table.eligible.any(axis=1).sum())
    note = "; ".join(filter(None, (where(results, setting), left_out, few_tasks(tasks))))
    return Score(value=value, low=low, high=high, n=groups, note=note)


def with_interval(table: Speeds) -> tuple[float, float, float]:
    """(value, low, high)."""
    there = table.eligible.any(axis=1)
    if there.sum() >= FEW:
        total = _of_groups(table.nested.values, table.eligible).sum(axis=1)[there]
        value, low, high = ratio_over_tasks(total, table.eligible.sum(axis=1)[there].astype(np.float64))
        return value, max(min(low, value), 0.0), max(high, value)
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
    found = {}
    mine = primary(checked(results), setting)
    known = {r.category for r in mine}
    for category in [c for c in CATEGORIES if c in known] + sorted(known - set(CATEGORIES)):
        found[category] = cv_shape([r for r in mine if r.category == category])
    return found
