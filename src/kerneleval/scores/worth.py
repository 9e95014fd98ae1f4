"""What S is made of: the factors of the product, and what a point on each of them would be worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from kerneleval.records import Result, Score
from kerneleval.scores import c_op, cv_shape, p_hw
from kerneleval.scores.common.cells import checked, pairs, primary
from kerneleval.scores.common.intervals import NOTHING, Draw, Floats, interval
from kerneleval.scores.common.registry import DEFAULT, Setting, Table, register
from kerneleval.scores.common.speeds import few_tasks, speeds
from kerneleval.scores.composite import product

POINT = 0.01
"""One hundredth of speed, of evenness over shapes (1 - CV_shape), of coverage, of portability."""

_AXES = ("speedup_med", "cv_shape", "c_op", "p_hw")


@register
def worth(results: Sequence[Result], setting: Setting = DEFAULT) -> Table:
    """What a point on each axis would add to S: the change of S if Speedup_med, C_op or P_hw were 0.01 more, or
    CV_shape 0.01 less, and all other factors as they are.

    S is a product, so that a point is worth the product of the other three factors times 0.01: most on the axis that is
    lowest. C_op and P_hw have nothing above 1 to gain, and a CV_shape of 0, or of 1 and more (where S does not change
    with it), none below. The interval is the hierarchical bootstrap of S; n is the number of tasks.
    """
    mine = primary(checked(results), setting)
    if not mine:
        return {axis: NOTHING("no results") for axis in _AXES}
    table = speeds(results, setting)
    covered = c_op.counts(pairs(mine, setting), table.tasks)
    devices = p_hw.by_device(results, table.tasks, setting)

    def factors(draw: Draw) -> tuple[Floats, Floats, Floats, Floats]:
        return (
            draw.median(table.nested),
            cv_shape.over_groups(table, draw),
            c_op.over_pairs(covered, draw),
            p_hw.over_devices(devices, draw),
        )

    def gain(axis: int) -> Callable[[Draw], Floats]:
        def of(draw: Draw) -> Floats:
            now = factors(draw)
            moved = list(now)
            moved[axis] = _moved(now[axis], axis)
            return product(*moved) - product(*now)

        return of

    size = table.nested.values.size + sum(of.values.size for of in devices.values() if of is not None)
    found: Table = {}
    for axis, name in enumerate(_AXES):
        value, low, high, _ = interval(gain(axis), len(table.tasks), size, never_outside=(0.0, math.inf))
        note = few_tasks(len(table.tasks)) if not math.isnan(value) else "S has no value"
        found[name] = Score(value=value, low=low, high=high, n=len(table.tasks), note=note)
    return found


def _moved(factor: Floats, axis: int) -> Floats:
    """The factor, a point better, as far as it can be."""
    if _AXES[axis] == "speedup_med":
        return factor + POINT
    if _AXES[axis] == "cv_shape":  # of more than 1 it is not known which point would count
        return np.where(factor >= 1, factor, np.maximum(factor - POINT, 0.0))
    return np.minimum(factor + POINT, 1.0)
