"""The gap between shapes that kernels are tuned for and all others."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kerneleval.records import Result, Score
from kerneleval.scores.common.cells import checked, primary, timing_of
from kerneleval.scores.common.intervals import NOTHING, Draw, Floats, interval, nested
from kerneleval.scores.common.registry import DEFAULT, Setting, register
from kerneleval.scores.common.speeds import few_tasks, where

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
    sides = [
        nested(
            tasks,
            [
                (r.task, (r.sample, r.case.direction, r.case.dtype), timing.speedup)
                for r, timing in timed
                if r.case.shape_category == side
            ],
        )
        for side in _SIDES
    ]
    for side, of in zip(_SIDES, sides, strict=True):
        if not of.counts.sum():
            return NOTHING(f"no correct cell of {side} shapes was timed")

    def statistic(draw: Draw) -> Floats:
        there, elsewhere = (draw.median(of) for of in sides)
        out: Floats = np.divide(there, elsewhere, out=np.full_like(there, math.nan), where=elsewhere > 0)
        return out

    value, low, high, _ = interval(
        statistic, len(tasks), sum(of.values.size for of in sides), never_outside=(0.0, math.inf)
    )
    n = int(sum(of.counts.sum() for of in sides))
    note = "; ".join(filter(None, (where(results, setting), few_tasks(len(tasks)))))
    return Score(value=value, low=low, high=high, n=n, note=note)
