"""How near to the machine's limit a generator's kernels come: fraction of the limit, and SOL score."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kerneleval.records import Failed, Result, Score, Timing
from kerneleval.scores.common.cells import by_key, checked, primary, timing_of, unsupported
from kerneleval.scores.common.intervals import NOTHING, mean_over_tasks, median_over_cells, nested, scored
from kerneleval.scores.common.registry import DEFAULT, Setting, register
from kerneleval.scores.common.speeds import few_tasks, where


@dataclass(frozen=True, kw_only=True)
class Point:
    """A correct, timed forward cell in the roofline of its machine."""

    result: Result
    flop: float
    """Floating-point operations of a call."""
    nbytes: float
    """Fewest bytes that a call must move."""
    time_s: float
    """Verified time of a call (median of its windows)."""
    baseline_s: float
    """The same of the baseline."""
    least_s: float
    """Time of a call at the machine's limit: the longer one of its operations at the measured peak of its data type and
    its bytes at the measured bandwidth, as far as the caches cannot hold them."""

    @property
    def fraction(self) -> float:
        """Share of the limit that is reached, the larger of IOU and MFU: ``least_s / time_s``. Above 1 where fewer
        operations or bytes than the task states will do, or the machine was busier when the limit was measured.
        """
        return self.least_s / self.time_s


def roofline(results: Sequence[Result], setting: Setting) -> Iterator[Point]:
    """The correct, timed forward cells whose task's work and whose machine's limits are known.

    Gradients are left out: a task states what its forward call must do, and how much of it the backward may share is
    the kernel's choice.
    """
    for r in results:
        timing, limits = timing_of(r), setting.limits.get(r.machine)
        if timing is None or limits is None or setting.work is None or r.case.direction != "forward":
            continue
        work, times = setting.work(r.case), _times(timing)
        if work is None or times is None or not any(work):
            continue
        least = limits.least_s(*work, r.case.dtype, calls=timing.samples.calls)
        yield Point(result=r, flop=work[0], nbytes=work[1], time_s=times[0], baseline_s=times[1], least_s=least)


def _times(timing: Timing) -> tuple[float, float] | None:
    """Medians over the windows, seconds, of candidate and baseline."""
    samples = timing.samples
    if not samples.candidate_ns or not samples.baseline_ns:
        return None
    times = statistics.median(samples.candidate_ns) / 1e9, statistics.median(samples.baseline_ns) / 1e9
    return times if min(times) > 0 else None


@register
def fraction_of_limit(results: Sequence[Result], setting: Setting = DEFAULT) -> Score:
    """Median share of the machine's limit that the correct, timed forward cells of the primary device reach: the least
    time that their operations and bytes need at the machine's measured peak and bandwidth, over the verified time.

    The limit of a cell is the roofline's (Williams, Waterman, Patterson 2009, CACM 52(4):65); operations and bytes are
    those that the task states. Short calls are far below it whatever the kernel: a call costs microseconds. The
    interval is of a sign test over the tasks, turned round; n is the number of cells.
    """
    points = list(roofline(primary(checked(results), setting), setting))
    if not points:
        return NOTHING(_why_none(setting))
    tasks = tuple(dict.fromkeys(r.task for r in results))
    groups = ((p.result.task, (p.result.sample, p.result.case.dtype), p.fraction) for p in points)
    table = nested(tasks, groups)
    found = median_over_cells(table, never_outside=(0.0, math.inf))
    return scored(found, len(points), where(results, setting), few_tasks(len({p.result.task for p in points})))


@register
def sol_score(results: Sequence[Result], setting: Setting = DEFAULT) -> Score:
    """Mean over tasks of 1 / (1 + (t - t_SOL) / (t_b - t_SOL)), the score of SOL-ExecBench, over the forward cells of
    the primary device: 0.5 at the baseline's time t_b, 1 at the machine's limit t_SOL, 0 for a wrong cell.

    A cell whose baseline is at the limit already has no scale and is left out, as is a right one that was not timed and
    one that the candidate declares unsupported. A time below t_SOL counts as t_SOL. Student's t interval over tasks; n
    is their number.
    """
    cells = primary(checked(results), setting)
    points = list(roofline(cells, setting))
    if not points:
        return NOTHING(_why_none(setting))
    scale = [(p, p.baseline_s - p.least_s) for p in points if p.baseline_s > p.least_s]
    timed = [(p.result.task, 1 / (1 + max(p.time_s - p.least_s, 0.0) / length)) for p, length in scale]
    failed = (r for r in cells if isinstance(r.outcome, Failed) and not unsupported(r))
    of_tasks = by_key([*timed, *((r.task, 0.0) for r in failed if r.case.direction == "forward")])
    if not of_tasks:
        return NOTHING("every baseline is at the limit")
    value, low, high = mean_over_tasks([statistics.fmean(values) for values in of_tasks.values()])
    found = value, max(low, 0.0), min(high, 1.0)
    return scored(found, len(of_tasks), where(results, setting), few_tasks(len(of_tasks)))


def _why_none(setting: Setting) -> str:
    if not setting.limits:
        return "the machine's limits were not measured in this run"
    return "no correct forward cell was timed whose task is at hand"
