"""S, the composite score of KernelEval: equation (1); and what a point on each of its factors would be worth."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from kerneleval.records import Result, Score
from kerneleval.scores import c_op, cv_shape, p_hw
from kerneleval.scores.common.cells import checked, pairs, primary
from kerneleval.scores.common.intervals import NOTHING, Draw, Floats, interval, notes, scored
from kerneleval.scores.common.registry import DEFAULT, Setting, Table, register
from kerneleval.scores.common.speeds import few_tasks, speeds, where
from kerneleval.scores.speedup import speedup_med


def product(
    speedup: Floats | float, cv: Floats | float, coverage: Floats | float, portability: Floats | float
) -> Floats:
    """S = Speedup_med x (1 - CV_shape) x C_op x P_hw, elementwise; the CV is clipped to [0, 1].

    A factor that is 0 makes S 0, even where another is NaN: a generator that gets nothing right has no speedup, and
    scores nothing. Otherwise a NaN makes S NaN.
    """
    out = np.asarray(speedup) * (1 - np.clip(cv, 0, 1)) * coverage * portability
    return np.where((np.asarray(coverage) == 0) | (np.asarray(portability) == 0), 0.0, out)


Factors = tuple[Floats, Floats, Floats, Floats]


def _factors(
    results: Sequence[Result], mine: Sequence[Result], setting: Setting
) -> tuple[tuple[str, ...], int, Callable[[Draw], Factors]]:
    """Tasks, number of cells, and the factors of S in a draw of these tasks."""
    table = speeds(results, setting)
    covered = c_op.counts(pairs(mine, setting), table.tasks)
    devices = p_hw.by_device(results, table.tasks, setting)
    _, too_noisy = cv_shape.judged(table)

    def factors(draw: Draw) -> Factors:
        return (
            draw.median(table.nested),
            np.full(len(draw.tasks), math.nan) if too_noisy else cv_shape.over_groups(table, draw),
            draw.ratio(covered),
            p_hw.over_devices(devices, draw),
        )

    size = table.nested.values.size + sum(of.values.size for of in devices.values() if of is not None)
    return table.tasks, size, factors


@register
def composite(results: Sequence[Result], setting: Setting = DEFAULT) -> Score:
    """S = Speedup_med x (1 - CV_shape) x C_op x P_hw, with CV_shape clipped to [0, 1]: equation (1) of KernelEval.

    The interval is a hierarchical bootstrap (whole tasks) of the whole product; n is the number of tasks. It does
    not hold the uncertainty of single timings, which is far smaller; in the quick tier it may not be.
    """
    mine = primary(checked(results), setting)
    if not mine:
        return NOTHING("no results")
    tasks, size, factors = _factors(results, mine, setting)
    *found, undefined = interval(lambda draw: product(*factors(draw)), len(tasks), size, never_outside=(0.0, math.inf))
    return scored(found, len(tasks), _note(results, setting, found[0], undefined, tasks))


def _note(results: Sequence[Result], setting: Setting, value: float, undefined: float, tasks: Sequence[str]) -> str:
    factors = {"Speedup_med": speedup_med, "CV_shape": cv_shape.cv_shape, "P_hw": p_hw.p_hw}
    parts = [where(results, setting)]
    found = {name: of(results, setting) for name, of in factors.items()}
    if math.isnan(value):
        parts += [f"no {name}: {of.note}" for name, of in found.items() if math.isnan(of.value)]
    else:
        parts += [found["P_hw"].note, few_tasks(len(tasks))]
        if undefined > 0.01:
            parts.append(f"{undefined:.0%} of the resamples had no value and were left out")
    return notes(*parts)


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
    tasks, size, factors = _factors(results, mine, setting)

    def gain(axis: int) -> Callable[[Draw], Floats]:
        def of(draw: Draw) -> Floats:
            now = factors(draw)
            moved = list(now)
            moved[axis] = _moved(now[axis], axis)
            return product(*moved) - product(*now)

        return of

    found: Table = {}
    for axis, name in enumerate(_AXES):
        *values, _ = interval(gain(axis), len(tasks), size, never_outside=(0.0, math.inf))
        note = few_tasks(len(tasks)) if not math.isnan(values[0]) else "S has no value"
        found[name] = scored(values, len(tasks), note)
    return found


def _moved(factor: Floats, axis: int) -> Floats:
    """The factor, a point better, as far as it can be."""
    if _AXES[axis] == "speedup_med":
        return factor + POINT
    if _AXES[axis] == "cv_shape":  # of more than 1 it is not known which point would count
        return np.where(factor >= 1, factor, np.maximum(factor - POINT, 0.0))
    return np.minimum(factor + POINT, 1.0)
