"""Speedups of the primary machine's timed cells, arranged for the hierarchical bootstrap."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from kerneleval.records import Result, Timing
from kerneleval.scores.common.cells import derived, device_names, error_of, primary, timing_of
from kerneleval.scores.common.intervals import FEW, Floats, Nested, nested, quotient
from kerneleval.scores.common.registry import Setting

MIN_SHAPES = 3
"""With fewer shapes a variation over shapes is not known."""


@dataclass(frozen=True)
class Speeds:
    """Speedups by task and (sample, direction, dtype)."""

    tasks: tuple[str, ...]
    """Every task of the results and of the suite."""
    nested: Nested
    """Speedups, groups within tasks."""
    eligible: NDArray[np.bool_]
    """(tasks, groups): whether the group has at least :data:`MIN_SHAPES` shapes."""
    noise: Floats
    """(tasks, groups): mean of the cells' measurement variances over the square of the mean speedup; 0 where there is
    no cell. See :func:`measurement_variance`."""

    @property
    def cells(self) -> int:
        """Number of timed cells."""
        return int(self.nested.counts.sum())

    @property
    def timed_tasks(self) -> int:
        """Number of tasks with a timed cell."""
        return int((self.nested.counts.sum(axis=1) > 0).sum())


@derived("primary", "suite")
def speeds(results: Sequence[Result], setting: Setting) -> Speeds:
    """Speedups of the correct, timed cells on the primary machine."""
    tasks = tuple(dict.fromkeys([*(r.task for r in results), *(task for task, _, _ in setting.suite)]))
    rows, variances = [], []
    shapes: dict[tuple[str, object], set[tuple[tuple[str, int], ...]]] = {}
    for r in primary(results, setting):
        if (timing := timing_of(r)) is not None:
            group = (r.sample, r.case.direction, r.case.dtype)
            rows.append((r.task, group, timing.speedup))
            variances.append((r.task, group, measurement_variance(timing)))
            shapes.setdefault((r.task, group), set()).add(r.case.dims)
    arranged = nested(tasks, rows)
    eligible = np.zeros(arranged.counts.shape, dtype=bool)
    row = {task: t for t, task in enumerate(tasks)}
    place: dict[str, int] = {}
    for (task, _group), seen in shapes.items():  # in the order of their first row, as the groups in ``arranged``
        position = place.get(task, 0)
        eligible[row[task], position] = len(seen) >= MIN_SHAPES
        place[task] = position + 1
    noise = np.nansum(nested(tasks, variances).values, axis=-1) * arranged.counts
    return Speeds(tasks, arranged, eligible, np.nan_to_num(quotient(noise, np.nansum(arranged.values, axis=-1) ** 2)))


def measurement_variance(timing: Timing) -> float:
    """Variance of the speedup as measured around the true one: s² (1 - exp(-e²)), with the standard error e of its
    logarithm, which is unbiased where the error of the logarithm is normal (E s² = S² exp(2 e²), Var s = S² exp(e²)
    (exp(e²) - 1) for a true S). At most s², which is where there is no interval.
    """
    return timing.speedup**2 * -math.expm1(-(error_of(timing) ** 2))


@derived("primary")
def where(results: Sequence[Result], setting: Setting) -> str:
    """``on DEVICE`` if the results are of several machines, with the number of tasks where it saw but a part of them;
    else empty.
    """
    names = device_names(results)
    if len(names) < 2:
        return ""
    mine = primary(results, setting)
    seen, tasks = {r.task for r in mine}, {r.task for r in results}
    return f"on {names[mine[0].machine]}" + (f", {len(seen)} of {len(tasks)} tasks" if len(seen) < len(tasks) else "")


def few_tasks(tasks: int) -> str:
    """A warning where there are too few tasks to resample; else empty."""
    return f"{tasks} task{'s' * (tasks != 1)}: the interval is too narrow" if 0 < tasks < FEW else ""
