"""Speedups: of every timed cell; their median, the first factor of S; the same by shape category; and the peak."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

from kerneleval.records import DIRECTIONS, SHAPE_CATEGORIES, Result, Score
from kerneleval.scores.common.cells import by_key, checked, device_names, primary, timing_of
from kerneleval.scores.common.intervals import NOTHING, in_order, median_over_cells, scored
from kerneleval.scores.common.registry import DEFAULT, Setting, Table, register
from kerneleval.scores.common.speeds import few_tasks, speeds, where


@register
def speedup(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """Baseline time over candidate time of each correct, timed cell, same device and protocol, with the 95 % interval
    of the timing.

    Keys are the cells (``DEVICE CASE``, with ``#SAMPLE`` for samples after the first); n is the number of entries of
    its samples, two of each block.
    """
    del setting
    names = device_names(checked(results))
    table: Table = {}
    for r in results:
        if (timing := timing_of(r)) is not None:
            key = f"{names[r.machine]} {r.case.key} {r.case.shape_category}" + (f" #{r.sample}" if r.sample else "")
            found = timing.speedup, timing.low, timing.high
            table[key] = scored(found, len(timing.samples.candidate_ns), timing.claim)
    return table


@register
def speedup_med(results: Sequence[Result], setting: Setting = DEFAULT) -> Score:
    """Median speedup over the correct, timed cells of the primary device, both directions together.

    A backward time is that of the gradient alone on both sides, or of forward call and gradient on both sides
    (``docs/timing.md``). The interval is of a sign test over the tasks, turned round; n is the number of cells.
    """
    table = speeds(checked(results), setting)
    if not table.cells:
        return NOTHING("no correct cell was timed")
    found = median_over_cells(table.nested, never_outside=(0.0, math.inf))
    return scored(found, table.cells, where(results, setting), few_tasks(table.timed_tasks))


@register
def speedup_by_direction(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """Speedup_med over the cells of each direction."""
    groups = by_key((r.case.direction, r) for r in primary(checked(results), setting))
    alone = dataclasses.replace(setting, suite=())
    return {direction: speedup_med(groups[direction], alone) for direction in DIRECTIONS if direction in groups}


@register
def speedup_by_shape(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """Median speedup over the correct, timed cells of the primary device whose shape is of that category.

    A shape-specialised generator shows here: fast on ``power_of_two``, slow on ``non_power_of_two``.
    """
    groups = by_key((r.case.shape_category, r) for r in primary(checked(results), setting))
    alone = dataclasses.replace(setting, suite=())
    found = {category: speedup_med(groups[category], alone) for category in in_order(groups, SHAPE_CATEGORIES)}
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
