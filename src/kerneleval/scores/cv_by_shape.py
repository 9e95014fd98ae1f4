"""Which shapes make a kernel's speedup uneven."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Sequence

import numpy as np

from kerneleval.records import SHAPE_CATEGORIES, Result, Score
from kerneleval.scores.common.cells import checked, primary, timing_of
from kerneleval.scores.common.intervals import FEW, Draw, Floats, interval, ratio_over_tasks
from kerneleval.scores.common.registry import DEFAULT, Setting, Table, register
from kerneleval.scores.common.speeds import MIN_SHAPES, few_tasks, where


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
    groups: dict[tuple[object, ...], list[Result]] = {}
    for r in mine:
        if timing_of(r) is not None:
            groups.setdefault((r.task, r.sample, r.case.direction, r.case.dtype), []).append(r)
    squares: dict[str, dict[str, list[float]]] = {}
    for cells in groups.values():
        if len({r.case.dims for r in cells}) < MIN_SHAPES:
            continue
        speeds = [timing.speedup for r in cells if (timing := timing_of(r)) is not None]
        mean, n = statistics.fmean(speeds), len(speeds)
        for r, speed in zip(cells, speeds, strict=True):
            of_tasks = squares.setdefault(r.case.shape_category, {})
            of_tasks.setdefault(r.task, []).append((speed / mean - 1) ** 2 * n / (n - 1) if mean > 0 else 0.0)
    order = [c for c in SHAPE_CATEGORIES if c in squares] + sorted(squares.keys() - set(SHAPE_CATEGORIES))
    return {category: _root(squares[category].values(), where(mine, setting)) for category in order}


def _root(of_tasks: Collection[list[float]], note: str) -> Score:
    sums = np.array([(sum(squares), len(squares)) for squares in of_tasks])
    if len(sums) >= FEW:
        found = ratio_over_tasks(sums[:, 0], sums[:, 1])
    else:

        def ratio(draw: Draw) -> Floats:
            total, count = draw.sums(sums).T
            out: Floats = total / count
            return out

        found = interval(ratio, len(sums), len(sums), never_outside=(0.0, math.inf))[:3]
    value, low, high = found
    ends = [math.sqrt(max(end, 0.0)) for end in (value, min(low, value), max(high, value))]
    note = "; ".join(filter(None, (note, few_tasks(len(sums)))))
    return Score(value=ends[0], low=ends[1], high=ends[2], n=int(sums[:, 1].sum()), note=note)
