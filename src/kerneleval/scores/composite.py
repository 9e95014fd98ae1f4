"""S, the composite score of KernelEval: equation (1)."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from kerneleval.records import Result, Score
from kerneleval.scores import c_op, cv_shape, p_hw, speedup_med
from kerneleval.scores.common.cells import checked, pairs, primary
from kerneleval.scores.common.intervals import NOTHING, Draw, Floats, interval
from kerneleval.scores.common.registry import DEFAULT, Setting, register
from kerneleval.scores.common.speeds import few_tasks, speeds, where


def product(
    speedup: Floats | float, cv: Floats | float, coverage: Floats | float, portability: Floats | float
) -> Floats:
    """S = Speedup_med x (1 - CV_shape) x C_op x P_hw, elementwise; the CV is clipped to [0, 1].

    A factor that is 0 makes S 0, even where another is NaN: a generator that gets nothing right has no speedup, and
    scores nothing. Otherwise a NaN makes S NaN.
    """
    out = np.asarray(speedup) * (1 - np.clip(cv, 0, 1)) * coverage * portability
    return np.where((np.asarray(coverage) == 0) | (np.asarray(portability) == 0), 0.0, out)


@register
def composite(results: Sequence[Result], setting: Setting = DEFAULT) -> Score:
    """S = Speedup_med x (1 - CV_shape) x C_op x P_hw, with CV_shape clipped to [0, 1]: equation (1) of KernelEval.

    The interval is a hierarchical bootstrap (whole tasks) of the whole product; n is the number of tasks. It does
    not hold the uncertainty of single timings, which is far smaller; in the quick tier it may not be.
    """
    mine = primary(checked(results), setting)
    if not mine:
        return NOTHING("no results")
    table = speeds(results, setting)
    covered = c_op.counts(pairs(mine, setting), table.tasks)
    devices = p_hw.by_device(results, table.tasks, setting)

    def statistic(draw: Draw) -> Floats:
        return product(
            draw.median(table.nested),
            cv_shape.over_groups(table, draw),
            c_op.over_pairs(covered, draw),
            p_hw.over_devices(devices, draw),
        )

    size = table.nested.values.size + sum(of.values.size for of in devices.values() if of is not None)
    value, low, high, undefined = interval(statistic, len(table.tasks), size, never_outside=(0.0, math.inf))
    return Score(
        value=value, low=low, high=high, n=len(table.tasks), note=_note(results, setting, value, undefined, table.tasks)
    )


def _note(results: Sequence[Result], setting: Setting, value: float, undefined: float, tasks: Sequence[str]) -> str:
    factors = {
        "Speedup_med": speedup_med.speedup_med,
        "CV_shape": cv_shape.cv_shape,
        "P_hw": p_hw.p_hw,
    }
    parts = [where(results, setting)]
    found = {name: of(results, setting) for name, of in factors.items()}
    if math.isnan(value):
        parts += [f"no {name}: {of.note}" for name, of in found.items() if math.isnan(of.value)]
    else:
        parts += [found["P_hw"].note, few_tasks(len(tasks))]
        if undefined > 0.01:
            parts.append(f"{undefined:.0%} of the resamples had no value and were left out")
    return "; ".join(filter(None, parts))
