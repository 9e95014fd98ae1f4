"""Speedup_med: the first factor of S; the same by shape category; and the peak."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from kerneleval.records import SHAPE_CATEGORIES, Result, Score
from kerneleval.scores.common.cells import checked, primary
from kerneleval.scores.common.intervals import NOTHING, median_over_cells
from kerneleval.scores.common.registry import DEFAULT, Setting, Table, register
from kerneleval.scores.common.speeds import few_tasks, speeds, where


@register
def speedup_med(results: Sequence[Result], setting: Setting = DEFAULT) -> Score:
    """Median speedup over the correct, timed cells of the primary device, both directions.

    The interval is of a sign test over the tasks, turned round; n is the number of cells.
    """
    table = speeds(checked(results), setting)
    if not table.cells:
        return NOTHING("no correct cell was timed")
    value, low, high = median_over_cells(table.nested, never_outside=(0.0, math.inf))
    note = "; ".join(filter(None, (where(results, setting), few_tasks(table.timed_tasks))))
    return Score(value=value, low=low, high=high, n=table.cells, note=note)


@register
def speedup_by_shape(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """Median speedup over the correct, timed cells of the primary device whose shape is of that category.

    A shape-specialised generator shows here: fast on ``power_of_two``, slow on ``non_power_of_two``.
    """
    groups: dict[str, list[Result]] = {}
    for r in primary(checked(results), setting):
        groups.setdefault(r.case.shape_category, []).append(r)
    order = [c for c in SHAPE_CATEGORIES if c in groups] + sorted(set(groups) - set(SHAPE_CATEGORIES))
    alone = dataclasses.replace(setting, suite=())
    found = {category: speedup_med(groups[category], alone) for category in order}
    return {category: of for category, of in found.items() if of.n}


@register
def peak(results: Sequence[Result], setting: Setting = DEFAULT) -> Score:
    """Highest median speedup over one shape category: what a benchmark of a single kind of shape would have found.

    A single cell would be a lucky measurement. Shapes of up to 16 a dim (``tiny``) are left out where there are others:
    every kernel is measured there by what a call costs. Interval and n are those of that category's median; the note
    names the category.
    """
    table = speedup_by_shape(results, setting)
    table = {category: found for category, found in table.items() if category != "tiny"} or table
    if not table:
        return NOTHING("no correct cell was timed")
    category, best = max(table.items(), key=lambda item: item[1].value)
    return dataclasses.replace(best, note=f"over {category} shapes")
